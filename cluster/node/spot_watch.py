"""Asks the cloud's metadata server, in a thread, whether this machine will end."""

import threading
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from typing import Final

from ...actors.backoff import Backoff
from ..logs.actions import LogAction
from ..logs.writing import log
from .spot import Ask, Cloud, MetadataAnswer, MetadataQuestion, NotHere, Notice, Spot, clouds

SERVER: Final = ("169.254.169.254", 80)
"""Both clouds' metadata servers have this link-local address, so no name is looked up and no proxy is used."""
ANSWER_S: Final = 1.0
ANSWER_BYTES: Final = 65_536
TRIES: Final = 6
"""After this many failures in a row: if a server has answered before, or the user has named the cloud, the failure is
logged once; otherwise, the servers are asked only every ``RARELY_S`` from then on.
"""
RARELY_S: Final = 60.0
_AGAIN: Final = Backoff(first_s=1.0, most_s=5.0)


def ask_server(
    question: MetadataQuestion, server: tuple[str, int] = SERVER, within_s: float = ANSWER_S
) -> MetadataAnswer | None:
    """Send a question, and return the answer; None if the server does not answer or falls silent for ``within_s``.

    Follows no redirect, and uses no proxy.
    """
    link = HTTPConnection(*server, timeout=within_s)
    try:
        link.request(question.method, question.path, headers={**question.headers, "Connection": "close"})
        response = link.getresponse()
        body = response.read(ANSWER_BYTES).decode(errors="replace")
        if response.length:  # the answer was cut off
            return None
        return MetadataAnswer(response.status, body, {name.lower(): value for name, value in response.getheaders()})
    except (OSError, HTTPException, ValueError):
        return None
    finally:
        link.close()


class SpotWatch:
    """Looks for a notice until there is one.

    Args:
        spot: which metadata server is asked; with ``AUTO``, rarely after a few tries if none answers.
        ask: sends a question.
        pause: waits for a number of seconds, and returns whether the watch is over.
        has_gpus: whether the machine has GPUs, in which case Google Cloud gives longer notice.
    """

    def __init__(
        self,
        spot: Spot,
        ask: Ask = ask_server,
        pause: Callable[[float], bool] | None = None,
        *,
        has_gpus: bool = False,
    ) -> None:
        self.notice: Notice | None = None
        self._spot = spot
        self._clouds = clouds(spot, has_gpus=has_gpus)
        self._ask = ask
        self._over = threading.Event()
        self._pause = self._over.wait if pause is None else pause

    def start(self, wake: Callable[[], object]) -> None:
        """Watch in a thread, which calls ``wake`` when there is a notice."""
        if self._clouds:
            threading.Thread(target=self.run, args=(wake,), name="spot notices", daemon=True).start()

    def close(self) -> None:
        """End the watch; a question that is under way is not awaited."""
        self._over.set()

    def run(self, wake: Callable[[], object]) -> None:
        """Look until there is a notice or the watch is over."""
        cloud: Cloud | None = None
        failures = 0
        while True:
            try:
                cloud, self.notice = self._look(cloud)
                failures = 0
            except NotHere as why:
                failures += 1
                if failures == TRIES and (cloud or self._spot.is_promised):
                    log(LogAction.NODE_UNWATCHED, f"cannot find out whether the cloud will end this machine: {why}")
            if self.notice is not None:
                with suppress(OSError):  # the node has just ended
                    wake()
                return
            if self._pause(self._wait_s(cloud, failures)):
                return

    def _look(self, cloud: Cloud | None) -> tuple[Cloud, Notice | None]:
        """Ask the known cloud, or each cloud in turn until one answers."""
        reasons = []
        for each in (cloud,) if cloud else self._clouds:
            try:
                return each, each.look(self._ask)
            except NotHere as why:
                reasons.append(f"{each.name}: {why}")
        raise NotHere("; ".join(reasons))

    def _wait_s(self, cloud: Cloud | None, failures: int) -> float:
        if cloud is None and failures >= TRIES and not self._spot.is_promised:
            return RARELY_S
        return cloud.interval_s if cloud and not failures else _AGAIN.wait_s(failures)

"""Takes a snapshot of a fleet every second while a page is open. All open pages share the snapshots."""

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING, Any, Final

from ..cluster.fleet.messages import ReadHistory, ReadStatus
from ..cluster.operate.desk import as_unavailable
from ..cluster.supervisor.status import History, Status
from ..cluster.worker_names import StationId
from ..errors import CodecfleetError, FleetUnavailable
from .document import chosen_stations, document

if TYPE_CHECKING:
    from ..cluster.fleet.messages import SupervisorSide
    from ..cluster.operate.desk import AskDesk, Seen

EVERY_S: Final = 1.0  # the pause between snapshots
FRESH_S: Final = 3.0  # if the last snapshot is older than this, a page waits for a new one
WAIT_S: Final = 5.0  # how long a page waits before it gets the old snapshot, with the snapshot's age
AGAIN_S: Final = 5.0  # the pause after a lost connection
_NOT_YET: Final = FleetUnavailable("the fleet has not answered yet", "Wait a moment.")


class Looking:
    """Keeps the newest snapshot of the fleet that ``open_desk`` reaches; ``clock`` returns monotonic seconds."""

    def __init__(
        self,
        open_desk: "Callable[[], AbstractAsyncContextManager[AskDesk[SupervisorSide]]]",
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Any] = asyncio.sleep,
    ) -> None:
        self._open_desk = open_desk
        self._clock = clock
        self._sleep = sleep
        self._wanted = asyncio.Event()
        self._looked = asyncio.Event()
        self._looked_s = 0.0
        self._number = 0
        self._stations: tuple[StationId, ...] = ()
        self._content = _encoded(_NOT_YET, History(), ())
        self.reached = asyncio.Event()  # set once the fleet has answered

    async def data(self) -> bytes:
        """Return the newest snapshot as JSON, with its number and its age in seconds.

        If the newest snapshot is old, wait for a new one first.
        """
        self._wanted.set()
        if not self._number or self._clock() - self._looked_s > FRESH_S:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._looked.wait(), WAIT_S)
        age_s = round(self._clock() - self._looked_s, 1) if self._number else 0.0
        head = json.dumps({"look": self._number, "age_s": age_s}).encode()
        return head[:-1] + b', "document": ' + self._content + b"}"

    async def run(self) -> None:
        """Take snapshots while a page is open; after a lost connection, show the reason and connect again.

        Raises CodecfleetError if the first connection fails.
        """
        while True:
            try:
                async with self._open_desk() as ask:
                    self.reached.set()
                    while True:
                        await self._wanted.wait()
                        self._wanted.clear()
                        await self._look(ask)
                        await self._sleep(EVERY_S)
            except Exception as error:  # a broken connection may raise any error; the page shows it
                if not self.reached.is_set():
                    raise
                self._take(as_unavailable(error), History())
            await self._sleep(AGAIN_S)

    async def _look(self, ask: "AskDesk[SupervisorSide]") -> None:
        try:
            seen: Seen = await ask(ReadStatus())
            stations = chosen_stations(seen, self._stations)
            found = await ask(ReadHistory(stations)) if isinstance(seen, Status) else None
        # any other error may mean that the connection is lost, so ``run`` connects again
        except CodecfleetError as error:
            self._take(as_unavailable(error), History())
            return
        self._stations = stations
        self._take(seen, found or History())

    def _take(self, seen: "Seen", history: History) -> None:
        try:
            self._content = _encoded(seen, history, self._stations)
        except Exception as error:  # noqa: BLE001 - a status that cannot be encoded spoils only this snapshot
            self._content = _encoded(as_unavailable(error), History(), ())
        self._number += 1
        self._looked_s = self._clock()
        self._looked.set()
        self._looked = asyncio.Event()


def _encoded(seen: "Seen", history: History, stations: tuple[StationId, ...]) -> bytes:
    return json.dumps(document(seen, history, stations), separators=(",", ":"), allow_nan=False).encode()

"""A network that is ready to run: a session with a loadable and its buffers, kept warm from segment to segment."""

import atexit
import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import CodecfleetError, DeviceLost, InputNotFound, InputUnreadable, Unsupported
from .engine_session import Timing
from .host import DlaHost, open_host
from .hybrid import DeviceBuffer, HybridSession
from .layout import unpack
from .session import Access, DlaModule, DlaTask
from .states import SessionState
from .tensors import TensorDescriptor
from .watchdog import TimeLimits

__all__ = ["Network", "NetworkSettings", "WarmNetworks", "loadable_digest", "read_loadable", "warm_networks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """Which network, where, and how it is run.

    ``loadable`` is a path that the worker can read, ``digest`` what ``loadable_digest`` said of it. ``tasks_at_once``
    tasks are submitted together; each may take ``task_limit_s`` on the engine.
    """

    loadable: str
    digest: str
    device: int
    tasks_at_once: int = 4
    task_limit_s: float = 10.0


def read_loadable(path: str) -> bytes:
    """Return a loadable's bytes.

    Raises:
        InputNotFound: it is not there.
        InputUnreadable: it cannot be read, or is empty.
    """
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        message = f"there is no loadable {path}"
        raise InputNotFound(message, "Build one with TensorRT: docs/dla.md.") from None
    except (OSError, ValueError) as error:
        message = f"the loadable {path} cannot be read: {getattr(error, 'strerror', None) or error}"
        raise InputUnreadable(message, "Check its permissions.") from None
    if not content:
        message = f"the loadable {path} is empty"
        raise InputUnreadable(message, "Build it again with TensorRT: docs/dla.md.")
    return content


def loadable_digest(content: bytes) -> str:
    """Return what tells one loadable from another."""
    return hashlib.sha256(content).hexdigest()


class Network:
    """A loadable in a session of its own, with buffers for ``tasks_at_once`` tasks. For one thread at a time.

    Args:
        session: a fresh session; the network closes it.
        content: the loadable.
        tasks_at_once: how many tasks are submitted together.

    Raises:
        Unsupported: the loadable has other than one input, or does not load.
    """

    def __init__(self, session: HybridSession, content: bytes, tasks_at_once: int) -> None:
        self._session = session
        self._module = session.load(content)
        if len(self._module.inputs) != 1:
            message = f"the loadable takes {len(self._module.inputs)} inputs, and a picture is one"
            raise Unsupported(message, "Use the session itself for such a network: docs/dla.md.")
        self._lanes = [_Lane(session, self._module) for _ in range(tasks_at_once)]

    @property
    def source(self) -> TensorDescriptor:
        """The input."""
        return self._module.inputs[0]

    @property
    def results(self) -> tuple[TensorDescriptor, ...]:
        """The outputs."""
        return self._module.outputs

    @property
    def is_ready(self) -> bool:
        """Whether it can run for somebody else: nothing is under way, and nothing has failed."""
        return self._session.state is SessionState.IDLE

    @property
    def frames_at_once(self) -> int:
        """How many pictures one call of ``run`` takes at most."""
        return self.source.n * len(self._lanes)

    def run(self, memories: Sequence[NDArray[np.uint8]]) -> list[tuple[NDArray[Any], ...]]:
        """Run one task for each input's memory, all queued at once; return their outputs, (n, c, h, w) each.

        Raises:
            DeviceError: see ``DlaSession``.
        """
        lanes = self._lanes[: len(memories)]
        for lane, memory in zip(lanes, memories, strict=True):
            self._session.upload(lane.source, memory)
        self._session.submit([lane.task for lane in lanes])
        found = [[np.zeros(buffer.size_bytes, dtype=np.uint8) for buffer in lane.results] for lane in lanes]
        for lane, arrays in zip(lanes, found, strict=True):
            for buffer, array in zip(lane.results, arrays, strict=True):
                self._session.download(buffer, array)
        self._session.synchronize()
        return [
            tuple(unpack(result, array) for result, array in zip(self.results, arrays, strict=True)) for arrays in found
        ]

    def close(self) -> None:
        """Close the session."""
        self._session.close()


class _Lane:
    """The buffers of one task."""

    def __init__(self, session: HybridSession, module: DlaModule) -> None:
        self.source = session.allocate(module.inputs[0].size_bytes)
        self.results: list[DeviceBuffer] = [session.allocate(result.size_bytes) for result in module.outputs]
        statistics = [session.allocate(each.size_bytes, Access.TASK_STATISTICS) for each in module.statistics]
        self.task = DlaTask(
            module=module,
            inputs=(self.source.registration,),
            outputs=tuple(buffer.registration for buffer in self.results),
            statistics=tuple(buffer.registration for buffer in statistics),
        )


class WarmNetworks:
    """The networks of this process: created when first wanted, kept for the next segment. Safe from any thread.

    Args:
        open_machine: opens the process's host, with the timing it is given.
    """

    def __init__(self, open_machine: Callable[[Timing], DlaHost] = open_host) -> None:
        self._open_machine = open_machine
        self._lock = threading.Lock()
        self._host: DlaHost | None = None
        self._idle: list[tuple[NetworkSettings, Network]] = []
        self._lent = 0
        self.created = 0
        """How many networks were loaded so far."""

    @contextmanager
    def lend(self, settings: NetworkSettings) -> Iterator[Network]:
        """Give a network for the time of the context; afterwards it is kept, unless it failed.

        Raises:
            InputError: the loadable cannot be read.
            Unsupported: it does not load, or there is no such DLA.
            DeviceError: the DLA fails, or has failed before in this process.
        """
        with self._lock:
            self._lent += 1
        network: Network | None = None
        try:
            network = self._taken(settings) or self._loaded(settings)
            yield network
        finally:
            self._take_back(settings, network)

    def close(self) -> None:
        """Close what is idle, and the host once nothing is lent. Idempotent, and never raises."""
        with self._lock:
            idle, self._idle = self._idle, []
            host = None if self._lent else self._host
            self._host = self._host if self._lent else None
        with suppress(CodecfleetError):  # the process ends anyway, and the sessions have told why
            for _, network in idle:
                network.close()
            if host is not None:
                host.close()

    def _take_back(self, settings: NetworkSettings, network: Network | None) -> None:
        with self._lock:
            self._lent -= 1
            if network is not None and network.is_ready:
                self._idle.append((settings, network))
                return
        if network is not None:
            with suppress(CodecfleetError):  # whoever used it has heard what is wrong
                network.close()

    def _taken(self, settings: NetworkSettings) -> Network | None:
        """Take an idle network that fits; close those of the same DLA that nobody will want again."""
        with self._lock:
            if self._host is not None and self._host.failure:
                return None
            found = next((network for known, network in self._idle if known == settings), None)
            others = [network for known, network in self._idle if _is_in_the_way(known, settings)]
            self._idle = [(k, n) for k, n in self._idle if n is not found and n not in others]
        for network in others:
            network.close()
        return found

    def _loaded(self, settings: NetworkSettings) -> Network:
        content = read_loadable(settings.loadable)
        if loadable_digest(content) != settings.digest:
            message = f"the loadable {settings.loadable} is another one here than where the job was started"
            raise InputUnreadable(message, "Put the same file on every machine, and do not change it under a job.")
        session = self._machine(settings).open(settings.device)
        try:
            session.set_task_limit(settings.task_limit_s)
            network = Network(session, content, settings.tasks_at_once)
        except CodecfleetError:
            with suppress(CodecfleetError):
                session.close()
            raise
        with self._lock:
            self.created += 1
        return network

    def _machine(self, settings: NetworkSettings) -> DlaHost:
        with self._lock:
            if self._host is None:
                self._host = self._open_machine(Timing(limits=TimeLimits(task_s=settings.task_limit_s)))
            if self._host.failure:
                message = f"the DLAs of this process are lost: {self._host.failure}"
                raise DeviceLost(message, "Nothing but a new process helps it.")
            return self._host


def _is_in_the_way(known: NetworkSettings, wanted: NetworkSettings) -> bool:
    return known.device == wanted.device and known.digest != wanted.digest


@cache
def warm_networks() -> WarmNetworks:
    """Return this process's networks; they are closed, in order, before it ends."""
    networks = WarmNetworks()
    atexit.register(networks.close)
    return networks

"""A network that is ready to run: a session with a loadable and its buffers, kept warm from segment to segment."""

import atexit
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....errors import CodecfleetError, DeviceLost, InputNotFound, InputUnreadable, Unsupported
from ...device.work import Blob
from ..engine.host import DlaHost, open_host
from ..engine.session import DlaSession
from ..engine.states import DlaSessionState
from ..engine.tasks import Access, DeviceBuffer, DlaModule, DlaTask
from ..engine.tensors import TensorDescriptor
from ..engine.watchdog import TimeLimits, Timing
from .layout import unpack


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """Which network, and how it is run.

    ``loadable`` is what TensorRT built. ``tasks_at_once`` tasks are submitted together; each may take ``task_limit_s``
    on the engine.
    """

    loadable: Blob
    tasks_at_once: int = 4
    task_limit_s: float = 10.0


def read_loadable(path: str) -> Blob:
    """Return the loadable in a file.

    Raises:
        InputNotFound: it is not there.
        InputUnreadable: it cannot be read, or is empty.
    """
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise InputNotFound(f"there is no loadable {path}", "Build one with TensorRT: docs/dla.md.") from None
    except (OSError, ValueError) as error:
        message = f"the loadable {path} cannot be read: {getattr(error, 'strerror', None) or error}"
        raise InputUnreadable(message, "Check its permissions.") from None
    if not content:
        raise InputUnreadable(f"the loadable {path} is empty", "Build it again with TensorRT: docs/dla.md.")
    return Blob.of(content)


class Network:
    """A loadable in a session of its own, with buffers for ``tasks_at_once`` tasks. For one thread at a time.

    Args:
        session: a fresh session; the network closes it.
        content: the loadable.
        tasks_at_once: how many tasks are submitted together.

    Raises:
        Unsupported: the loadable has other than one input, or does not load.
    """

    def __init__(self, session: DlaSession, content: bytes, tasks_at_once: int) -> None:
        self._session = session
        self._module = session.load(content)
        if len(self._module.inputs) != 1:
            message = f"the loadable takes {len(self._module.inputs)} inputs, and a picture is one"
            raise Unsupported(message, "Use the session itself for such a network: docs/dla.md.")
        self._lanes = [_Lane(session, self._module) for _ in range(tasks_at_once)]

    @property
    def device(self) -> int:
        """The number of the DLA that it runs on."""
        return self._session.device

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
        """Whether it can be reused: no task is queued, and nothing has failed."""
        return self._session.state is DlaSessionState.IDLE

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
            np.copyto(lane.source_staging, memory)
            self._session.upload(lane.source, lane.source_staging)
        self._session.submit([lane.task for lane in lanes])
        for lane in lanes:
            for buffer, array in zip(lane.results, lane.result_staging, strict=True):
                self._session.download(buffer, array)
        self._session.synchronize()
        return [lane.found(self.results) for lane in lanes]

    def close(self) -> None:
        """Close the session."""
        self._session.close()


class _Lane:
    """The buffers of one task, on the device and, page-locked, on the host."""

    def __init__(self, session: DlaSession, module: DlaModule) -> None:
        self.source = session.allocate(module.inputs[0].size_bytes)
        self.results: list[DeviceBuffer] = [session.allocate(result.size_bytes) for result in module.outputs]
        statistics = [session.allocate(each.size_bytes, Access.TASK_STATISTICS) for each in module.statistics]
        self.source_staging = session.host_array(self.source.size_bytes)
        self.result_staging = [session.host_array(buffer.size_bytes) for buffer in self.results]
        self.task = DlaTask(
            module=module,
            inputs=(self.source.registration,),
            outputs=tuple(buffer.registration for buffer in self.results),
            statistics=tuple(buffer.registration for buffer in statistics),
        )

    def found(self, results: Sequence[TensorDescriptor]) -> tuple[NDArray[Any], ...]:
        """Return what the task gave, (n, c, h, w) each, apart from the buffers: the next task overwrites them."""
        arrays = zip(results, self.result_staging, strict=True)
        return tuple(unpack(result, array.copy()) for result, array in arrays)


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
        self._own: int | None = None
        self._in_use: Counter[int] = Counter()
        self._times_chosen: Counter[int] = Counter()
        self.created = 0
        """How many networks were loaded so far."""

    def keep_to(self, device: int) -> None:
        """Use this DLA from now on, and no other: the machine's other ones belong to other processes."""
        self._own = device

    @contextmanager
    def acquire(self, settings: NetworkSettings, among: Sequence[int] | None = None) -> Iterator[Network]:
        """Give a network for the time of the context; afterwards it is kept, unless it failed.

        Args:
            settings: which.
            among: numbers of DLAs that it may run on, None for all; of these it gets the one that has least to do. A
                process that keeps to one DLA uses that, whatever is said here.

        Raises:
            Unsupported: it does not load, or there is no such DLA.
            DeviceError: the DLA fails, or has failed before in this process.
        """
        device = self._chosen(settings, among)
        network: Network | None = None
        try:
            network = self._taken(settings, device) or self._loaded(settings, device)
            yield network
        finally:
            self._take_back(settings, device, network)

    def close(self) -> None:
        """Close what is idle, and the host if nothing is in use. Idempotent; never raises."""
        with self._lock:
            idle, self._idle = self._idle, []
            is_in_use = self._in_use.total() > 0
            host = None if is_in_use else self._host
            self._host = self._host if is_in_use else None
        with suppress(CodecfleetError):  # the process ends anyway; the sessions have raised it
            for _, network in idle:
                network.close()
            if host is not None:
                host.close()

    def _chosen(self, settings: NetworkSettings, among: Sequence[int] | None) -> int:
        """Choose a DLA, and count it as in use."""
        with self._lock:
            host = self._machine(settings)
            if self._own is not None:
                device = self._own
            else:
                allowed = range(host.count) if among is None else among
                # Where none of them is, opening the first says so.
                there = [number for number in allowed if number < host.count] or allowed[:1]
                device = min(there, key=lambda number: (self._in_use[number], self._times_chosen[number], number))
            self._in_use[device] += 1
            self._times_chosen[device] += 1
            return device

    def _take_back(self, settings: NetworkSettings, device: int, network: Network | None) -> None:
        with self._lock:
            self._in_use[device] -= 1
            if network is not None and network.is_ready:
                self._idle.append((settings, network))
                return
        if network is not None:
            with suppress(CodecfleetError):  # its user has had the error
                network.close()

    def _taken(self, settings: NetworkSettings, device: int) -> Network | None:
        """Take an idle network that fits; close those of the same DLA that have another loadable."""
        with self._lock:
            here = [(known, network) for known, network in self._idle if network.device == device]
            found = next((network for known, network in here if known == settings), None)
            others = [network for known, network in here if known.loadable != settings.loadable]
            self._idle = [(k, n) for k, n in self._idle if n is not found and n not in others]
        for network in others:
            network.close()
        return found

    def _loaded(self, settings: NetworkSettings, device: int) -> Network:
        with self._lock:
            host = self._machine(settings)
        session = host.open(device)
        try:
            session.set_task_limit(settings.task_limit_s)
            network = Network(session, settings.loadable.content, settings.tasks_at_once)
        except CodecfleetError:
            with suppress(CodecfleetError):
                session.close()
            raise
        with self._lock:
            self.created += 1
        return network

    def _machine(self, settings: NetworkSettings) -> DlaHost:
        """Return the host, which is opened if it is not; the lock is held."""
        if self._host is None:
            self._host = self._open_machine(Timing(limits=TimeLimits(task_s=settings.task_limit_s)))
        if self._host.failure:
            raise DeviceLost(f"the DLAs of this process are lost: {self._host.failure}", "Restart the process.")
        return self._host


@cache
def warm_networks() -> WarmNetworks:
    """Return this process's networks; they are closed, in order, before it ends."""
    networks = WarmNetworks()
    atexit.register(networks.close)
    return networks

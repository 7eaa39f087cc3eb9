"""A network that is ready to run: a session with a loadable and buffers.

A network stays ready from segment to segment.
"""

import atexit
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....errors import CodecfleetError, DeviceLost, EngineUnfit, InputNotFound, InputUnreadable, Unsupported, UsageError
from ...device.memory_choice import Waiting
from ...device.work import Blob
from ...shared_once import shared_once
from ..engine.host import AnySession, DlaHost, open_host
from ..engine.hybrid import HybridSession
from ..engine.states import DlaMode, DlaSessionState
from ..engine.tensors import TensorDescriptor
from ..engine.watchdog import TimeLimits, Timing
from .lanes import Fill, SharedLanes, open_lanes


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """A network of a DLA, and how it is run."""

    loadable: Blob  # built by TensorRT
    tasks_at_once: int = 4  # how many tasks are submitted together
    task_limit_s: float = 10.0  # how long each task may run on the engine
    mode: DlaMode = DlaMode.HYBRID
    waiting: Waiting = Waiting.BLOCK  # how a thread waits for the DLA


def read_loadable(path: str) -> Blob:
    """Return the loadable in a file.

    ``InputNotFound`` if the file does not exist; ``InputUnreadable`` if the file is unreadable or empty.
    """
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise InputNotFound(f"there is no loadable {path}", "Build a loadable with TensorRT: docs/dla.md.") from None
    except (OSError, ValueError) as error:
        message = f"the loadable {path} cannot be read: {getattr(error, 'strerror', None) or error}"
        raise InputUnreadable(message, "Check its permissions.") from None
    if not content:
        raise InputUnreadable(f"the loadable {path} is empty", "Build the loadable again with TensorRT: docs/dla.md.")
    return Blob.of(content)


class Network:
    """A loadable in its own session, with buffers for ``tasks_at_once`` tasks.

    Used by one thread at a time. ``Unsupported`` if the loadable does not have exactly one input, or does not load.
    """

    def __init__(self, session: AnySession, content: bytes, tasks_at_once: int) -> None:
        self._session = session
        self._module = session.load(content)
        if len(self._module.inputs) != 1:
            message = f"the loadable takes {len(self._module.inputs)} inputs instead of one"
            raise Unsupported(message, "Run a network with several inputs in a session: docs/dla.md.")
        self._tasks_at_once = tasks_at_once
        self._lanes = open_lanes(session, self._module, tasks_at_once)

    @property
    def device(self) -> int:
        """The number of the DLA on which the network runs."""
        return self._session.device

    @property
    def source(self) -> TensorDescriptor:
        """The descriptor of the network's only input."""
        return self._module.inputs[0]

    @property
    def results(self) -> tuple[TensorDescriptor, ...]:
        """The descriptors of the network's outputs."""
        return self._module.outputs

    @property
    def is_ready(self) -> bool:
        """Whether the network can be reused: no task is queued, and nothing has failed."""
        return self._session.state is DlaSessionState.IDLE

    @property
    def frames_at_once(self) -> int:
        """The most pictures that one call of ``run`` takes."""
        return self.source.n * self._tasks_at_once

    def run(self, memories: Sequence[NDArray[np.uint8]]) -> list[tuple[NDArray[Any], ...]]:
        """Run a task for each of ``memories`` (filled inputs), queued at once; return the outputs (n, c, h, w)."""
        return self._lanes.run(memories)

    def check_context(self, context: int) -> None:
        """Raise ``EngineUnfit`` unless ``context`` is the CUDA context of the network's DLA."""
        if not isinstance(self._session, HybridSession) or self._session.context != context:
            message = "the pictures are decoded on a GPU to which the DLA does not belong"
            raise EngineUnfit(message, "Use --dla-input host.")

    def run_filled(self, fills: Sequence[Fill]) -> list[tuple[NDArray[Any], ...]]:
        """Run one task for each input that a GPU fills, in hybrid mode; return the outputs, (n, c, h, w) each.

        Raises:
            UsageError: the network runs in standalone mode, without a GPU.
            DeviceError: an error of ``DlaSession`` or of filling an input.
        """
        if isinstance(self._lanes, SharedLanes):
            raise UsageError("a DLA in standalone mode takes no pictures from a GPU", "Use --dla-input host.")
        return self._lanes.run_filled(fills)

    def close(self) -> None:
        """Close the network's session; afterwards the network cannot run."""
        self._session.close()


class WarmNetworks:
    """The networks of this process, created on first use and kept for the next segment. Thread-safe."""

    def __init__(self, open_machine: Callable[[Timing, DlaMode], DlaHost] = open_host) -> None:
        self._open_machine = open_machine
        self._lock = threading.Lock()
        self._hosts: dict[tuple[DlaMode, Waiting], DlaHost] = {}
        self._idle: list[tuple[NetworkSettings, Network]] = []
        self._own: int | None = None
        self._in_use: Counter[int] = Counter()
        self._times_chosen: Counter[int] = Counter()
        self.created = 0  # networks loaded so far

    def keep_to(self, device: int) -> None:
        """Use only this DLA from now on, because the other DLAs of the machine belong to other processes."""
        self._own = device

    @contextmanager
    def acquire(self, settings: NetworkSettings, among: Sequence[int] | None = None) -> Iterator[Network]:
        """Provide a network inside a ``with`` block; afterwards the network is kept, unless it failed.

        The network runs on the least loaded DLA of ``among`` (None: all), or on the only DLA that the process uses.
        ``Unsupported`` if the network does not load, or there is no such DLA; ``DeviceError`` if the DLA fails, or has
        failed before in this process.
        """
        device = self._chosen(settings, among)
        network: Network | None = None
        try:
            network = self._taken(settings, device) or self._loaded(settings, device)
            yield network
        finally:
            self._take_back(settings, device, network)

    def close(self) -> None:
        """Close the idle networks, and the hosts if nothing is in use. Idempotent; never raises."""
        with self._lock:
            idle, self._idle = self._idle, []
            is_in_use = self._in_use.total() > 0
            hosts = [] if is_in_use else list(self._hosts.values())
            self._hosts = self._hosts if is_in_use else {}
        with suppress(CodecfleetError):  # the process ends anyway; the sessions have raised the error
            for _, network in idle:
                network.close()
            for host in hosts:
                host.close()

    def _chosen(self, settings: NetworkSettings, among: Sequence[int] | None) -> int:
        with self._lock:
            host = self._machine(settings)
            if self._own is not None:
                device = self._own
            else:
                allowed = range(host.count) if among is None else among
                # If none of the wanted DLAs exists, opening the first of them raises the error.
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
            with suppress(CodecfleetError):  # the session's user has already received the error
                network.close()

    def _taken(self, settings: NetworkSettings, device: int) -> Network | None:
        """Take an idle network that fits; close idle networks of the same DLA that have another loadable."""
        with self._lock:
            here = [(known, network) for known, network in self._idle if network.device == device]
            found = next((network for known, network in here if known == settings), None)
            others = [
                network for known, network in here if (known.loadable, known.mode) != (settings.loadable, settings.mode)
            ]
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
        """Return the host for these settings, opened if necessary. Call this with the lock held. Raises DeviceLost."""
        wanted = settings.mode, settings.waiting
        for host in self._hosts.values():
            if host.failure:
                raise DeviceLost(f"the DLAs of this process are lost: {host.failure}", "Restart the process.")
        if wanted not in self._hosts:
            limits = TimeLimits(task_s=settings.task_limit_s)
            self._hosts[wanted] = self._open_machine(Timing(limits=limits, waiting=settings.waiting), settings.mode)
        return self._hosts[wanted]


@shared_once
def warm_networks() -> WarmNetworks:
    """Return the networks of this process. They are closed in order before the process ends."""
    networks = WarmNetworks()
    atexit.register(networks.close)
    return networks

"""Test benches for DLA sessions: each implementation with memory, events and a network to try it on.

In a process that runs on the driver simulator they are NVIDIA's binding and the simulated library; else the fakes.
"""

import ctypes
import os
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codecfleet.actors.dla.cuda_calls import CudaCalls
from codecfleet.actors.dla.engine_session import Timing
from codecfleet.actors.dla.host import open_host
from codecfleet.actors.dla.hybrid import HybridSession
from codecfleet.actors.dla.session import DlaModule, DlaSession, DlaTask, Fence, Registration, Signal
from codecfleet.actors.dla.standalone import StandaloneSession, load_native_cudla
from codecfleet.testing.fake_cudla import FakeLoadable, FakeMachine, fake_tensor
from codecfleet.testing.fake_cudla_modules import FakeModules

SHAPE = (2, 3, 4, 5)
FENCE_WORDS = 6
NVSCI_BUFFER_BYTES = 1 << 16


class Network:
    """A network that means each channel: (2, 3, 4, 5) to (2, 3, 1, 1), doubled, plus one."""

    def __init__(self, *, simulated: bool) -> None:
        if simulated:
            from tests.driver_sim.loadable import Loadable, Operation, Tensor  # noqa: PLC0415 - only there

            tensors = (Tensor("frames", SHAPE),), (Tensor("means", (2, 3, 1, 1)),)
            self.loadable = Loadable(Operation.BOX_MEAN, *tensors, scale=2.0, bias=1.0).to_bytes()
        else:
            fake = FakeLoadable(fake_tensor("frames", SHAPE), fake_tensor("means", (2, 3, 1, 1)), 2.0, 1.0)
            self.loadable = fake.to_bytes()

    @staticmethod
    def expected(values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return what comes out."""
        return np.asarray(2 * values.astype(np.float64).mean(axis=(2, 3), keepdims=True) + 1, dtype=np.float32)


class DlaBench(ABC):
    """One implementation, and what a caller of it has to bring."""

    network: Network

    @abstractmethod
    def open(self, device: int = 0) -> DlaSession:
        """Open a session."""

    @abstractmethod
    def memory(self, session: DlaSession, size_bytes: int) -> int:
        """Return memory that the session can register."""

    @abstractmethod
    def write(self, session: DlaSession, memory: int, content: NDArray[np.uint8]) -> None:
        """Fill memory."""

    @abstractmethod
    def read(self, session: DlaSession, memory: int, size_bytes: int) -> NDArray[np.uint8]:
        """Return what memory holds."""

    @abstractmethod
    def task(
        self, session: DlaSession, module: DlaModule, source: tuple[Registration, ...], result: tuple[Registration, ...]
    ) -> DlaTask:
        """Return a task, with the events that its mode needs."""


class HybridBench(DlaBench):
    """Hybrid sessions over a host."""

    def __init__(self, modules: FakeModules | None) -> None:
        self.modules = modules
        self.network = Network(simulated=modules is None)
        environment: dict[str, str] = {}
        if modules is None:
            self.host = open_host()
            import cuda.bindings.driver as driver  # noqa: PLC0415, PLR0402 - only where it is wanted

            self._cuda = CudaCalls(driver)
        else:
            self.host = open_host(environment=environment, import_module=modules.import_module)
            self._cuda = CudaCalls(modules.driver)
        self._cuda.enter()

    def open(self, device: int = 0) -> HybridSession:
        """Open a session."""
        return self.host.open(device)

    def memory(self, session: DlaSession, size_bytes: int) -> int:
        """Allocate memory of CUDA's."""
        del session
        return self._cuda.allocate(size_bytes)

    def write(self, session: DlaSession, memory: int, content: NDArray[np.uint8]) -> None:
        """Copy in the session's stream."""
        assert isinstance(session, HybridSession)
        self._cuda.copy_in(memory, content.ctypes.data, content.nbytes, session.stream)
        self._cuda.wait_for(session.stream)

    def read(self, session: DlaSession, memory: int, size_bytes: int) -> NDArray[np.uint8]:
        """Copy in the session's stream."""
        assert isinstance(session, HybridSession)
        content = np.zeros(size_bytes, dtype=np.uint8)
        self._cuda.copy_out(content.ctypes.data, memory, size_bytes, session.stream)
        self._cuda.wait_for(session.stream)
        return content

    def task(
        self, session: DlaSession, module: DlaModule, source: tuple[Registration, ...], result: tuple[Registration, ...]
    ) -> DlaTask:
        """Return a task without events."""
        del session
        return DlaTask(module=module, inputs=source, outputs=result)


class StandaloneBench(DlaBench):
    """Standalone sessions; NvSci's part is played by the simulated library, or by plain memory."""

    def __init__(self, modules: FakeModules | None) -> None:
        self.modules = modules
        self.network = Network(simulated=modules is None)
        self._kept: list[Any] = []
        self._nvsci: Any = None
        if modules is None:
            self._native = load_native_cudla()
            self._nvsci = ctypes.CDLL("libcudla.so.1")
            for name in ("simNvSciBufAlloc", "simNvSciBufCpuPointer", "simNvSciSyncAlloc"):
                getattr(self._nvsci, name).restype = ctypes.c_void_p
        else:
            self._native = load_native_cudla(lambda _name: modules.library)

    def open(self, device: int = 0, timing: Timing | None = None) -> StandaloneSession:
        """Open a session."""
        return StandaloneSession(self._native, device, self._wait, timing)

    def memory(self, session: DlaSession, size_bytes: int) -> int:
        """Return an NvSciBufObj."""
        del session
        if self._nvsci is None:
            assert self.modules is not None
            return self.modules.machine.allocate(size_bytes)
        return int(self._nvsci.simNvSciBufAlloc(ctypes.c_size_t(size_bytes)))

    def write(self, session: DlaSession, memory: int, content: NDArray[np.uint8]) -> None:
        """Write through the processor's view of the buffer."""
        del session
        ctypes.memmove(self._cpu_pointer(memory), content.ctypes.data, content.nbytes)

    def read(self, session: DlaSession, memory: int, size_bytes: int) -> NDArray[np.uint8]:
        """Read through the processor's view of the buffer."""
        del session
        return np.frombuffer(ctypes.string_at(self._cpu_pointer(memory), size_bytes), dtype=np.uint8)

    def task(
        self, session: DlaSession, module: DlaModule, source: tuple[Registration, ...], result: tuple[Registration, ...]
    ) -> DlaTask:
        """Return a task that signals a sync object of its own."""
        assert isinstance(session, StandaloneSession)
        signal = Signal(session.register_semaphore(self.sync_object()), self.fence())
        return DlaTask(module=module, inputs=source, outputs=result, signal=signal)

    def sync_object(self) -> int:
        """Return an NvSciSyncObj."""
        if self._nvsci is not None:
            return int(self._nvsci.simNvSciSyncAlloc())
        self._kept.append(np.zeros(1, dtype=np.uint64))
        return int(self._kept[-1].ctypes.data)

    def fence(self) -> Fence:
        """Return an NvSciSyncFence that says nothing yet."""
        self._kept.append(np.zeros(FENCE_WORDS, dtype=np.uint64))
        return Fence(int(self._kept[-1].ctypes.data))

    def _wait(self, fence: Fence, seconds: float) -> bool:
        if self._nvsci is None:
            return ctypes.c_uint64.from_address(fence.address).value == 1
        limit_us = ctypes.c_int64(int(seconds * 1e6))
        return int(self._nvsci.simNvSciSyncFenceWait(ctypes.c_void_p(fence.address), limit_us)) == 0

    def _cpu_pointer(self, memory: int) -> int:
        if self._nvsci is None:
            return memory
        return int(self._nvsci.simNvSciBufCpuPointer(ctypes.c_void_p(memory)))


def make_bench(mode: str) -> DlaBench:
    """Return the bench of a mode: over the driver simulator if this process runs on it, else over fakes."""
    modules = None if "CODECFLEET_DRIVER_SIM" in os.environ else FakeModules(FakeMachine(dlas=2))
    return HybridBench(modules) if mode == "hybrid" else StandaloneBench(modules)


__all__ = ["SHAPE", "DlaBench", "HybridBench", "StandaloneBench", "make_bench"]

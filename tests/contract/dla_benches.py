"""A test bench for DLA sessions, with memory and a network for them.

In a process that runs on the driver simulator, it uses NVIDIA's binding and the simulated library; otherwise fakes,
which have only hybrid mode.
"""

import ctypes
import os
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from codecfleet.actors.dla.engine.cuda_calls import CudaCalls
from codecfleet.actors.dla.engine.host import open_host
from codecfleet.actors.dla.engine.hybrid import HybridSession
from codecfleet.actors.dla.engine.session import DlaSession
from codecfleet.actors.dla.engine.states import DlaMode
from codecfleet.actors.dla.engine.tasks import DlaTask
from codecfleet.actors.dla.inference.layout import pack
from codecfleet.actors.dla.nvsci.buffers import ALIGNMENT_BYTES, SciBuffers
from codecfleet.testing.nvidia.fake_cudla import FakeLoadable, FakeMachine, fake_tensor

SHAPE = (2, 3, 4, 5)


class Network:
    """A network that returns twice the mean of each channel, plus one: (2, 3, 4, 5) becomes (2, 3, 1, 1)."""

    def __init__(self, *, simulated: bool) -> None:
        if simulated:
            from tests.driver_sim.loadable import Loadable, Operation, Tensor

            tensors = (Tensor("frames", SHAPE),), (Tensor("means", (2, 3, 1, 1)),)
            self.loadable = Loadable(Operation.BOX_MEAN, *tensors, scale=2.0, bias=1.0).to_bytes()
        else:
            fake = FakeLoadable(fake_tensor("frames", SHAPE), fake_tensor("means", (2, 3, 1, 1)), 2.0, 1.0)
            self.loadable = fake.to_bytes()

    @staticmethod
    def expected(values: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.asarray(2 * values.astype(np.float64).mean(axis=(2, 3), keepdims=True) + 1, dtype=np.float32)


class DlaBench:
    """Sessions on a host, and what a caller of a session must bring: memory, and a network."""

    def __init__(self, machine: FakeMachine | None, mode: DlaMode) -> None:
        self.network = Network(simulated=machine is None)
        self.mode = mode
        self._machine = machine
        self._addresses: dict[int, int] = {}
        if machine is None:
            self.host = open_host(mode=mode)
        else:
            self.host = open_host(environment={}, import_module=machine.import_module)

    def open(self, device: int = 0) -> DlaSession:
        return self.host.open(device)

    def memory(self, size_bytes: int, alignment: int = ALIGNMENT_BYTES) -> int:
        if self.mode is DlaMode.HYBRID:
            return int(self._cuda.call("cuMemAlloc", size_bytes))
        buffers = SciBuffers()
        buffers.open()
        made = buffers.allocate(size_bytes, alignment)
        self._addresses[made.object] = made.address
        return made.object

    def stream(self) -> int:
        return int(self._cuda.call("cuStreamCreate", 1))

    def stream_waits(self) -> list[tuple[int, int]] | None:
        """Return, for each stream, which stream waited for its work; None if that is not recorded."""
        return None if self._machine is None else self._machine.stream_waits

    def managed_memory(self, size_bytes: int) -> int:
        return int(self._cuda.call("cuMemAllocManaged", size_bytes, 1))

    def write(self, session: DlaSession, memory: int, content: NDArray[np.uint8]) -> None:
        if isinstance(session, HybridSession):
            self._cuda.call("cuMemcpyHtoDAsync", memory, content.ctypes.data, content.nbytes, session.stream)
            self._cuda.call("cuStreamSynchronize", session.stream)
        else:
            ctypes.memmove(self._addresses[memory], content.ctypes.data, content.nbytes)

    def read(self, session: DlaSession, memory: int, size_bytes: int) -> NDArray[np.uint8]:
        content = np.zeros(size_bytes, dtype=np.uint8)
        if isinstance(session, HybridSession):
            self._cuda.call("cuMemcpyDtoHAsync", content.ctypes.data, memory, size_bytes, session.stream)
            self._cuda.call("cuStreamSynchronize", session.stream)
        else:
            ctypes.memmove(content.ctypes.data, self._addresses[memory], size_bytes)
        return content

    @cached_property
    def _cuda(self) -> CudaCalls:
        if self._machine is None:
            import cuda.bindings.driver as driver  # noqa: PLR0402 - imported only if needed

            cuda = CudaCalls(driver)
        else:
            cuda = CudaCalls(self._machine.import_module("cuda.bindings.driver"))
        cuda.enter()
        return cuda


def frames(seed: int = 0) -> NDArray[np.float32]:
    """Return an input for the network."""
    return np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32)


class Allocated:
    """The network in a session, and a task with buffers that the session allocated."""

    def __init__(self, bench: DlaBench, session: DlaSession) -> None:
        self.session = session
        self.module = session.load(bench.network.loadable)
        (self.source,), (self.result,) = self.module.inputs, self.module.outputs
        self.into, self.out = session.allocate(self.source.size_bytes), session.allocate(self.result.size_bytes)
        self.task = DlaTask(module=self.module, inputs=(self.into.registration,), outputs=(self.out.registration,))

    def queue(self, seed: int, memory: NDArray[np.uint8], stream: int | None = None) -> None:
        self.session.upload(self.into, pack(self.source, frames(seed)))
        self.session.submit([self.task], stream=stream)
        self.session.download(self.out, memory)


MODES = list(DlaMode) if "DRIVER_SIM" in os.environ else [DlaMode.HYBRID]


def make_bench(mode: DlaMode) -> DlaBench:
    """Return a bench on the driver simulator if this process runs on it, otherwise on fakes."""
    return DlaBench(None if "DRIVER_SIM" in os.environ else FakeMachine(dlas=2), mode)


__all__ = ["MODES", "SHAPE", "Allocated", "DlaBench", "frames", "make_bench"]

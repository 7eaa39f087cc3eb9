"""Runs a network over one segment: decodes the segment's range, and returns the frames' tensors in order."""

import socket
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ....errors import EngineFailed
from ...decode.decoding import SOFTWARE, DecodeRange
from ...device.work import Work, WorkContext
from ...media.timeline import is_increasing
from ...media.values import Colour
from ...segment.decode_path import DecodePath
from ...segment.walk import SegmentTally, SegmentWalk, decode_on_first
from ...surfaces.device_frame import DevicePicture
from ..engine.states import DlaMode
from ..engine.tasks import DeviceBuffer
from .device_input import ExactScaler, OpenFiller, TensorFiller, beside_gpu, open_filler
from .network import Network, NetworkSettings, WarmNetworks, warm_networks
from .pictures import PictureScaler, PixelRule, check_input, input_memory

if TYPE_CHECKING:
    from ...nvidia.gpu import Gpu


@dataclass(frozen=True, slots=True, eq=False)
class NamedTensor:
    """One output of the network for all frames of a segment: (frames, channels, rows, columns)."""

    name: str
    values: NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InferredSegment:
    """The network's outputs for all frames of one segment, in order of presentation."""

    segment: int
    pts_ticks: NDArray[np.int64]  # presentation times in ticks of the source
    tensors: tuple[NamedTensor, ...]
    tally: SegmentTally
    host: str
    device: int  # the DLA's number on ``host``
    infer_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InferSegment(Work[InferredSegment]):
    """Run a network over the frames of ``decode`` whose time is in [``start_ticks``, ``end_ticks``).

    In hybrid mode NVDEC decodes, if the machine has NVDEC, and the pictures are copied to the host. With ``on_device``
    the pictures stay on the GPU, which converts them in the DLA's stream (``device_input``). Without NVDEC the host
    computes the same tensors.
    """

    segment: int
    decode: DecodeRange
    start_ticks: int | None  # None means no bound
    end_ticks: int | None
    network: NetworkSettings
    dlas: tuple[int, ...] | None = None  # the numbers of the DLAs that may run the network, None for all DLAs
    rule: PixelRule = field(default_factory=PixelRule)
    on_device: bool = False
    colour: Colour | None = None  # None means each picture's own colours
    networks: Callable[[], WarmNetworks] = warm_networks
    gpu: "Callable[[], Gpu]" = beside_gpu
    filler: OpenFiller = open_filler

    @property
    def file(self) -> str:
        """The path or address of the source."""
        return self.decode.source

    def run(self, context: WorkContext) -> InferredSegment:
        """Run in the calling thread; after a ``DeviceError`` this process must use no DLA again."""
        with self.networks().acquire(self.network, self.dlas) as network:
            check_input(network.source)
            paths = self._paths()
            done = context.frames_done
            return decode_on_first(
                paths,
                lambda path, fallback: self._ran(path, fallback, network, context),
                lambda _error: context.start_over(done),
            )

    def _paths(self) -> tuple[DecodePath[Any], ...]:
        """Return the ways to decode, which give the same tensors; the best is first."""
        in_software = DecodePath(SOFTWARE)
        if self.network.mode is DlaMode.STANDALONE:
            return (in_software,)
        gpu = self.gpu()
        return (DecodePath(gpu.surfaces, gpu) if self.on_device else DecodePath(gpu.pictures)), in_software

    def _ran(self, path: DecodePath[Any], fallback: str, network: Network, context: WorkContext) -> InferredSegment:
        if path.device is None:
            scaler = ExactScaler(network.source, self.colour) if self.on_device else PictureScaler(network.source)
            return _Run(
                self, network, context, path, fallback=fallback, source=_HostInput(network, scaler, self.rule)
            ).result()
        with closing(_GpuInput(self, network)) as source:
            return _Run(self, network, context, path, fallback=fallback, source=source).result()


class _Input(Protocol):
    """How pictures become a network's inputs."""

    def made(self, picture: Any) -> Any:
        """Return a decoded picture in the form in which it is kept until its task is queued."""

    def run(self, batches: Sequence[Sequence[Any]]) -> list[tuple[NDArray[Any], ...]]:
        """Run a task for each batch of the pictures; return the outputs."""


class _HostInput:
    def __init__(self, network: Network, scaler: PictureScaler | ExactScaler, rule: PixelRule) -> None:
        self._network, self._rule = network, rule
        self.made = scaler.scaled

    def run(self, batches: Sequence[Sequence[NDArray[np.uint8]]]) -> list[tuple[NDArray[Any], ...]]:
        return self._network.run([input_memory(self._network.source, batch, self._rule) for batch in batches])


class _GpuInput:
    """Pictures that stay on the GPU, from NVDEC through the kernels to the DLA."""

    def __init__(self, work: InferSegment, network: Network) -> None:
        self._work, self._network = work, network
        self._opened: TensorFiller | None = None

    def made(self, picture: DevicePicture) -> DevicePicture:
        return self._filler().prepare(picture)

    def run(self, batches: Sequence[Sequence[DevicePicture]]) -> list[tuple[NDArray[Any], ...]]:
        return self._network.run_filled([partial(self._fill, batch) for batch in batches])

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    def _fill(self, batch: Sequence[DevicePicture], buffer: DeviceBuffer, stream: int) -> None:
        for place in range(self._network.source.n):
            # The last picture pads the batch.
            self._filler().begin(batch[min(place, len(batch) - 1)], buffer.memory, place, stream)

    def _filler(self) -> TensorFiller:
        """Return the filler of tensors, which is opened for the first picture; may raise ``EngineUnfit``."""
        if self._opened is None:
            gpu = self._work.gpu().opened()
            self._network.check_context(gpu.cuda.context)
            self._opened = self._work.filler(gpu, self._network.source, self._work.rule, self._work.colour)
        return self._opened


class _Run:
    def __init__(
        self,
        work: InferSegment,
        network: Network,
        context: WorkContext,
        path: DecodePath[Any],
        *,
        fallback: str,
        source: _Input,
    ) -> None:
        self._work = work
        self._network = network
        self._context = context
        self._source = source
        self._walk = SegmentWalk(
            work.decode,
            (work.start_ticks, work.end_ticks),
            path,
            fallback,
            make=lambda ticks, picture: [(ticks, source.made(picture))],
            seen=partial(context.advance, 0),
        )
        self._pictures: list[Any] = []
        self._found: list[list[NDArray[Any]]] = [[] for _ in network.results]
        self._infer_s = 0.0

    def result(self) -> InferredSegment:
        with closing(self._walk.results()) as pictures:
            for _, picture in pictures:
                self._pictures.append(picture)
                if len(self._pictures) == self._network.frames_at_once:
                    self._infer()
        if self._pictures:
            self._infer()
        self._check()
        return self._packed()

    def _infer(self) -> None:
        """Run the network over the waiting pictures, and keep the outputs, except those of padding."""
        began = time.perf_counter()
        source = self._network.source
        batches = [self._pictures[i : i + source.n] for i in range(0, len(self._pictures), source.n)]
        for batch, outputs in zip(batches, self._source.run(batches), strict=True):
            for kept, output in zip(self._found, outputs, strict=True):
                kept.append(output[: len(batch)] if len(output) == source.n else output)
        self._infer_s += time.perf_counter() - began
        self._context.advance(len(self._pictures))
        self._pictures = []

    def _check(self) -> None:
        for descriptor, arrays in zip(self._network.results, self._found, strict=True):
            count = sum(len(array) for array in arrays)
            if count != len(self._walk.taken):
                message = f"{len(self._walk.taken)} frames gave {count} entries of the tensor {descriptor.name}"
                raise EngineFailed(message, "The loadable must have one output for each picture of its input.")
        if not is_increasing(self._walk.taken):
            message = f"segment {self._work.segment}: two frames share one presentation time"
            raise EngineFailed(message, "Please report this with the input.")

    def _packed(self) -> InferredSegment:
        tensors = []
        for descriptor, arrays in zip(self._network.results, self._found, strict=True):
            empty = np.zeros((0, *descriptor.shape[1:]), dtype=descriptor.data_type.dtype)
            tensors.append(NamedTensor(descriptor.name, np.concatenate(arrays) if arrays else empty))
        return InferredSegment(
            segment=self._work.segment,
            pts_ticks=np.array(self._walk.taken, dtype=np.int64),
            tensors=tuple(tensors),
            tally=self._walk.tally(),
            host=socket.gethostname(),
            device=self._network.device,
            infer_s=self._infer_s,
        )

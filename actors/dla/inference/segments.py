"""Inference over one segment: decode its range, run the network over the frames inside it, return tensors in order."""

import socket
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....errors import EngineFailed
from ...decode.decoding import SOFTWARE, DecodeRange
from ...device.work import Work, WorkContext
from ...media.timeline import is_increasing
from ...segment.decode_path import DecodePath
from ...segment.walk import SegmentTally, SegmentWalk
from .network import Network, NetworkSettings, WarmNetworks, warm_networks
from .pictures import PictureScaler, PixelRule, check_input, input_memory


@dataclass(frozen=True, slots=True, eq=False)
class NamedTensor:
    """One output of the network over a segment: (frames, channels, rows, columns)."""

    name: str
    values: NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InferredSegment:
    """What the network said of one segment: an entry for each frame, in order of presentation.

    Times are ticks of the source. ``device`` is the DLA's number on the machine called ``host``.
    """

    segment: int
    pts_ticks: NDArray[np.int64]
    tensors: tuple[NamedTensor, ...]
    tally: SegmentTally
    host: str
    device: int
    infer_s: float
    wall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InferSegment(Work[InferredSegment]):
    """Run a network over the frames of ``decode`` whose time lies in [``start_ticks``, ``end_ticks``).

    None is unbounded. ``dlas`` are numbers of DLAs that it may run on, None for all; a worker process that has a DLA of
    its own uses that. ``networks`` gives the networks of the process that it runs in.
    """

    segment: int
    decode: DecodeRange
    start_ticks: int | None
    end_ticks: int | None
    network: NetworkSettings
    dlas: tuple[int, ...] | None = None
    rule: PixelRule = field(default_factory=PixelRule)
    networks: Callable[[], WarmNetworks] = warm_networks

    @property
    def file(self) -> str:
        """Name its source."""
        return self.decode.source

    def run(self, context: WorkContext) -> InferredSegment:
        """Run in the calling thread.

        Raises:
            InputError: the source cannot be read.
            Unsupported: the loadable cannot run here, or not over pictures.
            DeviceError: the DLA failed; this process is not to be used for it again.
            Cancelled: somebody cancelled the work.
        """
        with self.networks().acquire(self.network, self.dlas) as network:
            check_input(network.source)
            return _Run(self, network, context).result()


class _Run:
    """The state of one run of one segment."""

    def __init__(self, work: InferSegment, network: Network, context: WorkContext) -> None:
        self._work = work
        self._network = network
        self._context = context
        scaler = PictureScaler(network.source)
        self._walk = SegmentWalk(
            work.decode,
            (work.start_ticks, work.end_ticks),
            DecodePath(SOFTWARE),
            make=lambda ticks, frame: [(ticks, scaler.scaled(frame))],
            seen=partial(context.advance, 0),
        )
        self._pictures: list[NDArray[np.uint8]] = []
        self._found: list[list[NDArray[Any]]] = [[] for _ in network.results]
        self._infer_s = 0.0

    def result(self) -> InferredSegment:
        began = time.perf_counter()
        with closing(self._walk.results()) as pictures:
            for _, picture in pictures:
                self._pictures.append(picture)
                if len(self._pictures) == self._network.frames_at_once:
                    self._infer()
        if self._pictures:
            self._infer()
        self._check()
        return self._packed(time.perf_counter() - began)

    def _infer(self) -> None:
        """Run the network over the pictures that wait, and keep what it says of them; of padding, nothing."""
        began = time.perf_counter()
        source = self._network.source
        batches = [self._pictures[i : i + source.n] for i in range(0, len(self._pictures), source.n)]
        memories = [input_memory(source, batch, self._work.rule) for batch in batches]
        for batch, outputs in zip(batches, self._network.run(memories), strict=True):
            for kept, output in zip(self._found, outputs, strict=True):
                kept.append(output[: len(batch)] if len(output) == source.n else output)
        self._infer_s += time.perf_counter() - began
        self._context.advance(len(self._pictures))
        self._pictures = []

    def _check(self) -> None:
        for descriptor, arrays in zip(self._network.results, self._found, strict=True):
            count = sum(len(array) for array in arrays)
            if count != len(self._walk.taken):
                message = f"{len(self._walk.taken)} frames gave {count} of the tensor {descriptor.name}"
                raise EngineFailed(message, "The loadable must have one output for each picture of its input.")
        if not is_increasing(self._walk.taken):
            message = f"segment {self._work.segment}: two frames share one presentation time"
            raise EngineFailed(message, "Please report it with the input.")

    def _packed(self, wall_s: float) -> InferredSegment:
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
            wall_s=wall_s,
        )

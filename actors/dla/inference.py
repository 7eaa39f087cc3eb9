"""Inference over one segment: decode its range, run the network over the frames inside it, return tensors in order."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from ...errors import EngineFailed
from ..decoding import SOFTWARE, DecodeRange, DecodeTally, PictureHash, decode_range, picture_hash
from ..read_ahead import read_ahead
from ..segment import READ_AHEAD_FRAMES, SEAM_FRAMES
from ..timeline import is_increasing
from ..work import Work, WorkContext
from .network import Network, NetworkSettings, WarmNetworks, warm_networks
from .pictures import PictureScaler, PixelRule, check_input, input_memory

__all__ = ["InferSegment", "InferredSegment", "NamedTensor"]


@dataclass(frozen=True, slots=True, eq=False)
class NamedTensor:
    """One output of the network over a segment: (frames, channels, rows, columns)."""

    name: str
    values: NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InferredSegment:
    """What the network said of one segment: an entry for each frame, in order of presentation.

    Times are ticks of the source. Seams are as in ``EncodedSegment``. ``device`` is the DLA's number on the machine
    called ``host``.
    """

    segment: int
    pts_ticks: NDArray[np.int64]
    tensors: tuple[NamedTensor, ...]
    seam_before: tuple[PictureHash, ...]
    seam_after: tuple[PictureHash, ...]
    failed_packets: int
    corrupt_frames: int
    first_damaged_packet: int | None
    host: str
    device: int
    decode_s: float
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

    def run(self, context: WorkContext) -> InferredSegment:
        """Run in the calling thread.

        Raises:
            InputError: the source cannot be read.
            Unsupported: the loadable cannot run here, or not over pictures.
            DeviceError: the DLA failed; this process is not to be used for it again.
            Cancelled: somebody cancelled the work.
        """
        with self.networks().lend(self.network, self.dlas) as network:
            check_input(network.source)
            return _Run(self, network, context).result()

    def is_past_start(self, ticks: int) -> bool:
        """Tell whether ``ticks`` is at or after the segment's start."""
        return self.start_ticks is None or ticks >= self.start_ticks

    def is_past_end(self, ticks: int) -> bool:
        """Tell whether ``ticks`` is at or after the segment's end."""
        return self.end_ticks is not None and ticks >= self.end_ticks


class _Run:
    """The state of one run of one segment."""

    def __init__(self, work: InferSegment, network: Network, context: WorkContext) -> None:
        self._work = work
        self._network = network
        self._context = context
        self._tally = DecodeTally()
        self._ticks: list[int] = []
        self._before: list[PictureHash] = []
        self._after: list[PictureHash] = []
        self._pictures: list[NDArray[np.uint8]] = []
        self._found: list[list[NDArray[Any]]] = [[] for _ in network.results]
        self._infer_s = 0.0

    def result(self) -> InferredSegment:
        began = time.perf_counter()
        scaler = PictureScaler(self._network.source)
        with closing(read_ahead(decode_range(self._work.decode, self._tally, SOFTWARE), READ_AHEAD_FRAMES)) as decoded:
            for ticks, frame in self._own(decoded):
                self._ticks.append(ticks)
                self._pictures.append(scaler.scaled(frame))
                if len(self._pictures) == self._network.frames_at_once:
                    self._infer()
        if self._pictures:
            self._infer()
        self._check()
        return self._packed(time.perf_counter() - began)

    def _own(self, decoded: Iterator[tuple[int, VideoFrame]]) -> Iterator[tuple[int, VideoFrame]]:
        """Yield the frames of the segment, and hash the pictures at both seams."""
        for ticks, frame in decoded:
            self._context.advance(0)
            if not self._work.is_past_start(ticks):
                continue
            if len(self._before) < SEAM_FRAMES:
                self._before.append(picture_hash(ticks, frame))
            if not self._work.is_past_end(ticks):
                yield ticks, frame
            elif len(self._after) < SEAM_FRAMES:
                self._after.append(picture_hash(ticks, frame))

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
            if count != len(self._ticks):
                message = f"{len(self._ticks)} frames gave {count} of the tensor {descriptor.name}"
                raise EngineFailed(message, "The loadable must have one output for each picture of its input.")
        if not is_increasing(self._ticks):
            message = f"segment {self._work.segment}: two frames share one presentation time"
            raise EngineFailed(message, "Please report it with the input.")

    def _packed(self, wall_s: float) -> InferredSegment:
        tensors = (
            NamedTensor(descriptor.name, _joined(arrays, (0, *descriptor.shape[1:]), descriptor.data_type.dtype))
            for descriptor, arrays in zip(self._network.results, self._found, strict=True)
        )
        return InferredSegment(
            segment=self._work.segment,
            pts_ticks=np.array(self._ticks, dtype=np.int64),
            tensors=tuple(tensors),
            seam_before=tuple(self._before),
            seam_after=tuple(self._after),
            failed_packets=self._tally.failed_packets,
            corrupt_frames=self._tally.corrupt_frames,
            first_damaged_packet=self._tally.first_damaged_packet,
            host=socket.gethostname(),
            device=self._network.device,
            decode_s=self._tally.decode_s,
            infer_s=self._infer_s,
            wall_s=wall_s,
        )


def _joined(arrays: list[NDArray[Any]], shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.zeros(shape, dtype=dtype)

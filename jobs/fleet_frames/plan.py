"""What is submitted for a selection's batches: pure, from the source's index."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...actors.media.location import name_of
from ...actors.tensors.tensor_format import TensorFormat
from ...cluster.placement.model import Demand, EncoderChoice
from ...cluster.probes.report import Direction
from ...errors import UsageError, redacted
from ..frames.request import FrameRequest
from ..frames.selection import PartFrames
from ..frames.source import FrameSource
from ..plan.placing import CPU_ONLY, INTERLACED_IN_SOFTWARE, media_case
from .work import FRAMES_AT_ONCE, MakeBatches

MOST_BYTES: Final = 64 << 20  #: Of what crosses at once: a batch, or several that are made together
WASTE: Final = 4  #: Beginning anew may decode one picture again for so many that were decoded


@dataclass(frozen=True, slots=True)
class BatchPiece:
    """Batches that are made together: the frames [``begin``, ``end``) of a selection."""

    begin: int
    end: int
    pictures: int  #: to decode for them


class Pieces:
    """Divides a selection's batches into pieces, each of at most ``most`` frames or one batch.

    Batches that share a group of pictures are made together, unless decoding its beginning again is cheap.
    """

    def __init__(self, part: PartFrames, numbers: NDArray[np.int64], frames: int, most: int) -> None:
        self._numbers, self._group_of = numbers, part.group_of
        self._frames, self._most = frames, most
        _, self._firsts, counts = np.unique(part.group_of, return_index=True, return_counts=True)
        self._whole = counts if part.is_counted else None  # pictures that are counted are decoded from first to last

    def __iter__(self) -> Iterator[BatchPiece]:
        begin, decoded = 0, dict[int, int]()
        for place in range(0, len(self._numbers), self._frames):
            needed = self._decoded(place)
            again = sum(min(pictures, decoded.get(group, 0)) for group, pictures in needed.items())
            is_full = place + self._frames - begin > self._most
            if place > begin and (is_full or again * WASTE <= sum(decoded.values())):
                yield BatchPiece(begin, place, sum(decoded.values()))
                begin, decoded = place, {}
            for group, pictures in needed.items():
                decoded[group] = max(pictures, decoded.get(group, 0))
        if len(self._numbers):
            yield BatchPiece(begin, len(self._numbers), sum(decoded.values()))

    def _decoded(self, place: int) -> dict[int, int]:
        """Return how many pictures of each group are decoded for the batch that begins at ``place``."""
        found = dict[int, int]()
        for number in self._numbers[place : place + self._frames].tolist():
            group = int(self._group_of[number])
            pictures = number - int(self._firsts[group]) + 1 if self._whole is None else int(self._whole[group])
            found[group] = max(pictures, found.get(group, 0))
        return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchPlan:
    """The batches of a selection: what each piece asks of a worker, and the whole of a fleet."""

    job: str
    film: str  #: names the film on workers
    request: FrameRequest
    source: FrameSource
    positions: Sequence[int]
    frames: int
    format: TensorFormat

    @property
    def frame_bytes(self) -> int:
        """How many bytes a frame has in a tensor. Raises UsageError: the crop exceeds a frame."""
        width, height = self.format.target(self.source.format.width, self.source.format.height)
        return width * height * self.format.channels * self.format.element_bytes

    def check(self) -> None:
        """Raise UsageError if a batch is too large to cross."""
        size_bytes = min(self.frames, len(self.positions)) * self.frame_bytes
        if size_bytes > MOST_BYTES:
            fitting = MOST_BYTES // self.frame_bytes
            message = f"a batch of {self.frames} frames has {size_bytes >> 20} MiB, and a fleet's at most 64"
            advice = f"Ask for up to {fitting} frames, or give" if fitting else "Give"
            raise UsageError(message, f"{advice} TensorFormat a smaller size.")

    def pieces(self) -> Iterator[BatchPiece]:
        """Return what is submitted, in order."""
        numbers = np.array(self.positions, dtype=np.int64) * self.request.every
        return iter(Pieces(self.source.part, numbers, self.frames, MOST_BYTES // self.frame_bytes))

    def demand(self, pictures: Sequence[int]) -> Demand:
        """Return the demand of pieces with these numbers of pictures."""
        format_, extras = self.source.reading.described()
        software = INTERLACED_IN_SOFTWARE if format_.interlaced else extras.device_unsupported_reason
        return Demand(
            job=self.job,
            segments=tuple(pictures),
            decode=media_case(self.source.part.ranges.index.codec, Direction.DECODE, format_.pix_fmt),
            width=format_.width,
            height=format_.height,
            renditions=(),
            encoder=EncoderChoice.SOFTWARE,
            software_decode=CPU_ONLY if self.request.decoder == "software" else software,
            needs_gpu=self.request.decoder == "nvdec",
            has_filters=True,
            filter_bytes=FRAMES_AT_ONCE * self.source.frame_bytes + MOST_BYTES,
            frames_total=len(self.positions),
            title=name_of(redacted(self.request.source)),
        )

    def work(self, piece: BatchPiece) -> MakeBatches:
        """Return a piece's work, without the film's reading."""
        return MakeBatches(
            job=self.job,
            label=f"batches {piece.begin // self.frames} to {(piece.end - 1) // self.frames}",
            film=self.film,
            request=self.request,
            version=self.source.stamp.anywhere,
            positions=tuple(self.positions[piece.begin : piece.end]),
            frames=self.frames,
            format=self.format,
        )

"""Plans the work for a selection's batches from the source's index. Pure."""

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
from ..frames.source import FrameSource
from ..plan.placing import CPU_ONLY, INTERLACED_IN_SOFTWARE, media_case
from .work import AHEAD_BYTES, MakeBatches

MOST_BYTES: Final = 64 << 20  #: The largest size of one result: a batch, or the batches that are made together
WASTE: Final = 4  #: A piece may decode pictures again, up to 1 / ``WASTE`` of the previous piece's pictures


@dataclass(frozen=True, slots=True)
class BatchPiece:
    """Batches that are made together: the frames [``begin``, ``end``) of a selection."""

    begin: int
    end: int
    pictures: int  #: how many pictures are decoded for these batches


def pieces_of(
    numbers: NDArray[np.int64], group_of: Sequence[int], *, frames: int, most: int, whole: bool
) -> Iterator[BatchPiece]:
    """Divide batches of ``frames`` frames into pieces; a piece has at most ``most`` frames, or a single batch.

    Batches that share a group of pictures are made together, unless decoding the group's beginning again is cheap.
    ``numbers`` are the chosen frames' numbers in the film, ``group_of`` has the group of each frame of the film. With
    ``whole``, groups are decoded to their end.
    """
    _, firsts, counts = np.unique(group_of, return_index=True, return_counts=True)
    begin, decoded = 0, dict[int, int]()
    for place in range(0, len(numbers), frames):
        needed = dict[int, int]()
        for number in numbers[place : place + frames].tolist():
            group = group_of[number]
            needed[group] = max(needed.get(group, 0), int(counts[group] if whole else number - firsts[group] + 1))
        again = sum(min(pictures, decoded.get(group, 0)) for group, pictures in needed.items())
        is_full = min(place + frames, len(numbers)) - begin > most
        if place > begin and (is_full or again * WASTE <= sum(decoded.values())):
            yield BatchPiece(begin, place, sum(decoded.values()))
            begin, decoded = place, {}
        decoded |= {group: max(pictures, decoded.get(group, 0)) for group, pictures in needed.items()}
    if len(numbers):
        yield BatchPiece(begin, len(numbers), sum(decoded.values()))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchPlan:
    """The batches of a selection: the work of each piece, and the demand of all pieces."""

    job: str
    film: str  #: the name by which workers know the film
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
        """Raise UsageError if a batch is too large to send."""
        frames = min(self.frames, len(self.positions))
        size_bytes = frames * self.frame_bytes
        if size_bytes > MOST_BYTES:
            fitting = MOST_BYTES // self.frame_bytes
            message = f"a batch of {frames} frames has {size_bytes >> 20} MiB, and a fleet's batches have at most 64"
            advice = f"Ask for up to {fitting} frames, or give" if fitting else "Give"
            raise UsageError(message, f"{advice} TensorFormat a smaller size.")

    def pieces(self) -> Iterator[BatchPiece]:
        """Yield the pieces of the selection, in order; each becomes one work item."""
        part = self.source.part
        numbers = np.array(self.positions, dtype=np.int64) * self.request.every
        most = MOST_BYTES // self.frame_bytes
        return pieces_of(numbers, part.group_of, frames=self.frames, most=most, whole=part.is_counted)

    def demand(self, pictures: Sequence[int]) -> Demand:
        """Return the demand of pieces that have these numbers of pictures."""
        format_, extras = self.source.reading.described()
        software = INTERLACED_IN_SOFTWARE if format_.interlaced else extras.device_unsupported_reason
        frames = min(len(self.positions), max(self.frames, MOST_BYTES // self.frame_bytes))  # the most in any piece
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
            filter_bytes=min(AHEAD_BYTES, frames * self.source.frame_bytes) + frames * self.frame_bytes,
            frames_total=len(self.positions),
            title=name_of(redacted(self.request.source)),
        )

    def work(self, piece: BatchPiece) -> MakeBatches:
        """Return a piece's work, without the film's ``reading``."""
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

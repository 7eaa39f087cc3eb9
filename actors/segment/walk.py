"""Walks over a segment's pictures for encoding, frames and inference: decodes them on one path, and hashes both seams.

If a device fails, the next path decodes the segment from its beginning, since good pictures may refer to wrong
pictures.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from ...errors import DeviceError, DeviceMemory, EngineBusy, EngineFailed, EngineUnfit, SessionLimit
from ..decode.decoding import SOFTWARE, DecodeRange, DecodeTally, PictureT, decode_range
from ..decode.picture_hash import PictureHash, picture_hash
from ..decode.read_ahead import read_ahead
from ..media.timeline import RepairedTime
from .decode_path import DecodePath
from .filtering import LOOK_AHEAD_FRAMES

_FALLS_BACK: Final = (DeviceMemory, EngineBusy, EngineFailed, EngineUnfit, SessionLimit)
"""The errors after which the next path is tried; any other error means that the device, process or source is lost."""
NAMED_DAMAGED_FRAMES: Final = 16
"""How many damaged pictures of a segment are listed by time; all of them are counted."""
READ_AHEAD_FRAMES: Final = 4
"""How many decoded pictures are buffered, so that decoding and encoding rarely wait for each other."""
_FEW_FRAMES: Final = 32
"""For fewer pictures than this, a thread costs more than it saves."""
SEAM_FRAMES: Final = LOOK_AHEAD_FRAMES
"""How many pictures after a cut are hashed by both segments: the number that a filter with memory looks ahead."""

MadeT = TypeVar("MadeT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTally:
    """Counts of a walk over a segment. Times are ticks of the source, or wall seconds."""

    frames: int = 0
    seam_before: tuple[PictureHash, ...] = ()  # the first source pictures at or after the segment's start
    seam_after: tuple[PictureHash, ...] = ()  # the first source pictures at or after the segment's end
    first_ticks: int | None = None  # the time of the first frame
    last_ticks: int | None = None  # the time of the last frame
    failed_packets: int = 0
    corrupt_frames: int = 0
    damaged_ticks: tuple[int, ...] = ()  # times of the first ``NAMED_DAMAGED_FRAMES`` corrupt frames
    first_damaged_packet: int | None = None
    repaired: RepairedTime = field(default_factory=RepairedTime)
    decode_s: float = 0.0
    decoded_by: str = SOFTWARE.name
    fallback: str = ""  # why the device did not decode the segment

    @property
    def damaged(self) -> bool:
        """Whether decoding found damage."""
        return self.first_damaged_packet is not None


class _GaveUp(Exception):
    """A path's decoder failed; the next path may succeed."""

    def __init__(self, error: DeviceError) -> None:
        super().__init__(error.message)
        self.error = error


class SegmentWalk(Generic[PictureT, MadeT]):
    """One walk over a segment on one path. Used once, by one thread.

    Args:
        range_: the packets to decode.
        interval: the segment's time [start, end), in ticks; None is unbounded.
        path: the decoder and its memory.
        fallback: why no better path is used.
        make: turns (ticks, picture) into results (ticks, made).
        finish: yields the results that ``make`` still holds at the end.
        seen: is called after each decoded picture; its exceptions end the walk.
        neighbours: whether ``make`` also needs the pictures around the segment, for filters with memory.
        leads: whether the last picture before the segment, which may still be shown when it starts, is a result too.
        follows: whether the pictures of the seam after the segment are results too.
        in_thread: whether another thread decodes ahead.
        seams: whether the first pictures of the segment, and the first pictures after it, are hashed.
    """

    def __init__(
        self,
        range_: DecodeRange,
        interval: tuple[int | None, int | None],
        path: DecodePath[PictureT],
        fallback: str = "",
        *,
        make: Callable[[int, PictureT], Iterable[tuple[int, MadeT]]],
        finish: Callable[[], Iterable[tuple[int, MadeT]]] = tuple,
        seen: Callable[[], object],
        neighbours: bool = False,
        leads: bool = False,
        follows: bool = False,
        in_thread: bool = True,
        seams: bool = True,
    ) -> None:
        self._range = range_
        self._interval = interval
        self._path = path
        self._fallback = fallback
        self._make = make
        self._finish = finish
        self._seen = seen
        self._neighbours = neighbours
        self._leads = leads
        self._follows = follows
        self._in_thread = in_thread
        self._seam_frames = SEAM_FRAMES if seams else 0
        self.met = DecodeTally()
        self.before: list[PictureHash] = []
        self.after: list[PictureHash] = []
        self.taken: list[int] = []

    def results(self) -> Generator[tuple[int, MadeT]]:
        """Yield the segment's (ticks, made), in order; close the generator if you do not read it to the end."""
        neighbours = self._neighbours
        try:
            with closing(self._pictures()) as pictures:
                for ticks, picture in pictures:
                    for made in self._make(ticks, picture):
                        if not neighbours or self._gives(made[0]):
                            yield made
                yield from (made for made in self._finish() if self._gives(made[0]))
        except _FALLS_BACK as error:
            raise _GaveUp(error) from error

    def tally(self) -> SegmentTally:
        """Return the counts, which are complete once ``results`` was read to the end."""
        met = self.met
        damaged_ticks = [ticks for ticks in met.damaged_ticks if self._holds(ticks)]
        return SegmentTally(
            frames=len(self.taken),
            seam_before=tuple(self.before),
            seam_after=tuple(self.after),
            first_ticks=self.taken[0] if self.taken else None,
            last_ticks=self.taken[-1] if self.taken else None,
            failed_packets=met.failed_packets,
            corrupt_frames=len(damaged_ticks),
            damaged_ticks=tuple(damaged_ticks[:NAMED_DAMAGED_FRAMES]),
            first_damaged_packet=met.first_damaged_packet,
            repaired=met.repaired,
            decode_s=met.decode_s,
            decoded_by=self._path.decoder.name,
            fallback=self._fallback,
        )

    def _pictures(self) -> Generator[tuple[int, PictureT]]:
        """Yield the source pictures that ``make`` needs, and hash the pictures at both seams."""
        (start, end), seen, taken = self._interval, self._seen, self.taken
        lead: list[tuple[int, PictureT]] = []
        decoded = decode_range(self._range, self.met, self._path.decoder)
        if self._in_thread and len(self._range.expected_ticks) > _FEW_FRAMES:
            decoded = read_ahead(decoded, READ_AHEAD_FRAMES)
        with ExitStack() as stack, closing(decoded):
            hashed = _hash_on(self._path, stack)
            for ticks, picture in decoded:
                seen()
                if start is not None and ticks < start:
                    if self._neighbours:
                        yield ticks, picture
                    elif self._leads:
                        lead = [(ticks, picture)]
                    continue
                yield from lead
                lead = []
                if len(self.before) < self._seam_frames:
                    self.before.append(hashed(ticks, picture))
                if end is None or ticks < end:
                    taken.append(ticks)
                    yield ticks, picture
                elif len(self.after) < self._seam_frames:
                    self.after.append(hashed(ticks, picture))
                    if self._neighbours or self._follows:
                        yield ticks, picture
            yield from lead

    def _gives(self, ticks: int) -> bool:
        if self._holds(ticks):
            return True
        end = self._interval[1]
        return self._leads if end is None or ticks < end else self._follows

    def _holds(self, ticks: int) -> bool:
        start, end = self._interval
        return (start is None or ticks >= start) and (end is None or ticks < end)


def _hash_on(path: DecodePath[PictureT], stack: ExitStack) -> Callable[[int, Any], PictureHash]:
    """Return a hash function for a path's pictures, whose result does not depend on the kind of memory.

    ``stack`` later closes what the function opens.
    """
    if path.device is None:
        return picture_hash
    mover = stack.enter_context(closing(path.device.open_mover()))
    return lambda ticks, picture: picture_hash(ticks, mover.to_host(picture))


def decode_on_first(
    paths: Iterable[DecodePath[Any]],
    decode: Callable[[DecodePath[Any], str], ResultT],
    start_over: Callable[[DeviceError], object] = bool,
) -> ResultT:
    """Return the result of ``decode`` on the first path whose decoder does not fail; ``paths`` is not empty.

    ``decode`` gets the reason why the previous path failed; ``start_over`` gets the error. Raises ``DeviceError`` if
    the last path fails or the device is lost, and any error of ``decode``.
    """
    left = deque(paths)
    fallback = left[0].reason
    while True:
        try:
            return decode(left.popleft(), fallback)
        except _GaveUp as gave_up:
            if not left:
                raise gave_up.error from gave_up.error.__cause__
            error = gave_up.error
        fallback = error.message
        start_over(error)

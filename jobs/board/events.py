"""A board's events, and the effects that follow from them."""

from dataclasses import dataclass, field
from typing import TypeAlias

from ...actors.decode.picture_hash import PictureHash
from ...actors.device.work import UNCONSTRAINED, Constraints
from ...errors import CodecfleetError
from .retries import Attempt


@dataclass(frozen=True, slots=True)
class Finished:
    """A run delivered its segment."""

    segment: int
    until: int  #: the last planned segment that the result covers
    seam_before: tuple[PictureHash, ...]  #: hashes of the segment's first pictures
    seam_after: tuple[PictureHash, ...]  #: hashes of the first pictures past the segment's end
    at_start: bool  #: whether the segment was decoded from the track's first packet
    sound: bool = True  #: whether decoding from the track's start would give the same damaged pictures
    is_void: bool = False  #: whether no source picture of the segment could be decoded; a neighbour supplies pictures
    attempt: int = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Lost:
    """Run ``attempt`` of a segment failed."""

    segment: int
    error: CodecfleetError
    attempt: int = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Began:
    """A streaming segment has decoded its first pictures; they are compared with the end of the previous segment."""

    segment: int
    seam_before: tuple[PictureHash, ...]
    entry_moves: int
    at_start: bool


@dataclass(frozen=True, slots=True)
class Delivered:
    """The reader has taken all of a streaming segment."""

    segment: int


@dataclass(frozen=True, slots=True)
class Run:
    """Encode a segment on a worker."""

    segment: int
    until: int  #: the last planned segment that the run covers
    entry_moves: int  #: how many times decoding was moved to an earlier access point
    attempt: int
    constraints: Constraints = UNCONSTRAINED
    history: tuple[Attempt, ...] = ()  #: the failed attempts
    is_second: bool = False  #: whether this is a second run, beside a late run on another station
    cores: int = 1  #: how many cores the run's encoder may use

    @property
    def label(self) -> str:
        """The name of the run's work, unique among the runs in flight."""
        return f"segment {self.segment}" + " again" * self.is_second

    @property
    def apart_from(self) -> str:
        """The label of the late run whose station a second run must avoid; "" for a first run."""
        return f"segment {self.segment}" * self.is_second


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Cancel a run, because another run delivered the segment first."""

    segment: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Join:
    """Write a segment to the output; joins come in order."""

    segment: int


@dataclass(frozen=True, slots=True)
class Drop:
    """Drop the output of a segment's run, and end the run."""

    segment: int


@dataclass(frozen=True, slots=True)
class Fail:
    """End the job with this error."""

    error: CodecfleetError


Event: TypeAlias = Finished | Lost | Began | Delivered
Effect: TypeAlias = Run | Withdraw | Join | Drop | Fail

"""What a board takes in, and what follows from it."""

from dataclasses import dataclass, field
from typing import TypeAlias

from ...actors.decode.decoding import PictureHash
from ...actors.device.work import UNCONSTRAINED, Constraints
from ...errors import CodecfleetError
from .ladder import Attempt


@dataclass(frozen=True, slots=True)
class Finished:
    """Run ``attempt`` of a segment delivered it, up to the end of ``until``.

    ``at_start`` says that it was decoded from the track's first packet; ``sound`` that damage, if there was any, was
    met in the state of a decoder that came from there. ``is_void``: pictures are due that only a neighbour can give, as
    none of the source's decoded.
    """

    segment: int
    until: int
    seam_before: tuple[PictureHash, ...]
    seam_after: tuple[PictureHash, ...]
    at_start: bool
    sound: bool = True
    is_void: bool = False
    attempt: int = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Lost:
    """Run ``attempt`` of a segment failed."""

    segment: int
    error: CodecfleetError
    attempt: int = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Began:
    """A segment that streams has shown all that is compared of its beginning, decoded from this entry."""

    segment: int
    seam_before: tuple[PictureHash, ...]
    entry_moves: int
    at_start: bool


@dataclass(frozen=True, slots=True)
class Delivered:
    """All of a segment that streams was taken."""

    segment: int


@dataclass(frozen=True, slots=True)
class Run:
    """Have a worker encode a segment, up to the end of ``until``, from the ``entry_moves``-th access point back.

    A second run goes on beside one that is late, on another station. ``cores`` is how many its encoder may keep busy.
    """

    segment: int
    until: int
    entry_moves: int
    attempt: int
    constraints: Constraints = UNCONSTRAINED
    history: tuple[Attempt, ...] = ()
    is_second: bool = False
    cores: int = 1

    @property
    def label(self) -> str:
        """The name of its work, which no other run has meanwhile."""
        return f"segment {self.segment}" + " again" * self.is_second

    @property
    def apart_from(self) -> str:
        """The name of the work whose station a second run must not share."""
        return f"segment {self.segment}" * self.is_second


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Cancel a run: another one gave the segment first."""

    segment: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Join:
    """Write a segment to the output; joins come in order."""

    segment: int


@dataclass(frozen=True, slots=True)
class Drop:
    """Drop what a segment's run gave, and have it end if it still runs."""

    segment: int


@dataclass(frozen=True, slots=True)
class Fail:
    """Give the job up."""

    error: CodecfleetError


Event: TypeAlias = Finished | Lost | Began | Delivered
Effect: TypeAlias = Run | Withdraw | Join | Drop | Fail

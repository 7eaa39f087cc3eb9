"""One segment of a job's board: its state, and the states that may follow."""

from dataclasses import dataclass, replace
from enum import Enum

from ...actors.decode.picture_hash import PictureHash
from ...actors.device.work import UNCONSTRAINED, Constraints
from .retries import Attempt


class SegmentState(Enum):
    """The state of a segment. ``EDGES`` lists the transitions."""

    WAITING = "waiting"
    RUNNING = "running"
    DOUBLED = "doubled"
    ENCODED = "encoded"
    FAILED = "failed"
    JOINED = "joined"
    MERGED = "merged"

    @property
    def is_final(self) -> bool:
        """Whether no state follows."""
        return not EDGES[self]


EDGES: dict[SegmentState, frozenset[SegmentState]] = {
    # A run starts, or the segment is merged into its left neighbour.
    SegmentState.WAITING: frozenset({SegmentState.RUNNING, SegmentState.MERGED}),
    # The run delivered or was lost; the run ended too early, because the right neighbour was merged into the segment
    # meanwhile; or a second run starts because the first run is late.
    SegmentState.RUNNING: frozenset(
        {SegmentState.ENCODED, SegmentState.WAITING, SegmentState.FAILED, SegmentState.DOUBLED}
    ),
    # One of the two runs delivered the segment, or was lost.
    SegmentState.DOUBLED: frozenset({SegmentState.ENCODED, SegmentState.RUNNING}),
    # Both seams agree. If a seam differs, or its other side is void, the segment is decoded again or merged.
    SegmentState.ENCODED: frozenset({SegmentState.JOINED, SegmentState.WAITING, SegmentState.MERGED}),
    # On a streaming board: the pictures handed over before a failure differ from the end of the previous segment.
    SegmentState.FAILED: frozenset({SegmentState.WAITING}),
    SegmentState.JOINED: frozenset(),  # written to the output
    SegmentState.MERGED: frozenset(),  # the segment's frames belong to its left neighbour
}


@dataclass(frozen=True, slots=True)
class BoardSegment:
    """A planned segment, including the right neighbours that were merged into it."""

    number: int
    #: the last planned segment that this segment covers: ``number`` itself, unless neighbours were merged into it
    until: int
    frames: int
    state: SegmentState = SegmentState.WAITING
    entry_moves: int = 0  #: how many times decoding was moved to an earlier access point
    #: whether the segment was decoded from the track's start, the earliest point
    at_start: bool = False
    #: whether no source picture of the segment could be decoded; a neighbour must then supply pictures
    is_void: bool = False
    history: tuple[Attempt, ...] = ()  #: the failed attempts
    constraints: Constraints = UNCONSTRAINED  #: constraints of the next attempt
    running_as: Constraints = UNCONSTRAINED  #: constraints of the newest run
    runs: int = 0  #: how many runs have started; also the number of the newest run
    in_flight: frozenset[int] = frozenset()  #: the runs that have not ended
    was_doubled: bool = False  #: whether the segment has had two runs at the same time
    seam_before: tuple[PictureHash, ...] = ()  #: hashes of the segment's first pictures
    seam_after: tuple[PictureHash, ...] = ()  #: hashes of the first pictures past the segment's end
    is_open: bool = False  #: on a streaming board: handed over while the run continues
    is_stale: bool = False  #: on a streaming board: the result of the run is no longer wanted

    def to(self, state: SegmentState) -> "BoardSegment":
        """Return the segment in ``state``. Raises ValueError: no such transition exists."""
        if state not in EDGES[self.state]:
            raise ValueError(f"segment {self.number} cannot go from {self.state} to {state}: {self}")
        return replace(self, state=state)

    def started(self, state: SegmentState) -> "BoardSegment":
        """Return the segment after another run has started under its constraints."""
        started = replace(self.to(state), runs=self.runs + 1, running_as=self.constraints)
        return replace(started, in_flight=self.in_flight | {self.runs + 1})

    def without(self, attempt: int) -> "BoardSegment":
        """Return the segment after one of its runs has ended: it waits, unless another run continues."""
        left = self.in_flight - {attempt}
        return replace(self.to(SegmentState.RUNNING if left else SegmentState.WAITING), in_flight=left)

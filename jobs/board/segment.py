"""One segment of a job's board: where it stands, and how it may go on."""

from dataclasses import dataclass, replace
from enum import Enum

from ...actors.decode.decoding import PictureHash
from ...actors.device.work import UNCONSTRAINED, Constraints
from .ladder import Attempt


class SegmentState(Enum):
    """Where a segment stands."""

    WAITING = "waiting"
    RUNNING = "running"
    DOUBLED = "doubled"
    ENCODED = "encoded"
    FAILED = "failed"
    JOINED = "joined"
    MERGED = "merged"

    @property
    def is_final(self) -> bool:
        """Whether nothing can happen to the segment any more."""
        return not EDGES[self]


EDGES: dict[SegmentState, frozenset[SegmentState]] = {
    # There is room for a run, and the segment is next.
    SegmentState.WAITING: frozenset({SegmentState.RUNNING, SegmentState.MERGED}),
    # The worker delivered; or it was lost, or took in its right neighbour meanwhile, and the segment runs again.
    # Or it is late, slots are free, and it runs a second time beside.
    SegmentState.RUNNING: frozenset(
        {SegmentState.ENCODED, SegmentState.WAITING, SegmentState.FAILED, SegmentState.DOUBLED}
    ),
    # One of its two runs delivered; or one was lost, and the other runs on.
    SegmentState.DOUBLED: frozenset({SegmentState.ENCODED, SegmentState.RUNNING}),
    # Both seams agree; or one differs, or a side of one is void: the segment is decoded again, or gives up its cut.
    SegmentState.ENCODED: frozenset({SegmentState.JOINED, SegmentState.WAITING, SegmentState.MERGED}),
    # On a streaming board: what it gave before it broke off is not what the segment before it saw there.
    SegmentState.FAILED: frozenset({SegmentState.WAITING}),
    # Written to the output.
    SegmentState.JOINED: frozenset(),
    # Its frames belong to the segment on its left now.
    SegmentState.MERGED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class BoardSegment:
    """One planned segment, which ends where planned segment ``until`` does: its own, or a right neighbour it took in.

    ``entry_moves`` counts how often its access point moved back; ``at_start`` says that it cannot move further.
    ``is_void`` says that its neighbour must give its pictures, as none of the source's decoded.
    ``runs`` numbers its runs, of which ``in_flight`` have not ended; ``was_doubled`` says that two of them ran at once.
    ``history`` are the attempts that failed, ``running_as`` how it runs, ``constraints`` how the next attempt does.
    ``is_open`` and ``is_stale`` are a streaming board's: it was joined while it runs; its run is no longer wanted.
    """

    number: int
    until: int
    frames: int
    state: SegmentState = SegmentState.WAITING
    entry_moves: int = 0
    at_start: bool = False
    is_void: bool = False
    history: tuple[Attempt, ...] = ()
    constraints: Constraints = UNCONSTRAINED
    running_as: Constraints = UNCONSTRAINED
    runs: int = 0
    in_flight: frozenset[int] = frozenset()
    was_doubled: bool = False
    seam_before: tuple[PictureHash, ...] = ()
    seam_after: tuple[PictureHash, ...] = ()
    is_open: bool = False
    is_stale: bool = False

    def to(self, state: SegmentState) -> "BoardSegment":
        """Return the segment in ``state``.

        Raises:
            ValueError: there is no such edge.
        """
        if state not in EDGES[self.state]:
            raise ValueError(f"segment {self.number} cannot go from {self.state} to {state}: {self}")
        return replace(self, state=state)

    def started(self, state: SegmentState) -> "BoardSegment":
        """Return the segment with one more run in flight, under its constraints."""
        started = replace(self.to(state), runs=self.runs + 1, running_as=self.constraints)
        return replace(started, in_flight=self.in_flight | {self.runs + 1})

    def without(self, attempt: int) -> "BoardSegment":
        """Return the segment with one run less: it waits, or its other run goes on."""
        left = self.in_flight - {attempt}
        return replace(self.to(SegmentState.RUNNING if left else SegmentState.WAITING), in_flight=left)

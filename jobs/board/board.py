"""The life of a job's segments: a pure state machine. Facts go in as events, what to do comes out as effects.

                 Start                 Finished                both seams agree
    WAITING ───────────────▶ RUNNING ───────────▶ ENCODED ───────────────────────▶ JOINED
       ▲  ▲                    │                     │
       │  └──── Lost, a step of the ladder left      │ seam differs: decode from an earlier access point
       └─────────────────────────────────────────────┘ ... and once that has helped too little: MERGED into its
                                                       left neighbour, which goes back to WAITING

A segment that is late may be run twice at once (DOUBLED). Every run has a number, its *attempt*: only a run that is in
flight counts. The first result of a segment is taken and withdraws the other run, so a result that comes late, from a
worker that was cut off or stood still, changes nothing.

A seam is proven by pictures: the segment on its left also decodes the first frames past its own end, and those must be
the very frames with which the segment on its right begins. A segment that met damage must also have been decoded from a
sound entry: what a decoder makes of damage depends on the pictures it holds. A segment may be *void*: pictures are due
at a rate of their own, and none of the source's decoded that they could show. It becomes one with the segment on its
left; the first one, with the segment on its right. Segments are joined in order, and only once the seams on both of
their sides agree, so nothing that was joined is ever taken back.

``ladder.py`` says what is tried next with a segment that failed. While some of a job's segments are to run alone, no
others start: the first of them first and by itself, since a stream that breaks its decoder may do so anywhere. Once one
broke a device all alone, all that is left of the job is decoded in software.

A *streaming* board hands segments over while they run. The first one that is not over is joined as soon as it begins
with the pictures that the one before it saw there, and is over once all of it was taken (``Delivered``). Where its seam
differs, what its run gave is dropped, and it is decoded from further back. Nothing is merged, and no failure retried.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from ...actors.decode.decoding import PictureHash
from ...actors.device.work import UNCONSTRAINED, Constraints
from ...errors import ProofFailed
from .events import Began, Delivered, Drop, Effect, Event, Fail, Finished, Join, Lost, Run, Withdraw
from .ladder import Attempt, FaultKind, given_up, next_step, reason
from .segment import BoardSegment, SegmentState
from .starting import WINDOW_PER_WORKER, in_starting_order

UNSOUND_MOVES = 3
"""How often the entry of a damaged segment moves back before it is decoded as one with the segment on its left."""


@dataclass(frozen=True, slots=True)
class Board:
    """All segments of a job, in order; ``streams`` hands them over while they run.

    ``may_fall_back``: software may decode where a device fails. ``software`` says why it now decodes all that is left,
    "" while it does not. ``is_cleared``: one segment ran alone and broke nothing, since some are suspect.
    """

    segments: tuple[BoardSegment, ...]
    streams: bool = False
    may_fall_back: bool = True
    software: str = ""
    is_cleared: bool = False

    @classmethod
    def of(cls, frames: Sequence[int], *, streams: bool = False, may_fall_back: bool = True) -> "Board":
        """Return a fresh board for segments of that many frames each."""
        segments = (BoardSegment(n, n, count, is_open=streams and n == 0) for n, count in enumerate(frames))
        return cls(tuple(segments), streams, may_fall_back)

    @property
    def is_done(self) -> bool:
        """Whether everything is joined."""
        return all(segment.state.is_final for segment in self.segments)

    @property
    def frames_left(self) -> tuple[int, ...]:
        """The frames of each segment that is not encoded yet."""
        done = (SegmentState.ENCODED, SegmentState.JOINED, SegmentState.MERGED)
        return tuple(segment.frames for segment in self.segments if segment.state not in done)

    @property
    def doubled(self) -> int:
        """How many segments have run a second time while late."""
        return sum(segment.was_doubled for segment in self.segments)

    @property
    def waits(self) -> bool:
        """Whether a segment waits for a run."""
        return any(segment.state is SegmentState.WAITING for segment in self.segments)

    @property
    def running(self) -> int:
        """How many runs are in flight."""
        return sum(len(segment.in_flight) for segment in self.segments)

    def awaits(self, segment: int, attempt: int) -> bool:
        """Return whether a run's result is wanted: it is in flight, and no other gave the segment."""
        return attempt in self.segments[segment].in_flight

    def put(self, *segments: BoardSegment) -> "Board":
        """Return the board with these segments in their places."""
        changed = list(self.segments)
        for segment in segments:
            state = changed[segment.number].state
            if state.is_final:
                raise ValueError(f"segment {segment.number} is {state.value} and cannot change: {segment}")
            changed[segment.number] = segment
        return replace(self, segments=tuple(changed))

    def right_of(self, segment: BoardSegment) -> BoardSegment | None:
        """Return the segment that begins where ``segment`` ends."""
        return self.segments[segment.until + 1] if segment.until + 1 < len(self.segments) else None

    def left_of(self, segment: BoardSegment) -> BoardSegment | None:
        """Return the segment that ends where ``segment`` begins."""
        earlier = reversed(self.segments[: segment.number])
        return next((each for each in earlier if each.state is not SegmentState.MERGED), None)


def start_next(board: Board, at_once: int) -> tuple[Board, list[Run]]:
    """Start as many segments as may run, ``at_once`` in all.

    They lie in a window behind the oldest unfinished segment, and start in the order of ``starting.py``. A streaming
    board has ``at_once`` in memory, and the earliest start first.
    """
    live = [segment for segment in board.segments if not segment.state.is_final]
    window = live[: at_once * (1 if board.streams else WINDOW_PER_WORKER)]
    suspects = [segment for segment in live if _is_suspect(segment)]
    waiting = [segment for segment in suspects or live if segment.state is SegmentState.WAITING]
    if not board.streams:
        waiting = in_starting_order(waiting, at_once)
    if not suspects:
        waiting = [segment for segment in waiting if window and segment.number <= window[-1].number]
    room = at_once - board.running
    if suspects and not board.is_cleared:
        room = min(room, 1 - sum(segment.state is SegmentState.RUNNING for segment in suspects))
    runs = []
    for segment in waiting[: max(0, room)]:
        constraints = segment.constraints
        if board.software and not constraints.software:
            constraints = Constraints(avoid=constraints.avoid, software=board.software)
        started = replace(segment, constraints=constraints).started(SegmentState.RUNNING)
        board = board.put(started)
        runs.append(_run(started))
    return board, runs


def _run(segment: BoardSegment, *, is_second: bool = False) -> Run:
    return Run(
        segment.number,
        segment.until,
        segment.entry_moves,
        segment.runs,
        segment.running_as,
        segment.history,
        is_second=is_second,
    )


def double(board: Board, number: int, percent: int = 100) -> tuple[Board, list[Run]]:
    """Start a second run of a segment that is late: once in its life, and of ``percent`` of all segments at most."""
    segment = board.segments[number]
    doubled_most = ceil(len(board.segments) * percent / 100)
    is_spent = segment.was_doubled or board.doubled >= doubled_most or segment.constraints.alone
    if is_spent or segment.state is not SegmentState.RUNNING:
        return board, []
    doubled = replace(segment.started(SegmentState.DOUBLED), was_doubled=True)
    return board.put(doubled), [_run(doubled, is_second=True)]


def _is_suspect(segment: BoardSegment) -> bool:
    """Return whether a segment is to be tried alone, or is being tried so."""
    if segment.state is SegmentState.WAITING:
        return segment.constraints.alone
    return segment.running_as.alone and bool(segment.in_flight)


def decide(board: Board, event: Event) -> tuple[Board, list[Effect]]:
    """Take in one fact; return the new board and what follows from it."""
    segment = board.segments[event.segment]
    if isinstance(event, Finished | Lost) and not board.awaits(segment.number, event.attempt):
        return board, []
    if board.streams:
        return _hand_over(board.put(_streamed(segment, event)))
    if isinstance(event, Lost):
        return _lost(board, segment, event)
    if not isinstance(event, Finished):
        raise TypeError(f"only a streaming board takes {event}")
    if event.until != segment.until:
        return board.put(segment.without(event.attempt)), []
    encoded = replace(_encoded(segment, event), constraints=UNCONSTRAINED)
    withdrawn: list[Effect] = [Withdraw(segment.number, other) for other in segment.in_flight - {event.attempt}]
    board, effects = _settle(_cleared(board.put(encoded), segment), encoded, event)
    return board, withdrawn + effects


def _settle(board: Board, encoded: BoardSegment, event: Finished) -> tuple[Board, list[Effect]]:
    """Compare an encoded segment with its neighbours, and join what is proven."""
    if not event.sound and not event.at_start:
        return _move_entry(board, encoded, give_up=encoded.entry_moves >= UNSOUND_MOVES), []
    board = _check_seam(board, board.left_of(encoded), encoded)
    current = board.segments[encoded.number]
    if current.state is SegmentState.ENCODED:
        board = _check_seam(board, current, board.right_of(current))
    return _join(board)


def seams_agree(after: Sequence[PictureHash], before: Sequence[PictureHash]) -> bool:
    """Return whether the left side of a cut saw after it what the right side began with, as far as both saw.

    One side may have seen fewer pictures (a packet may hold none), but not none where the other saw some.
    """
    common = min(len(after), len(before))
    if common == 0:
        return not after and not before
    return tuple(after[:common]) == tuple(before[:common])


def _encoded(segment: BoardSegment, event: Finished) -> BoardSegment:
    encoded = replace(segment.to(SegmentState.ENCODED), at_start=event.at_start, in_flight=frozenset())
    return replace(encoded, seam_before=event.seam_before, seam_after=event.seam_after, is_void=event.is_void)


def _lost(board: Board, segment: BoardSegment, event: Lost) -> tuple[Board, list[Effect]]:
    attempt = Attempt.of(event.attempt, segment.running_as, event.error)
    history = (*segment.history, attempt)
    step = next_step(history, software=board.may_fall_back)
    waiting = replace(segment.without(event.attempt), history=history, constraints=step or segment.constraints)
    board = board.put(waiting)
    if attempt.fault is FaultKind.REFUSED:
        return board, [Fail(event.error)]
    if step is None and waiting.state is SegmentState.WAITING:
        return board, [Fail(given_up(segment.number, history, event.error))]
    if attempt.fault is FaultKind.GUILTY and waiting.constraints.software:
        # What is left may break the device as well, and cost others their worker.
        board = _acquitted(replace(board, software=board.software or reason(attempt)), waiting)
    return board, []


def _acquitted(board: Board, culprit: BoardSegment) -> Board:
    """Have other suspects decoded in software, beside other work: the culprit is known."""
    for each in board.segments:
        if _is_suspect(each) and each.number != culprit.number and each.state is SegmentState.WAITING:
            board = board.put(replace(each, constraints=Constraints(software=board.software)))
    return board


def _cleared(board: Board, ended: BoardSegment) -> Board:
    """Note whether suspects are left after ``ended`` was encoded, and whether it was one that ran alone."""
    was_alone = ended.running_as.alone and not ended.running_as.software
    is_left = any(map(_is_suspect, board.segments))
    return replace(board, is_cleared=is_left and (board.is_cleared or was_alone))


def _check_seam(board: Board, left: BoardSegment | None, right: BoardSegment | None) -> Board:
    """Compare both sides of one cut, once both are encoded, and move the right side's entry where they differ."""
    if left is None or right is None or {left.state, right.state} != {SegmentState.ENCODED}:
        return board
    if right.is_void or (left.is_void and board.left_of(left) is None):
        return _move_entry(board, right, give_up=True)
    if seams_agree(left.seam_after, right.seam_before):
        return board
    return _move_entry(board, right, give_up=right.at_start)


def _move_entry(board: Board, segment: BoardSegment, *, give_up: bool) -> Board:
    """Have a segment decoded from further back; or give its cut up and decode it as one with its left neighbour."""
    left = board.left_of(segment)
    # What was joined is never taken back: then the entry goes on moving, to the track's start if it must.
    if not give_up or left is None or left.state is SegmentState.JOINED:
        return board.put(replace(segment.to(SegmentState.WAITING), entry_moves=segment.entry_moves + 1))
    grown = replace(left, until=segment.until, frames=left.frames + segment.frames)
    # Whatever the left neighbour is doing, it does it for its old end: if it runs, its result will not count.
    if left.state is SegmentState.ENCODED:
        grown = grown.to(SegmentState.WAITING)
    return board.put(segment.to(SegmentState.MERGED), grown)


def _join(board: Board) -> tuple[Board, list[Effect]]:
    """Join the finished prefix: segments whose seams agree on both sides."""
    effects: list[Effect] = []
    for segment in (each for each in board.segments if not each.state.is_final):
        right = board.right_of(segment)
        if {segment.state, right.state if right else SegmentState.ENCODED} != {SegmentState.ENCODED}:
            break
        board = board.put(segment.to(SegmentState.JOINED))
        effects.append(Join(segment.number))
    return board, effects


def _streamed(segment: BoardSegment, event: Event) -> BoardSegment:
    """Return a streaming board's segment after an event."""
    if isinstance(event, Delivered):
        return segment.to(SegmentState.JOINED)
    if segment.is_stale:
        return segment if isinstance(event, Began) else replace(segment.without(event.attempt), is_stale=False)
    if isinstance(event, Lost):
        return replace(segment.to(SegmentState.FAILED), in_flight=frozenset())
    if isinstance(event, Began):
        moves = event.entry_moves
        return replace(segment, seam_before=event.seam_before, at_start=event.at_start, entry_moves=moves)
    return _encoded(segment, event)


def _hand_over(board: Board) -> tuple[Board, list[Effect]]:
    """Open the first segment that is not over, once it is known to begin as the one before it says."""
    segment = next((each for each in board.segments if not each.state.is_final), None)
    if segment is None or segment.is_open or segment.is_stale or segment.state is SegmentState.WAITING:
        return board, []
    has_begun = bool(segment.seam_before)
    if segment.state is SegmentState.RUNNING and not has_begun:
        return board, []
    left = board.left_of(segment)
    fails_at_once = segment.state is SegmentState.FAILED and not has_begun
    if left is None or fails_at_once or seams_agree(left.seam_after, segment.seam_before):
        return board.put(replace(segment, is_open=True)), [Join(segment.number)]
    if segment.at_start:
        message = f"segment {segment.number} does not begin with the pictures that the one before it ends with"
        return board, [Fail(ProofFailed(message, "Please report it with the input."))]
    again = replace(segment, entry_moves=segment.entry_moves + 1, seam_before=())
    if segment.state is SegmentState.RUNNING:
        return board.put(replace(again, is_stale=True)), [Drop(segment.number)]
    return board.put(again.to(SegmentState.WAITING)), [Drop(segment.number)]

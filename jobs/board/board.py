"""A job's segments as a pure state machine: events go in, effects come out.

                 Start                 Finished                both seams agree
    WAITING ───────────────▶ RUNNING ───────────▶ ENCODED ───────────────────────▶ JOINED
       ▲  ▲                    │                     │
       │  └──── Lost, and not given up yet           │ seam differs: decode from an earlier access point; after too
       └─────────────────────────────────────────────┘ many moves: MERGED into its left neighbour, again WAITING

Every run has a number, its *attempt*. A late segment may run twice at once (DOUBLED): the first result counts, and
the other run is withdrawn, so the late result of a frozen or disconnected worker changes nothing.

Pictures prove a seam: each segment also decodes the first frames past its end, and they must equal the first frames of
the next segment. A segment whose source is damaged must also have been decoded from an early enough access point,
because a decoder's output for damaged data depends on the pictures that the decoder holds. No source picture of a
*void* segment can be decoded, but the output's frame rate requires pictures there. Such a segment merges into its left
neighbour, or absorbs its right neighbour if it is the first segment. Segments are joined in order and only once both
their seams agree, so nothing joined is ever undone.

``retries.py`` decides how a failed segment is retried. Suspects are segments that may have broken a device. While they
have to run alone, no other segment starts. The first suspect runs before the others, since a stream that breaks its
decoder may do so in any segment. Once a segment has broken a device while running alone, the rest of the job is decoded
in software.

A *streaming* board hands segments over while they run. A segment opens once its first pictures equal the pictures past
the end of the previous segment, and ends when the reader has taken all of it (``Delivered``). If the seam differs, the
segment's output is dropped, and it is decoded from an earlier point. Nothing is merged, and no failure is retried.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Final

from ...actors.decode.picture_hash import PictureHash
from ...actors.device.work import UNCONSTRAINED, Constraints
from ...errors import ProofFailed
from .events import Began, Delivered, Drop, Effect, Event, Fail, Finished, Join, Lost, Run, Withdraw
from .retries import Attempt, FaultKind, given_up, next_step, reason
from .segment import BoardSegment, SegmentState

# The two values below are multiplied by the number of concurrent runs. No other pair that was tried is faster
# (docs/speed.md).
WINDOW_PER_WORKER: Final = 4  #: Only this many of the oldest unfinished segments may run
END_PER_WORKER: Final = 3  #: With this many waiting segments or fewer, the longest start first
#: The fraction of the cores that may idle; if more would idle, each segment gets one core more
_IDLE_PART: Final = Fraction(1, 10)
#: How many times a damaged segment is decoded again from an earlier access point before it is merged
UNSOUND_MOVES = 3


@dataclass(frozen=True, slots=True)
class Board:
    """All segments of a job, in order."""

    segments: tuple[BoardSegment, ...]
    streams: bool = False  #: whether segments are handed over while they run
    may_fall_back: bool = True  #: whether software may decode when a device fails
    software: str = ""  #: why software decodes the rest of the job; "" if devices may still decode it
    #: whether one suspect has run alone without breaking its device, and other suspects are left
    is_cleared: bool = False

    @classmethod
    def of(cls, frames: Sequence[int], *, streams: bool = False, may_fall_back: bool = True) -> "Board":
        """Return a new board with a waiting segment for each number in ``frames``, its number of frames."""
        segments = (BoardSegment(n, n, count, is_open=streams and n == 0) for n, count in enumerate(frames))
        return cls(tuple(segments), streams, may_fall_back)

    def of_some(self, numbers: Collection[int]) -> "Board":
        """Return a board on which these segments wait, all others are joined, and merged segments stay merged."""

        def on_new_board(each: BoardSegment) -> BoardSegment:
            state = SegmentState.WAITING if each.number in numbers else SegmentState.JOINED
            new = BoardSegment(each.number, each.until, each.frames, state, each.entry_moves, history=each.history)
            return each if each.state is SegmentState.MERGED else replace(new, runs=each.runs)

        return replace(self, segments=tuple(map(on_new_board, self.segments)))

    @property
    def is_done(self) -> bool:
        """Whether all segments are joined or merged."""
        return all(segment.state.is_final for segment in self.segments)

    @property
    def frames_left(self) -> tuple[int, ...]:
        """The frames of each segment that is not encoded yet."""
        done = (SegmentState.ENCODED, SegmentState.JOINED, SegmentState.MERGED)
        return tuple(segment.frames for segment in self.segments if segment.state not in done)

    @property
    def doubled(self) -> int:
        """How many segments have had a second run."""
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
        """Return whether a run's result still counts."""
        return attempt in self.segments[segment].in_flight

    def put(self, *segments: BoardSegment) -> "Board":
        """Return a copy of the board in which these segments replace those of the same numbers."""
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
    """Start segments until ``at_once`` run: suspects if there are any, else segments near the oldest unfinished one.

    ``in_starting_order`` decides the order. A streaming board starts the earliest segments first, with at most
    ``at_once`` in memory.
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
    """Start a second run of a late segment that may run beside others.

    Each segment has at most one second run, and at most ``percent`` of all segments have one.
    """
    segment = board.segments[number]
    doubled_most = ceil(len(board.segments) * percent / 100)
    is_spent = segment.was_doubled or board.doubled >= doubled_most or segment.constraints.alone
    if is_spent or segment.state is not SegmentState.RUNNING:
        return board, []
    doubled = replace(segment.started(SegmentState.DOUBLED), was_doubled=True)
    return board.put(doubled), [_run(doubled, is_second=True)]


def _is_suspect(segment: BoardSegment) -> bool:
    """Return whether a segment runs alone, or must run alone."""
    if segment.state is SegmentState.WAITING:
        return segment.constraints.alone
    return segment.running_as.alone and bool(segment.in_flight)


def decide(board: Board, event: Event) -> tuple[Board, list[Effect]]:
    """Apply one event; return the new board and the effects."""
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
    """Compare an encoded segment with its neighbours, and join the segments that are proven."""
    if not event.sound and not event.at_start:
        return _move_entry(board, encoded, give_up=encoded.entry_moves >= UNSOUND_MOVES), []
    board = _check_seam(board, board.left_of(encoded), encoded)
    current = board.segments[encoded.number]
    if current.state is SegmentState.ENCODED:
        board = _check_seam(board, current, board.right_of(current))
    return _join(board)


def seams_agree(after: Sequence[PictureHash], before: Sequence[PictureHash]) -> bool:
    """Return whether the pictures that the left side decoded past a cut are those with which the right side begins.

    A packet may hold no picture, so one side may have fewer pictures; but if one side has pictures, the other must have
    some too.
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
        # The rest of the film may also break devices, and so kill the workers of other jobs.
        board = _acquitted(replace(board, software=board.software or reason(attempt)), waiting)
    return board, []


def _acquitted(board: Board, culprit: BoardSegment) -> Board:
    """Let the other suspects run in shared processes, decoded in software, now that the culprit is known."""
    for each in board.segments:
        if _is_suspect(each) and each.number != culprit.number and each.state is SegmentState.WAITING:
            board = board.put(replace(each, constraints=Constraints(software=board.software)))
    return board


def _cleared(board: Board, ended: BoardSegment) -> Board:
    was_alone = ended.running_as.alone and not ended.running_as.software
    is_left = any(map(_is_suspect, board.segments))
    return replace(board, is_cleared=is_left and (board.is_cleared or was_alone))


def _check_seam(board: Board, left: BoardSegment | None, right: BoardSegment | None) -> Board:
    """Compare both sides of a cut once both are encoded; if they differ, decode the right side again."""
    if left is None or right is None or {left.state, right.state} != {SegmentState.ENCODED}:
        return board
    if right.is_void or (left.is_void and board.left_of(left) is None):
        return _move_entry(board, right, give_up=True)
    if seams_agree(left.seam_after, right.seam_before):
        return board
    return _move_entry(board, right, give_up=right.at_start)


def _move_entry(board: Board, segment: BoardSegment, *, give_up: bool) -> Board:
    """Decode a segment again from an earlier access point; with ``give_up``, merge it into its left neighbour."""
    left = board.left_of(segment)
    # A segment cannot merge into a joined neighbour, so it is decoded again, if necessary from the track's start.
    if not give_up or left is None or left.state is SegmentState.JOINED:
        return board.put(replace(segment.to(SegmentState.WAITING), entry_moves=segment.entry_moves + 1))
    grown = replace(left, until=segment.until, frames=left.frames + segment.frames)
    # If the left neighbour is running, its run will not count, because that run ends too early.
    if left.state is SegmentState.ENCODED:
        grown = grown.to(SegmentState.WAITING)
    return board.put(segment.to(SegmentState.MERGED), grown)


def _join(board: Board) -> tuple[Board, list[Effect]]:
    """Join the next segments in order, as long as their seams agree on both sides."""
    effects: list[Effect] = []
    for segment in (each for each in board.segments if not each.state.is_final):
        right = board.right_of(segment)
        # On a board from ``of_some``, the next segment may already be joined.
        is_proven = right is None or right.state in (SegmentState.ENCODED, SegmentState.JOINED)
        if segment.state is not SegmentState.ENCODED or not is_proven:
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
    """Open the first unfinished segment once its beginning agrees with the end of the previous segment."""
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
        message = f"segment {segment.number} does not begin with the pictures that end the segment before it"
        return board, [Fail(ProofFailed(message, "Please report this error together with the input."))]
    again = replace(segment, entry_moves=segment.entry_moves + 1, seam_before=())
    if segment.state is SegmentState.RUNNING:
        return board.put(replace(again, is_stale=True)), [Drop(segment.number)]
    return board.put(again.to(SegmentState.WAITING)), [Drop(segment.number)]


def restored(board: Board, results: Iterable[tuple[Run, Finished]]) -> tuple[Board, list[int]]:
    """Return a new board with the results of an earlier run applied, and the segments to join.

    If two results cover one part of the track, the result whose segment begins first counts.
    """
    joins: list[int] = []
    for run, event in sorted(results, key=lambda each: each[0].segment):
        part = board.segments[run.segment : run.until + 1]
        if any(each.state is not SegmentState.WAITING or each.until >= run.until + 1 for each in part):
            continue
        board, effects = decide(_as_running(board, run, part), event)
        joins += [effect.segment for effect in effects if isinstance(effect, Join)]
    return board, joins


def _as_running(board: Board, run: Run, part: tuple[BoardSegment, ...]) -> Board:
    """Return a copy of the board on which ``run`` is in flight over the segments ``part``."""
    frames = sum(each.frames for each in part)
    first = replace(
        part[0],
        until=run.until,
        frames=frames,
        entry_moves=run.entry_moves,
        runs=run.attempt,
        in_flight=frozenset({run.attempt}),
    )
    return board.put(first.to(SegmentState.RUNNING), *(each.to(SegmentState.MERGED) for each in part[1:]))


def in_starting_order(waiting: Sequence[BoardSegment], at_once: int) -> list[BoardSegment]:
    """Return waiting segments, given in film order, in the order in which they should start.

    They start in film order, so that few wait to be joined; near the end the longest start first, so that all end
    together.
    """
    if len(waiting) > END_PER_WORKER * at_once:
        return list(waiting)
    return sorted(waiting, key=lambda segment: (-segment.frames, segment.number))


def cores_for(frames: int, frames_left: int, *, at_once: int, cores: int) -> int:
    """Return how many of a job's ``cores`` a segment may use while ``at_once`` segments run.

    The segment gets an equal share, or a share in proportion to its frames if that share is larger. ``frames_left``
    includes the segment's frames.
    """
    share = max(Fraction(cores, max(at_once, 1)), Fraction(cores * frames, max(frames_left, frames, 1)))
    return max(1, min(cores, ceil(share * (1 - _IDLE_PART))))

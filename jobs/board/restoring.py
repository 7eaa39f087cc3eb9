"""A board that starts with what an earlier run of the job has encoded."""

from collections.abc import Iterable
from dataclasses import replace

from .board import Board, decide
from .events import Finished, Join, Run
from .segment import BoardSegment, SegmentState


def restored(board: Board, results: Iterable[tuple[Run, Finished]]) -> tuple[Board, list[int]]:
    """Return a fresh board with these results of an earlier run, and the segments to join, in order.

    They are taken in as if they came back now: seams are compared, and a segment whose seam differs waits again. Of two
    results for one part of the track, the one whose segment begins first counts.
    """
    joins: list[int] = []
    for run, event in sorted(results, key=lambda each: each[0].segment):
        part = board.segments[run.segment : run.until + 1]
        if any(each.state is not SegmentState.WAITING or each.until >= run.until + 1 for each in part):
            continue
        board, effects = decide(_running(board, run, part), event)
        joins += [effect.segment for effect in effects if isinstance(effect, Join)]
    return board, joins


def _running(board: Board, run: Run, part: tuple[BoardSegment, ...]) -> Board:
    """Return the board as it was when the run was under way."""
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

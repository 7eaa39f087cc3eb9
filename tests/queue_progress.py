"""How far jobs of a queue are: what their journals hold, and which segments they have started again."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from codecfleet.errors import CodecfleetError
from codecfleet.jobs.journal.found_work import find_work

_ATTEMPT: Final = "codecfleet: attempt "


def segments_of(place: Path) -> dict[str, tuple[int, int]] | None:
    """Return the finished segments and all segments of each unfinished output in a folder, or of one output.

    Return None if an output has no journal, or a journal disappears at this moment.
    """
    try:
        found = [work.found for work in find_work(str(place))]
    except (CodecfleetError, OSError):
        return None
    return {each.header.output: (each.segments_done, each.header.segments) for each in found if each.header}


def redone(printed: str) -> int:
    """Return how many segments a job has started again, as the events of its attempts tell.

    What an attempt started in the half second before its driver was killed is not in what it printed, but the next
    attempt's journal tells what was in flight.
    """
    return sum(_redone(attempt.splitlines()) for attempt in printed.split(_ATTEMPT))


def given_up(printed: str) -> int:
    """Return how many segments a job took from a worker that made no progress."""
    return sum(told["event"] == "warning" and told["code"] == "deadline" for told in _told(printed.splitlines()))


def _redone(lines: list[str]) -> int:
    starts, again = Counter[int](), 0
    for told in _told(lines):
        if told["event"] == "segment_started" and not told["is_second"]:
            starts[told["segment"]] += 1
        elif told["event"] == "journal":
            again += told["redone"]
    return again + starts.total() - len(starts)


def _told(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the events among the lines that a job printed."""
    for line in lines:
        with suppress(ValueError):  # what else it prints, or a line that was cut
            if isinstance(told := json.loads(line), dict):
                yield told

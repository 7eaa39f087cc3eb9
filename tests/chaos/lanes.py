"""Runs rounds in several processes at once, each on its own cores; the rounds of a batch share a place."""

import json
import os
import platform
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .films import Film
from .opening import place_of
from .places import Place
from .queue_rounds import attack_of
from .rounds import Result, round_folder
from .schedule import Round, Shape

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

CORES_LEAST: Final = 2
"""Of a round: on one core no NVENC gets work."""
_TROUBLES: Final = (OSError, AssertionError, LookupError, ValueError, RuntimeError)
"""What a place that could not be made, or fell apart, ends a round with."""


def run_all(
    batches: Sequence[Sequence[Round]], films: Mapping[Shape, Film], at_once: int, until_s: float, output: Path | None
) -> Iterator[Result]:
    """Run batches, ``at_once`` of them at the same time; no round starts after ``until_s`` on the monotonic clock.

    Each round is written to ``output`` as a line of JSON as soon as it has ended.
    """
    context = get_context("spawn")
    cores: Queue[set[int]] = context.Queue()
    for lane in range(at_once):
        cores.put(cores_of(lane, at_once, sorted(os.sched_getaffinity(0))))
    with ProcessPoolExecutor(at_once, context, _settle, (cores,)) as pool:
        running = [pool.submit(_run_batch, batch, films[batch[0].shape], until_s, output) for batch in batches]
        for done in as_completed(running):
            yield from done.result()


def cores_of(lane: int, lanes: int, cores: Sequence[int]) -> set[int]:
    """Return the cores of a lane: an equal, contiguous part of all cores, but at least two, which lanes may share."""
    size = min(len(cores), max(CORES_LEAST, len(cores) // lanes))
    first = lane * size % (len(cores) // size * size)
    return set(cores[first : first + size])


def _settle(cores: "Queue[set[int]]") -> None:
    os.sched_setaffinity(0, cores.get())


def _run_batch(batch: Sequence[Round], film: Film, until_s: float, output: Path | None) -> list[Result]:
    """Run rounds one after the other; after a round that failed, the next one gets a new place."""
    waiting, results = deque(batch), list[Result]()
    while waiting and time.monotonic() < until_s:
        try:
            with place_of(waiting[0].shape) as place:
                for result in _run_in(place, waiting, film, until_s):
                    results.append(result)
                    _report(result, output)
        except _TROUBLES as error:
            results.append(Result(waiting.popleft(), problems=[f"the harness failed: {error!r}"]))
            _report(results[-1], output)
    return results


def _run_in(place: Place, waiting: deque[Round], film: Film, until_s: float) -> Iterator[Result]:
    while waiting and time.monotonic() < until_s:
        with round_folder() as folder:
            result = attack_of(waiting[0], place, film, folder).run()
        waiting.popleft()
        yield result
        if result.problems:
            return
        if waiting:
            place.restore()


def _report(result: Result, output: Path | None) -> None:
    _print_round(result)
    if output is not None:
        row = result.to_json() | {
            "machine": f"{platform.platform()}, {os.cpu_count()} cores",
            "utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        with output.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        for name, recorded in result.recorded.items():
            output.with_name(f"{output.stem}-{result.round.seed}-{name}").write_bytes(recorded)


def _print_round(result: Result) -> None:
    plan = result.round
    faults = "; ".join(f"{strike.fault.value} after {strike.after_segments}" for strike in plan.strikes)
    verdict = "right" if not result.problems else f"WRONG: {' / '.join(result.problems)}"
    sys.stdout.write(
        f"{plan.seed:4} {plan.shape.value:14} {faults}{'; a job beside' if plan.beside else ''}:"
        f" redone {result.redone} of {result.allowed} allowed, {result.wall_s:.0f} s, {verdict}\n"
    )
    sys.stdout.flush()

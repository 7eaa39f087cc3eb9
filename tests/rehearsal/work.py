"""The jobs of a rehearsal: clips, options, and how each job must end, as runs without any fault have shown."""

import hashlib
import json
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count, product
from pathlib import Path
from typing import Final, NamedTuple

from codecfleet import QueueState
from codecfleet.cluster.machine import cores
from codecfleet.testing.clips import Clip, constant_times, make_clip
from tests.integration.test_nodes import PROGRAM, Machine

SHARES: Final = {"films": 2.0, "news": 1.0}
"""The tenants and their shares; they have jobs in the same proportion."""
OPTIONS: Final = (("--preset", "4", "--scale", "480x264"), ("--codec", "hevc", "--preset", "1"))
_EACH: Final = ("--segment-seconds", "0.96", "--device", "cpu", "--json")
_SEGMENT_FRAMES: Final = 24
_SEGMENTS: Final = {"long": 12, "short": 2, "brief": 3}
_LONG_EACH: Final = 7
"""One clip in seven is long enough for a fault in its middle, or more if there are few jobs."""
_JOBS_EACH: Final = 20
_REFUSED_EVERY: Final = 20
_LONG: Final = 5
"""The segments of a clip in whose middle a fault finds it."""
NOBODY: Final = "http://127.0.0.1:9/film.mp4"
"""A source that no server has: the job fails, another try may help, so the job is parked in the end."""

_ALONE_CORES: Final = 2
"""The cores for each job that runs without faults beside others."""


class Ending(NamedTuple):
    """How a run without faults ended: the output's SHA-256 and its segments, or the error's class."""

    sha256: str
    error: str
    segments: int = 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """A job, and how it must end: its state, the SHA-256 of its outputs, and the class of its error."""

    job_id: str
    tenant: str
    arguments: tuple[str, ...]
    outputs: tuple[tuple[Path, str], ...]
    state: QueueState = QueueState.DONE
    error: str = ""


def make_clips(folder: Path, jobs: int) -> list[Path]:
    """Make clips in the order in which that many jobs take them; the last one is no film."""
    folder.mkdir()
    made = {name: _make(folder / f"{name}.mp4", segments) for name, segments in _SEGMENTS.items()}
    refused = folder / "refused.mp4"
    refused.write_bytes(hashlib.shake_256(b"no film").digest(20_000))
    small = [made["short"], made["brief"]] * _LONG_EACH
    return [made["long"], *small[: min(_LONG_EACH - 1, jobs // _JOBS_EACH)], refused]


def _make(path: Path, segments: int) -> Path:
    frames = segments * _SEGMENT_FRAMES
    keyframes = frozenset(range(0, frames, _SEGMENT_FRAMES))
    quick = (("preset", "ultrafast"),)
    return make_clip(
        path, Clip(times=constant_times(frames), keyframes=keyframes, width=320, height=176, options=quick)
    )


def endings(here: Machine, films: Sequence[Path]) -> dict[tuple[Path, int], Ending]:
    """Run each distinct job on a fleet of its own; return how it ended by its clip and the number of its options."""
    cases = [*product(sorted({*films}, key=_size, reverse=True), range(len(OPTIONS)))]
    with ThreadPoolExecutor(max(1, cores() // _ALONE_CORES)) as threads:
        return dict(zip(cases, threads.map(lambda case: _ending(here, *case), cases), strict=True))


def _size(film: Path) -> int:
    return film.stat().st_size


def _ending(here: Machine, film: Path, number: int) -> Ending:
    output = here.folder / f"alone-{number}-{film.name}.mkv"
    ran = here.run("transcode", film, output, *_EACH, "--workers", _ALONE_CORES, *OPTIONS[number])
    assert ran.stdout, ran.stderr
    last = json.loads(ran.stdout.splitlines()[-1])
    if last["event"] == "failed":
        return Ending("", str(last["error"]))
    found = Ending(sha256(output), "", len(last["report"]["segments"]))
    output.unlink()
    return found


def transcodes(
    films: Sequence[Path], ended: dict[tuple[Path, int], Ending], folder: Path, jobs: int
) -> Iterator[Wanted]:
    """Return that many jobs, which take the clips in turn; one in ``_REFUSED_EVERY`` takes a clip that fails alone.

    If there are many of those, more do, so that each is taken.
    """
    refused = [film for film in films if not ended[film, 0].sha256]
    good = _spread([film for film in films if film not in refused], ended)
    every = max(1, min(_REFUSED_EVERY, jobs // max(1, len(refused))))
    taken = {tenant: count() for tenant in (*SHARES, "refused")}
    for number in range(jobs):
        tenant = "news" if number % 3 == 2 else "films"
        is_refused = refused and number % every == every // 2
        among, turn = (refused, next(taken["refused"])) if is_refused else (good, next(taken[tenant]))
        film, options = among[turn % len(among)], turn // len(among) % len(OPTIONS)
        output = folder / f"{number:03}-{tenant}-{film.stem}.mkv"
        arguments = ("transcode", str(film), str(output), *_EACH, *OPTIONS[options])
        found, error, _ = ended[film, options]
        if error:
            yield Wanted(f"job-{number:03}", tenant, arguments, (), QueueState.FAILED, error)
        else:
            yield Wanted(f"job-{number:03}", tenant, arguments, ((output, found),))


def _spread(films: Sequence[Path], ended: dict[tuple[Path, int], Ending]) -> list[Path]:
    """Return the clips in an order that has long ones everywhere, and the longest again and again: faults need them."""

    def segments(film: Path) -> int:
        return ended[film, 0].segments

    longest, *others = sorted(films, key=segments, reverse=True)
    parts = max(1, sum(segments(film) >= _LONG for film in others))
    return [film for first in range(parts) for film in (longest, *others[first::parts])]


def poisoned(folder: Path) -> Wanted:
    """Return a job that fails at each attempt, although another one might help."""
    arguments = ("transcode", NOBODY, str(folder / "poisoned.mkv"), *_EACH)
    return Wanted("poisoned", "news", arguments, (), QueueState.PARKED, "StorageFailed")


def batch(films: Sequence[Path], ended: dict[tuple[Path, int], Ending], folder: Path) -> Wanted:
    """Return a batch over all clips that are films."""
    good = sorted({film for film in films if ended[film, 0].sha256})
    places = [folder / f"{film.stem}.mkv" for film in good]
    found = tuple((place, ended[film, 0].sha256) for place, film in zip(places, good, strict=True))
    names = ("--output", str(folder), "--output-template", "{stem}.mkv")
    listed = folder.parents[1] / "batch.txt"
    listed.write_text("".join(f"{film}\n" for film in good))
    return Wanted("batch", "films", ("batch", str(listed), *names, *_EACH, *OPTIONS[0]), found)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file; "" if there is none."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def submit(here: Machine, queue: str, token: Path, jobs: Sequence[Wanted]) -> None:
    """Run a program that submits jobs with a tenant's token, and wait for its end."""
    told = json.dumps([[job.job_id, job.arguments] for job in jobs])
    command = [PROGRAM[0], "-m", "tests.rehearsal.client", queue, str(token)]
    subprocess.run(command, env=here.env, input=told, check=True, text=True)

"""A process that reads frames with one reader. It answers each request, a JSON line on stdin, by a JSON line on stdout.

It also runs in interpreters that lack codecfleet: ``python -m bench.frame_child torchcodec``.
"""

import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from typing import Any, Protocol

import numpy as np
from bench.frame_cases import MEAN, STD, Case, Clip, Job
from bench.frame_likeness import thumbnails

MODULES = {
    "codecfleet": "frame_ours",
    "torchcodec": "frame_peers",
    "torchcodec, 1 thread": "frame_peers",
    "decord": "frame_peers",
    "SimpleDecoder": "frame_peers_gpu",
    "ThreadedDecoder": "frame_peers_gpu",
}
"""The module of each reader."""


class Batch(Protocol):
    """Pictures in one tensor: RGB, 8 bits or normalised float32, channels first or last."""

    shape: Any


class Reader(Protocol):
    """A library that reads frames. Methods yield tensors of pictures (pictures, ...), in the requested order."""

    def random(self, film: str, indices: Sequence[int], *, kept: bool) -> Iterator[Batch]:
        """Yield the pictures of these numbers; ``kept`` uses the film that an earlier call opened."""

    def batches(self, film: str, pictures: int, side: int) -> Iterator[Batch]:
        """Yield pictures in order, resized to a square and normalised: float32, channels first."""

    def sequential(self, film: str) -> Iterator[Batch]:
        """Yield all pictures in order."""

    def every(self, film: str, step: int) -> Iterator[Batch]:
        """Yield the pictures 0, ``step``, 2 ``step`` ..."""

    def clip(self, clip: Clip, pictures: int) -> Iterator[Batch]:
        """Yield a clip's pictures, with one thread; called by several threads at once."""

    def wait(self) -> None:
        """Wait until the device has finished, if there is one."""


def main() -> None:
    """Answer until the parent closes the pipe."""
    name, place = sys.argv[1:]
    # Whatever a library prints must not end up among the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with redirect_stdout(sys.stderr):
        reader: Reader = importlib.import_module(f"bench.{MODULES[name]}").open_reader(name, place)
        print(json.dumps({"version": getattr(reader, "version", "")}), file=answers, flush=True)
        for line in sys.stdin:
            try:
                answer = run(reader, Job.from_dict(json.loads(line)))
            except Exception as error:  # noqa: BLE001 - reported to the parent
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), file=answers, flush=True)


def run(reader: Reader, job: Job) -> dict[str, Any]:
    """Do a job; return its pictures and times, or with ``job.looks`` a small copy of each picture instead."""
    if job.looks:
        return {"looks": [each.tolist() for each in _looks(reader, job)]}
    began_s, began_cpu_s = time.perf_counter(), _cpu_s()
    if job.case is Case.CLIPS:
        with ThreadPoolExecutor(job.workers) as pool:
            pictures = sum(pool.map(lambda clip: _count(reader.clip(clip, job.pictures)), job.clips))
    elif job.case is Case.FILMS:
        with ThreadPoolExecutor(len(job.films)) as pool:
            pictures = sum(pool.map(lambda film: _count(reader.sequential(film)), job.films))
    else:
        pictures = _count(batches_of(reader, job))
    reader.wait()
    times = {"wall_s": time.perf_counter() - began_s, "cpu_s": _cpu_s() - began_cpu_s}
    return times | {"pictures": pictures, "rss_bytes": _rss_bytes()}


def batches_of(reader: Reader, job: Job) -> Iterator[Batch]:
    """Yield the tensors of a job."""
    film = job.films[0] if job.films else ""
    if job.case is Case.RANDOM:
        return reader.random(film, job.indices, kept=False)
    if job.case is Case.RANDOM_KEPT:
        return reader.random(film, job.indices, kept=True)
    if job.case is Case.BATCHES:
        return reader.batches(film, job.pictures, job.side)
    if job.case is Case.EVERY:
        return reader.every(film, job.step)
    if job.case is Case.CLIPS:
        return (batch for clip in job.clips for batch in reader.clip(clip, job.pictures))
    return reader.sequential(film)


def _count(batches: Iterator[Batch]) -> int:
    return sum(batch.shape[0] for batch in batches)


def _looks(reader: Reader, job: Job) -> Iterator["np.ndarray[Any, Any]"]:
    scale = (MEAN, STD) if job.case is Case.BATCHES else None
    for batch in batches_of(reader, job):
        for picture in _on_host(batch):
            yield from thumbnails(picture[None], scale)


def _on_host(batch: Any) -> "np.ndarray[Any, Any]":
    if hasattr(batch, "cpu"):
        batch = batch.cpu().numpy()
    return np.asarray(batch)


def _cpu_s() -> float:
    use = resource.getrusage(resource.RUSAGE_SELF)
    return use.ru_utime + use.ru_stime


def _rss_bytes() -> int:
    with open("/proc/self/statm") as file:  # noqa: PTH123 - the peers' interpreters need plain code
        return int(file.read().split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    main()

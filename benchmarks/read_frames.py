"""Time reading frames: codecfleet against torchcodec and decord, or on a GPU against PyNvVideoCodec and torchcodec.

``python benchmarks/read_frames.py --peers PYTHON``; README.md beside this file says what each number means.
"""

import argparse
import os
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from bench.frame_cases import Case, Clip, Job
from bench.frame_films import FPS, make_film, make_short_films
from bench.frame_likeness import likeness_of, true_thumbnails
from bench.frame_readers import ReaderFailed, ReaderProcess, ratios, reader_processes
from bench.machine import describe_gpus, describe_run, described_lines
from bench.nvdec_use import NvdecUse
from bench.program import run_in_folder
from bench.table import number, save_results, spread, table_lines

ON_HOST = ("torchcodec", "torchcodec, 1 thread", "decord")
ON_GPU = ("SimpleDecoder", "ThreadedDecoder", "torchcodec")
HOST_CASES = tuple(case for case in Case if case is not Case.FILMS)
GPU_CASES = tuple(case for case in Case if case is not Case.BATCHES)
CLIP_S = 2
LOOKED_CLIPS = 16


def main() -> int:
    """Run the benchmark with the command line's options; return 1 if codecfleet gave a wrong picture, otherwise 0."""
    options = _parser().parse_args()
    records: list[dict[str, Any]] = []
    ended = run_in_folder(lambda folder: _compare(options, options.work or folder, records), options.work)
    return ended or int(any(each["wrong"] or each["missing"] for each in records if each["reader"] == "codecfleet"))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("films", type=Path, nargs="*", metavar="FILE", help="films (default: makes two of 1080p, of GOP 250 and 48)")
    add("--gpu", action="store_true", help="read on the first GPU, and compare with PyNvVideoCodec and torchcodec")
    add("--peers", metavar="PYTHON", help="the interpreter that has the peers' packages (default: this one)")
    add("--readers", nargs="*", choices=(*ON_HOST, *ON_GPU), metavar="NAME", help="the peers (default: all)")
    add("--cases", nargs="+", choices=[case.value for case in Case], metavar="CASE", help="cases (default: all)")
    add("--repeats", type=int, default=3, metavar="N", help="runs of each, taking turns (default: 3)")
    add("--indices", type=int, default=64, metavar="N", help="random pictures (default: 64)")
    add("--clips", type=int, default=1000, metavar="N", help="clips of 2 s (default: 1000)")
    add("--files", type=int, default=200, metavar="N", help="short files from which clips are read (default: 200)")
    add("--workers", type=int, default=os.cpu_count(), metavar="N", help="threads that read clips (default: the cores)")
    add("--seconds", type=int, default=40, metavar="S", help="length of the generated films (default: 40)")
    add("--size", default="1920x1080", metavar="WxH", help="their size (default: 1920x1080)")
    add("--work", type=Path, metavar="DIR", help="where films are made and kept (default: a temporary folder)")
    add("--save", metavar="NAME", help="also write benchmarks/results/NAME.json")
    return parser


def _compare(options: argparse.Namespace, folder: Path, records: list[dict[str, Any]]) -> None:
    document = describe_run(None) | (describe_gpus() if options.gpu else {})
    print("\n".join(described_lines(document)), flush=True)
    peers = options.readers if options.readers is not None else ON_GPU if options.gpu else ON_HOST
    pythons = [sys.executable, *[options.peers or sys.executable for _ in peers]]
    readers = reader_processes(["codecfleet", *peers], "device" if options.gpu else "host", pythons)
    try:
        document["readers"] = {reader.name: reader.version for reader in readers}
        print(", ".join(dict.fromkeys(reader.version for reader in readers)), flush=True)
        for film, job in _jobs(options, folder):
            for record in _measured(readers, film, job, options):
                records.append(record)
                print(f"  {job.case.value}, {film}, {record['reader']}: {record['fps']['median']:.1f} fps", flush=True)
            if options.save:
                save_results(options.save, document | {"rows": records, "ratios": ratios(records)})
    finally:
        for reader in readers:
            reader.close()
    print("\n".join(["", *_lines(records)]))


def _jobs(options: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Job]]:
    """Yield each film's name and a job on the film; all readers get the same jobs."""
    cases = [Case(case) for case in options.cases or (GPU_CASES if options.gpu else HOST_CASES)]
    chosen = random.Random(1)  # noqa: S311 - the same numbers each time
    width, height = map(int, options.size.split("x"))
    films = options.films
    if not films and set(cases) != {Case.CLIPS}:
        films = [make_film(folder, (width, height), options.seconds, gop) for gop in (250, 48)]
    for film in films:
        count = len(_truth(film))
        indices = tuple(chosen.sample(range(count), min(options.indices, count)))
        job = Job(case=Case.RANDOM, films=(str(film),), indices=indices, pictures=16, side=224, step=30)
        for case in cases:
            if case not in (Case.FILMS, Case.CLIPS):
                yield film.name, replace(job, case=case)
    if Case.FILMS in cases:
        yield "four films", Job(case=Case.FILMS, films=tuple(map(str, (films * 4)[:4])))
    if Case.CLIPS in cases:
        shorts = make_short_films(folder, options.files)
        last = len(_truth(shorts[0])) - CLIP_S * FPS
        clips = tuple(Clip(str(chosen.choice(shorts)), chosen.randint(0, last)) for _ in range(options.clips))
        name = f"{len(shorts)} short films"
        yield name, Job(case=Case.CLIPS, pictures=CLIP_S * FPS, clips=clips, workers=options.workers)


@cache
def _truth(film: Path) -> Any:
    return true_thumbnails(film)


def _measured(
    readers: Sequence[ReaderProcess], film: str, job: Job, options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Check the pictures of each reader, which also warms it up; then run the readers in turn (A B C A B C)."""
    likeness: dict[str, dict[str, int]] = {}
    for reader in readers:
        try:
            likeness[reader.name] = _likeness(reader, job)
        except ReaderFailed as error:
            print(f"  left out: {job.case.value}, {film}: {error}", flush=True)
    able = [reader for reader in readers if reader.name in likeness]
    runs: dict[str, list[dict[str, Any]]] = {reader.name: [] for reader in able}
    for _ in range(options.repeats):
        for reader in able:
            with NvdecUse(1) if options.gpu else nullcontext() as use:
                ran = reader.run(job)
            runs[reader.name].append(ran | ({"nvdec_percent": use.percent[0]} if use is not None else {}))
    for name, done in runs.items():
        yield {
            "case": job.case.value,
            "film": film,
            "reader": name,
            "pictures": done[0]["pictures"],
            "fps": spread([each["pictures"] / each["wall_s"] for each in done]),
            "cpu_s": spread([each["cpu_s"] for each in done]),
            "rss_mib": [round(each["rss_bytes"] / 2**20) for each in done],
            "nvdec_percent": max(each.get("nvdec_percent", 0) for each in done),
            "runs": done,
            **likeness[name],
        }


def _likeness(reader: ReaderProcess, job: Job) -> dict[str, int]:
    """Return how many pictures of a job, or of its first film or clips, are not those of a plain decode."""
    job = replace(job, looks=True, clips=job.clips[:LOOKED_CLIPS])
    found = reader.looks(job)
    if job.case is Case.CLIPS:
        parts = [found[place * job.pictures : (place + 1) * job.pictures] for place in range(len(job.clips))]
        judged = [
            likeness_of(part, _truth(Path(clip.film)), range(clip.first, clip.first + job.pictures))
            for part, clip in zip(parts, job.clips, strict=True)
        ]
    else:
        truth = _truth(Path(job.films[0]))
        numbers: Sequence[int] = range(len(truth))
        if job.case in (Case.RANDOM, Case.RANDOM_KEPT):
            numbers = job.indices
        elif job.case is Case.EVERY:
            numbers = numbers[:: job.step]
        judged = [likeness_of(found, truth, numbers)]
    return {name: sum(asdict(each)[name] for each in judged) for name in asdict(judged[0])}


def _lines(records: Sequence[dict[str, Any]]) -> list[str]:
    heads = (
        "case, film, reader",
        "pictures",
        "fps",
        "ours / it",
        "CPU s",
        "MiB, first-last run",
        "NVDEC %",
        "wrong",
        "other colours",
        "missing",
    )
    of = {(each["case"], each["film"], each["over"]): each["fps"] for each in ratios(records)}
    rows = [
        [
            f"{each['case']}, {each['film']}, {each['reader']}",
            str(each["pictures"]),
            f"{each['fps']['median']:.1f} ({each['fps']['least']:.1f}-{each['fps']['most']:.1f})",
            number(of.get((each["case"], each["film"], each["reader"])), 2),
            number(each["cpu_s"]["median"], 2),
            f"{each['rss_mib'][0]}-{each['rss_mib'][-1]}",
            str(each["nvdec_percent"]),
            *(str(each[name]) for name in ("wrong", "other_colours", "missing")),
        ]
        for each in records
    ]
    return table_lines(heads, rows)


if __name__ == "__main__":
    sys.exit(main())

"""Time decoding on NVDEC: raw PyNvVideoCodec, our sessions, and the workers of a fleet, on one or several GPUs.

``python benchmarks/gpu_decode.py FILE``; README.md beside this file says what each number means.
"""

import argparse
import asyncio
import os
import statistics
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from bench.decode_child import ChildWay, DecodeChildren
from bench.decode_fleet import DecodeFleet, FleetWay, Pass, SessionCounts, profile_record
from bench.decode_table import (
    compare_rows,
    first_line,
    profile_lines,
    row_lines,
    session_excess,
    target_lines,
    targets,
)
from bench.film import Film, read_film
from bench.host_use import HostUse
from bench.machine import describe_gpus, describe_run, described_lines
from bench.nvdec_use import NvdecUse
from bench.program import run_in_folder
from bench.table import save_results, spread

WAYS = (*ChildWay, *FleetWay)
Way = ChildWay | FleetWay
ResultT = TypeVar("ResultT")

DEFAULT_WAYS = (ChildWay.RAW, ChildWay.RAW_SEGMENTS, *FleetWay)
"""The ways to decode that use a worker, and the raw ways with which these are compared."""
RUN_S = 5.0
"""The length of a run, unless the command line says how many times a run decodes the film."""
FILMS_MOST = 4
WARM_S = 10.0
"""The shortest warm-up of the first way that uses the worker, whose second process starts in this time."""
WARM_ROUNDS_MOST = 8


@dataclass(slots=True)
class Findings:
    """The results so far."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    first_pictures_s: list[float] = field(default_factory=list)
    profiles: list[dict[str, Any]] = field(default_factory=list)
    sessions: dict[str, SessionCounts] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return the results as plain values."""
        compare_rows(self.rows)
        return {
            "rows": self.rows,
            "first_pictures_s": self.first_pictures_s,
            "sessions": {process: asdict(counts) for process, counts in self.sessions.items()},
            "targets": targets(self.rows, self.first_pictures_s, self.sessions),
            "profiles": self.profiles,
        }


def main() -> int:
    """Run the benchmark with the options of the command line; return the exit code."""
    options = _parser().parse_args()
    findings = Findings()
    ended = run_in_folder(lambda _: asyncio.run(_measure(options, findings)), None)
    excess = session_excess(findings.sessions)
    for line in excess:
        print(f"error: {line}", file=sys.stderr)
    return ended or int(bool(excess))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("file", type=Path, help="an H.264 or HEVC film")
    add("--threads", type=int, nargs="+", default=[18], metavar="N", help="sessions a GPU (18)")
    add(
        "--gpus",
        type=int,
        nargs="+",
        default=[1],
        metavar="N",
        help="numbers of GPUs to measure, one after the other (default: 1)",
    )
    ways = {way.value: way.value for way in WAYS}
    usual = [way.value for way in DEFAULT_WAYS]
    add(
        "--ways",
        nargs="+",
        choices=ways,
        default=usual,
        metavar="WAY",
        help="ways to decode that are measured (default: both raw ways and those with a worker)",
    )
    add("--repeats", type=int, default=3, metavar="N", help="runs of each, taking turns (default: 3)")
    add("--films", type=int, metavar="N", help="times each session decodes the film (default: for 5 s, at most 4)")
    add("--first", type=int, default=20, metavar="N", help="measurements of the first picture's time (default: 20)")
    add("--profile", action="store_true", help="after the runs, profile one more run of each way that uses a worker")
    add("--save", metavar="NAME", help="also write benchmarks/results/NAME.json")
    return parser


async def _measure(options: argparse.Namespace, findings: Findings) -> None:
    document = describe_run(None) | describe_gpus()
    print("\n".join(described_lines(document)), flush=True)
    film = read_film(options.file)
    document |= {"file": options.file.name} | film.described
    print(", ".join(f"{name.replace('_', ' ')} {count}" for name, count in film.described.items()), flush=True)

    def keep() -> None:
        """Save the results so far: a run may be interrupted."""
        if options.save:
            save_results(options.save, document | findings.document())

    for gpus in options.gpus:
        await _on_gpus(_devices(gpus), film, options, findings, keep)
    document |= findings.document()
    print("\n".join(["", *row_lines(findings.rows)]))
    if findings.first_pictures_s:
        print(f"\n{first_line(findings.first_pictures_s, statistics.median(findings.first_pictures_s))}")
    for process, counts in findings.sessions.items():
        print(f"{process}: {counts.made} sessions made for {counts.at_once} threads at once")
    if findings.profiles:
        print("\n".join(["", *profile_lines(findings.profiles)]))
    print("\n".join(["", *target_lines(document["targets"])]))
    if options.save:
        print(f"\nsaved: {save_results(options.save, document)}")


def _devices(gpus: int) -> list[str]:
    """Return the names of the first GPUs that are visible to this process."""
    left = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = left.split(",") if left else [str(index) for index in range(gpus)]
    if len(names) < gpus:
        sys.exit(f"CUDA_VISIBLE_DEVICES leaves {len(names)} of {gpus} GPUs")
    return names[:gpus]


async def _on_gpus(
    devices: Sequence[str], film: Film, options: argparse.Namespace, findings: Findings, keep: Callable[[], None]
) -> None:
    """Measure everything on several GPUs."""
    ways = [way for way in WAYS if way.value in options.ways]
    children = DecodeChildren(devices, film) if any(isinstance(way, ChildWay) for way in ways) else None
    try:
        if not any(isinstance(way, FleetWay) for way in ways):
            await _On(devices, options, findings, children, None, keep).measure(ways)
            return
        async with DecodeFleet(devices, film, polls=False) as fleet:
            await _On(devices, options, findings, children, fleet, keep).measure(ways)
            for process, counts in fleet.sessions.items():
                findings.sessions[f"{len(devices)} GPUs, {process}"] = counts
    finally:
        if children is not None:
            children.close()


@dataclass(slots=True)
class _On:
    """Runs every way to decode on one set of GPUs."""

    devices: Sequence[str]
    options: argparse.Namespace
    findings: Findings
    children: DecodeChildren | None
    fleet: DecodeFleet | None
    keep: Callable[[], None]
    _warm_s: float = 0.0

    async def measure(self, ways: Sequence[Way]) -> None:
        for threads in self.options.threads:
            if self.fleet is not None:
                sessions = threads * len(self.devices)
                films = self.options.films or FILMS_MOST
                most = max(self.fleet.pieces(way, sessions, films) for way in FleetWay)
                await self.fleet.settle(sessions, most)
                if self.fleet.granted < sessions:
                    self._say(f"{self.fleet.granted} of {sessions} sessions were granted")
            await self._rows(ways, threads)
            self.keep()
        if self.fleet is not None:
            if self.options.first and not self.findings.first_pictures_s:
                self.findings.first_pictures_s += await self.fleet.first_pictures_s(self.options.first)
            if self.options.profile:
                await self._profile([way for way in ways if isinstance(way, FleetWay)])

    async def _rows(self, ways: Sequence[Way], threads: int) -> None:
        """Warm up all ways to decode, then run them in turn (A B C A B C)."""
        fps: dict[Way, list[float]] = {way: [] for way in ways}
        busy: dict[Way, list[int]] = {way: [0] * len(self.devices) for way in ways}
        hosts: dict[Way, list[HostUse]] = {way: [] for way in ways}
        films = {way: await self._warmed(way, threads) for way in ways}
        for _ in range(self.options.repeats):
            for way in ways:
                with NvdecUse(len(self.devices)) as use, HostUse() as host:
                    pictures, wall_s = await self._once(way, threads, films[way])
                fps[way].append(pictures / wall_s)
                hosts[way].append(host)
                busy[way] = [max(pair) for pair in zip(busy[way], use.percent, strict=True)]
        for way in ways:
            figures = spread(fps[way])
            self._say(f"{way.value}, {len(self.devices)} GPUs, {threads} sessions each: {figures['median']:.0f} fps")
            self.findings.rows.append(
                {
                    "what": way.value,
                    "gpus": len(self.devices),
                    "sessions": threads,
                    "granted": self.fleet.granted if isinstance(way, FleetWay) and self.fleet else None,
                    "fps": figures,
                    "runs_fps": fps[way],
                    "nvdec_percent": busy[way],
                    "busy_cores": statistics.mean(host.busy_cores for host in hosts[way]),
                    "stolen_cores": statistics.mean(host.stolen_cores for host in hosts[way]),
                }
            )

    async def _warmed(self, way: Way, threads: int) -> int:
        """Warm up a way to decode until it makes no more processes and sessions.

        Return how many times a run should decode the film.
        """
        wall_s, made = 0.0, -1
        for _ in range(WARM_ROUNDS_MOST):
            _, wall_s = await self._once(way, threads, 1)
            before, made = made, self._sessions_made()
            self._warm_s += wall_s if isinstance(way, FleetWay) else 0.0
            if before == made and (self._warm_s >= WARM_S or isinstance(way, ChildWay)):
                break
        return self.options.films or min(FILMS_MOST, max(1, round(RUN_S / wall_s)))

    def _sessions_made(self) -> int:
        return sum(counts.made for counts in self.fleet.sessions.values()) if self.fleet is not None else 0

    async def _once(self, way: Way, threads: int, films: int) -> tuple[int, float]:
        if isinstance(way, ChildWay):
            return await asyncio.to_thread(_there(self.children).run, way, threads, films)
        passed = await _there(self.fleet).run(way, threads * len(self.devices), films)
        return passed.pictures, passed.wall_s

    async def _profile(self, ways: Sequence[FleetWay]) -> None:
        threads, films = self.options.threads[-1], self.options.films or 1
        run: Callable[..., Awaitable[Pass]] = _there(self.fleet).run
        for way in ways:
            passed = await run(way, threads * len(self.devices), films, with_profile=True)
            told = {"what": way.value, "gpus": len(self.devices), "sessions": threads}
            self.findings.profiles.append(told | profile_record(passed))

    def _say(self, line: str) -> None:
        print(f"  {line}", flush=True)


def _there(value: ResultT | None) -> ResultT:
    """Return ``value``, which is never None because a chosen way to decode needs it."""
    if value is None:
        message = "a part that a chosen way needs is missing"
        raise LookupError(message)
    return value


if __name__ == "__main__":
    sys.exit(main())

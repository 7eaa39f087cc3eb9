"""The contenders: codecfleet, one FFmpeg, and many FFmpegs on the same segments."""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Any

from .codecs import CodecCase
from .ffmpeg import QUIET
from .measure import Measurement, measure
from .media import VideoFacts
from .program import CODECFLEET, module_command

__all__ = [
    "Bench",
    "Contender",
    "Cut",
    "Entrant",
    "FleetJob",
    "Run",
    "entrants",
    "fleet_command",
    "read_plan",
    "run_fan_out",
    "run_ffmpeg_once",
    "run_fleet",
    "run_fleet_jobs",
]

_VIDEO_AND_SOUND = ("-map", "0:v:0", "-map", "0:a?", "-c:a", "copy")
_TIMES_KEPT = ("-fps_mode", "passthrough")
_FROM_ZERO = ("-bsf:v", "setts=pts=PTS-STARTPTS:dts=DTS-STARTPTS")
"""Times begin at 0. With the filter setpts, FFmpeg 7.0 would lose the picture rate, and x265 spend half the bits."""


class Contender(StrEnum):
    """The three ways to do the same work."""

    FLEET = "codecfleet"
    FFMPEG = "ffmpeg"
    FAN_OUT = "fan-out"


@dataclass(frozen=True, slots=True)
class Entrant:
    """A contender, and for codecfleet the value of ``--device``; "" is the default."""

    contender: Contender
    device: str = ""

    @property
    def name(self) -> str:
        """The contender's name in tables."""
        return f"{self.contender.value} {self.device}".rstrip()


def entrants(contenders: Sequence[Contender], devices: Sequence[str]) -> tuple[Entrant, ...]:
    """Return the contenders in order: codecfleet once for each named device, every other contender once."""
    return tuple(
        Entrant(contender, device)
        for contender in contenders
        for device in (devices if contender is Contender.FLEET and devices else ("",))
    )


@dataclass(frozen=True, slots=True)
class Cut:
    """One segment of codecfleet's plan; ``start_s`` counts from the first picture of the film."""

    start_s: float
    frames: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The parts that all runs of a comparison share."""

    ffmpeg: str
    source: Path
    facts: VideoFacts
    folder: Path
    container: str
    workers: int | None
    segment_s: Fraction | None
    encoder_options: tuple[str, ...] = ()

    def output(self, name: str) -> Path:
        """Return the path of an output; the next output of that name overwrites the file."""
        return self.folder / f"{name}.{self.container}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetJob:
    """One job of a program that runs several jobs on one fleet, as reported by bench/fleet_jobs.py.

    ``wall_s`` begins with the program for the first job, and with the job's submission for the others; ``cpu_s`` is the
    CPU time of all processes in that time.
    """

    wall_s: float
    cpu_s: float
    stages_s: dict[str, float]
    decoded_by: dict[str, int]
    fallbacks: dict[str, int]
    sha256: str
    workers: int
    encoder_kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One measured run.

    ``start_up_s`` is the cost per process, not per second of film; see ``run_fleet``. ``measured`` covers the whole
    process, which for codecfleet on a named device runs several ``jobs``: there ``wall_s`` and ``cpu_s`` end with the
    first job.
    """

    entrant: Entrant
    output: Path
    measured: Measurement
    wall_s: float
    cpu_s: float
    start_up_s: float = 0.0
    stages_s: dict[str, float] = field(default_factory=dict)
    in_flight: int = 1
    encoder: str = ""
    jobs: tuple[FleetJob, ...] = ()

    @property
    def work_s(self) -> float:
        """Wall time less start-up."""
        return self.wall_s - self.start_up_s

    @property
    def warm(self) -> tuple[FleetJob, ...]:
        """The jobs that began on an open fleet with warm workers."""
        return self.jobs[1:]


def fleet_command(bench: Bench, case: CodecCase, quality: int, output: Path, command: str = "transcode") -> list[str]:
    """Return the command line of codecfleet."""
    words = [*CODECFLEET, command, str(bench.source), str(output), "--codec", case.codec, "--quality", str(quality)]
    words += ["--preset", str(case.preset)]
    words += [part for option in bench.encoder_options for part in ("--encoder-option", option)]
    if bench.segment_s is not None:
        words += ["--segment-seconds", str(float(bench.segment_s))]
    if bench.workers is not None:
        words += ["--workers", str(bench.workers)]
    return words


def read_plan(bench: Bench, case: CodecCase) -> tuple[Cut, ...]:
    """Return the segments that codecfleet plans."""
    command = fleet_command(bench, case, case.quality, bench.output("planned"), "plan")
    document: dict[str, Any] = json.loads(measure([*command, "--json"]).output)
    return tuple(Cut(segment["start_s"], segment["frames"]) for segment in document["segments"])


def run_fleet(bench: Bench, case: CodecCase, quality: int) -> Run:
    """Run ``codecfleet transcode``.

    Start-up is everything but work on the film: the time from the start of the process to that of the job, the job's
    wait for the fleet beyond its own planning (the report's ``startup``), and the shutdown of Ray and the process.
    """
    output = bench.output(f"{case.name}-codecfleet")
    report_path = output.with_suffix(".report.json")
    command = fleet_command(bench, case, quality, output)
    measured = measure([*command, "--json", "--overwrite", "--report", str(report_path)])
    report = json.loads(report_path.read_text(encoding="utf-8"))
    stages_s: dict[str, float] = report["timings_s"]
    return Run(
        entrant=Entrant(Contender.FLEET),
        output=output,
        measured=measured,
        wall_s=measured.wall_s,
        cpu_s=measured.cpu_s,
        start_up_s=measured.wall_s - (stages_s["total"] - stages_s["startup"]),
        stages_s=stages_s,
        in_flight=report["workers"],
        encoder=report["encoder_kind"],
    )


def run_fleet_jobs(bench: Bench, case: CodecCase, device: str, warm_jobs: int) -> Run:
    """Run the same job once and then ``warm_jobs`` times more on one fleet, in a separate program.

    The first job's start-up is all of its time except work on the film: the start of Python, the imports, and the job's
    wait for the fleet beyond its own planning (the report's ``startup``).
    """
    output = bench.output(f"{case.name}-codecfleet-{device}")
    answer = output.with_suffix(".jobs.json")
    spec: dict[str, Any] = {
        "source": str(bench.source),
        "output": str(output),
        "codec": case.codec,
        "quality": case.quality,
        "preset": case.preset,
        "device": device,
        "encoder_options": [option.split("=", 1) for option in bench.encoder_options],
        "segment_s": None if bench.segment_s is None else str(bench.segment_s),
        "overwrite": True,
    }
    order = {"spec": spec, "workers": bench.workers, "jobs": 1 + warm_jobs, "answer": str(answer)}
    order_path = output.with_suffix(".order.json")
    order_path.write_text(json.dumps(order | {"began_s": time.monotonic()}), encoding="utf-8")
    command, environment = module_command("fleet_jobs", str(order_path))
    measured = measure(command, environment=environment)
    jobs = tuple(FleetJob(**job) for job in json.loads(answer.read_text(encoding="utf-8")))
    first = jobs[0]
    return Run(
        entrant=Entrant(Contender.FLEET, device),
        output=output,
        measured=measured,
        wall_s=first.wall_s,
        cpu_s=first.cpu_s,
        start_up_s=first.wall_s - (first.stages_s["total"] - first.stages_s["startup"]),
        stages_s=first.stages_s,
        in_flight=first.workers,
        encoder=first.encoder_kind,
        jobs=jobs,
    )


def run_ffmpeg_once(
    bench: Bench, case: CodecCase, quality: int, extra: Sequence[str] = (), name: str = "ffmpeg"
) -> Run:
    """Run one FFmpeg with its default threads."""
    output = bench.output(f"{case.name}-{name}")
    encoder = [*case.ffmpeg_options(quality), *extra]
    command = [bench.ffmpeg, *QUIET, "-i", str(bench.source), *_VIDEO_AND_SOUND, *encoder, *_TIMES_KEPT]
    measured = measure([*command, *_container_options(bench), str(output)])
    return Run(
        entrant=Entrant(Contender.FFMPEG),
        output=output,
        measured=measured,
        wall_s=measured.wall_s,
        cpu_s=measured.cpu_s,
        encoder=" ".join(encoder),
    )


def run_fan_out(bench: Bench, case: CodecCase, cuts: Sequence[Cut], *, in_flight: int, threads: int) -> Run:
    """Run one FFmpeg per segment, ``in_flight`` at a time, then join. ``threads`` 0 means FFmpeg's default."""
    output = bench.output(f"{case.name}-fan-out")
    parts = [bench.folder / f"part-{number:05d}.{bench.container}" for number in range(len(cuts))]
    commands = [fan_out_part(bench, case, cut, part, threads) for cut, part in zip(cuts, parts, strict=True)]
    listing = bench.folder / "parts.txt"
    listing.write_text("".join(f"file '{part.name}'\n" for part in parts), encoding="utf-8")
    join = [bench.ffmpeg, *QUIET, "-f", "concat", "-i", str(listing), "-i", str(bench.source)]
    join += ["-map", "0:v", "-map", "1:a?", "-c", "copy", *_container_options(bench), str(output)]
    job_path = bench.folder / "fan-out.json"
    job_path.write_text(json.dumps({"in_flight": in_flight, "parts": commands, "join": join}), encoding="utf-8")
    try:
        measured = measure([sys.executable, "-I", "-S", str(Path(__file__).with_name("fan_out.py")), str(job_path)])
    finally:
        for part in parts:
            part.unlink(missing_ok=True)
    encoder = " ".join([*case.ffmpeg_options(case.quality), *case.thread_options(threads)])
    return Run(
        entrant=Entrant(Contender.FAN_OUT),
        output=output,
        measured=measured,
        wall_s=measured.wall_s,
        cpu_s=measured.cpu_s,
        in_flight=in_flight,
        encoder=encoder,
    )


def fan_out_part(bench: Bench, case: CodecCase, cut: Cut, part: Path, threads: int) -> list[str]:
    """Return the command that encodes one segment: a seek to just before its first picture, then its pictures."""
    seek = []
    if cut.start_s > 0:
        seek = ["-seek_timestamp", "1", "-ss", f"{float(bench.facts.before_frame_s(cut.start_s)):.6f}"]
    command = [bench.ffmpeg, *QUIET, *seek, "-i", str(bench.source), "-map", "0:v:0", *_FROM_ZERO]
    command += [*case.ffmpeg_options(case.quality), *case.thread_options(threads), *_TIMES_KEPT]
    return [*command, "-frames:v", str(cut.frames), str(part)]


def _container_options(bench: Bench) -> list[str]:
    return ["-movflags", "+faststart"] if bench.container in {"mp4", "mov"} else []

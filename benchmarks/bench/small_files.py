"""Many small files, done by a batch and by FFmpeg in a shell loop; outputs are counted, a batch's also verified."""

import os
import shlex
import subprocess
import tempfile
import time
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from codecfleet import verify

from .failures import CommandFailed
from .ffmpeg import run_ffmpeg
from .program import CODECFLEET, FILM

_CLIP_S = (Fraction(1), Fraction(3, 2), Fraction(2))
_CUT_S = Fraction(1, 2)
_LOOK_S = 0.05
AS_JOBS = "codecfleet, as jobs"
"""The name of a batch in which each file is a separate job instead of one work item."""


@dataclass(frozen=True)
class Loop:
    """How both contenders encode. ``preset`` is codecfleet's number for the preset ``x264_preset``."""

    ffmpeg: str
    processes: int
    x264_preset: str
    preset: int
    quality: int


def cut_short(folder: Path, files: int, ffmpeg: str) -> Path:
    """Make clips of 1 to 2 s at 240p from the bundled film; return their folder."""
    folder.mkdir()
    for file in range(files):
        begin_s, length_s = Fraction(file % 75, 10), _CLIP_S[file % len(_CLIP_S)]
        part = ["-ss", str(float(begin_s)), "-t", str(float(length_s)), "-i", str(FILM)]
        encoder = ["-vf", "scale=426:240", "-c:v", "libx264", "-preset", "veryfast", "-c:a", "copy"]
        run_ffmpeg(ffmpeg, [*part, *encoder, str(folder / f"{file:04}.mp4")])
    return folder


def cut_film(film: Path, folder: Path, files: int, ffmpeg: str) -> Path:
    """Cut a film, repeated if it is short, into clips of half a second with FFmpeg's segment muxer."""
    folder.mkdir()
    part = [
        "-stream_loop",
        "-1",
        "-i",
        str(film.absolute()),
        "-t",
        str(float(files * _CUT_S)),
        "-map",
        "0:v:0",
        "-map",
        "0:a:0?",
    ]
    every = f"expr:gte(t,n_forced*{float(_CUT_S)})"
    encoder = ["-c:v", "libx264", "-preset", "veryfast", "-force_key_frames", every, "-c:a", "aac"]
    muxer = ["-f", "segment", "-segment_time", str(float(_CUT_S)), "-reset_timestamps", "1"]
    run_ffmpeg(ffmpeg, [*part, *encoder, *muxer, "%04d.mp4"], folder=folder)
    made = sorted(folder.glob("*.mp4"))
    for more in made[files:]:  # the last file may hold only a fragment of sound or picture
        more.unlink()
    if len(made) < files:
        raise CommandFailed(f"{film} gave {len(made)} of {files} clips")
    return folder


@dataclass(frozen=True)
class Timed:
    """One contender's round: the wall time, and the CPU time of the command's own process, without its children."""

    wall_s: float
    own_cpu_s: float


def time_small_files(clips: Path, loop: Loop, folder: Path, rounds: int) -> dict[str, list[Timed]]:
    """Return how long each contender takes for all clips, round by round.

    Raises:
        CommandFailed: a contender failed, or an output is missing or not exact.
    """
    times: dict[str, list[Timed]] = {"ffmpeg": [], "codecfleet": [], AS_JOBS: []}
    for number in range(rounds):
        for name, rounds_of in times.items():
            output = folder / f"by-{list(times).index(name)}-{number}"
            output.mkdir()
            command = (
                _ffmpeg(loop, output) if name == "ffmpeg" else _batch(loop, clips, output, as_jobs=name == AS_JOBS)
            )
            rounds_of.append(_timed(command, clips))
            _check(clips, output, name, verified=name != "ffmpeg" and number == 0)
    return times


def _ffmpeg(loop: Loop, output: Path) -> list[str]:
    options = f"-c:v libx264 -preset {loop.x264_preset} -crf {loop.quality} -c:a copy"
    encode = f"{shlex.quote(loop.ffmpeg)} -v error -nostdin -i {{}} {options} {shlex.quote(str(output))}/{{}}"
    return ["sh", "-c", f"ls | xargs -P{loop.processes} -I{{}} {encode}"]


def _batch(loop: Loop, clips: Path, output: Path, *, as_jobs: bool) -> list[str]:
    options = ["--quality", str(loop.quality), "--preset", str(loop.preset), "--quiet"]
    if as_jobs:  # this option makes each file a separate job; it saves nothing unless a job fails
        options += ["--keep-evidence", str(output)]
    return [*CODECFLEET, "batch", str(clips), "--output", str(output), *options]


def _timed(command: list[str], folder: Path) -> Timed:
    began_s, cpu_s = time.monotonic(), 0.0
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, cwd=folder, stdout=said, stderr=said)
        while process.poll() is None:
            cpu_s = _own_cpu_s(process.pid) or cpu_s
            time.sleep(_LOOK_S)
        wall_s = time.monotonic() - began_s
        if process.returncode:
            said.seek(0)
            raise CommandFailed(f"{command[0]} ended with {process.returncode}: {said.read().decode()[-500:]}")
    return Timed(wall_s, cpu_s)


def _own_cpu_s(pid: int) -> float:
    """Return the CPU time of a process; 0 if it has ended."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _check(clips: Path, output: Path, name: str, *, verified: bool) -> None:
    wanted = sorted(path.name for path in clips.iterdir())
    if (made := sorted(path.name for path in output.glob("*.mp4"))) != wanted:
        raise CommandFailed(f"{name} made {len(made)} of {len(wanted)} files")
    for each in wanted if verified else ():
        if not verify(clips / each, output / each).exact:
            raise CommandFailed(f"{output / each} is not exact")

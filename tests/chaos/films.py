"""The films that rounds encode, and the expected bytes."""

import hashlib
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from codecfleet.testing.clips import Clip, constant_times, make_clip

from .opening import place_of
from .schedule import SEGMENT_FRAMES, SEGMENTS, SIZE, Round, Shape

PROGRAM: Final = Path(sys.executable).parent / "codecfleet"
_OPTIONS: Final = ("--segment-seconds", f"{SEGMENT_FRAMES / 25}", "--deadline-seconds", "6", "--json")
_SOFTWARE: Final = (*_OPTIONS, "--scale", "848x480", "--device", "cpu")
_NVENC: Final = (*_OPTIONS, "--encoder", "nvenc", "--preset", "1")


@dataclass(frozen=True, slots=True)
class Film:
    """The source of a shape's jobs, their options, and the SHA-256 of a job's output without any fault."""

    path: Path
    options: tuple[str, ...]
    expected_sha256: str


def films_for(shapes: Iterable[Shape], folder: Path, segments: int = SEGMENTS) -> dict[Shape, Film]:
    """Make a film, and encode it without faults, with each kind of encoder that is needed."""
    film = _make(folder / "film.mp4", segments)
    found: dict[Shape, Film] = {}
    for shape in sorted(shapes):
        kind = Shape.SIMULATED_GPUS if shape is Shape.SIMULATED_GPUS else Shape.PRIVATE
        found[shape] = found[kind] if kind in found else _undisturbed(kind, film, folder)
        found[kind] = found[shape]
    return found


def _make(path: Path, segments: int) -> Path:
    frames = segments * SEGMENT_FRAMES
    keyframes = frozenset(range(0, frames, SEGMENT_FRAMES))
    width, height = SIZE
    quick = (("preset", "ultrafast"),)
    clip = Clip(times=constant_times(frames), keyframes=keyframes, width=width, height=height, options=quick)
    return make_clip(path, clip)


def _undisturbed(kind: Shape, film: Path, folder: Path) -> Film:
    options = _NVENC if kind is Shape.SIMULATED_GPUS else _SOFTWARE
    output = folder / f"{kind.name}.mp4"
    with place_of(kind) as place:
        place.prepare(Round(0, kind, (), beside=False), folder)
        subprocess.run([PROGRAM, "transcode", film, output, *options], env=place.env, check=True, capture_output=True)
    return Film(film, options, sha256(output))


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()

"""The rungs of a ladder: which renditions a preset names, and the ordinary request for each. Pure but for one file."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, TypeAlias

from ...cluster.toml_file import TomlFile, read_toml
from ...errors import UsageError
from ..request.layers import Layer, spec_of
from ..request.spec import TranscodeSpec
from ..request.spec_file import KEYS_HELP, fields_of, layer_of
from .report import LeftOut
from .spec import PRESET_SUFFIX, LadderSpec

_PRESETS: Final = files(f"{__name__.split('.')[0]}.configs").joinpath("ladders")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_TAKEN: Final = re.compile(r"(master|thumbnails|sound-\d+|text-\d+|.*-keyframes)", re.IGNORECASE)
"""Names that would make two files of a package the same."""
_TABLE: Final = "rendition"
_PAGE: Final = "docs/ladder.md describes the file."
MOST_RUNGS: Final = 32
Scale: TypeAlias = tuple[int | None, int] | None  #: Width and height, as ``--scale`` gives them; None keeps the size
_WIDEST: Final = Fraction(16, 9)
_LINES_APART: Final = 2  #: Pictures with fewer lines more or less than the source are not scaled


@dataclass(frozen=True, slots=True)
class Rung:
    """One rendition that a ladder asks for. ``layers`` are the fields for all renditions, then its own."""

    name: str
    layers: tuple[Layer, ...]


def read_rungs(preset: str) -> tuple[Rung, ...]:
    """Return the rungs of a built-in preset, or of a file whose name ends in ``.toml``, the highest first.

    Raises UsageError: there is no such preset, or its file is wrong.
    """
    file = read_toml("ladder", _path_of(preset), missing="Check the path.", wrong=_PAGE, parse_float=str)
    shared = {key: value for key, value in file.tables.items() if key != _TABLE}
    common = layer_of(file, fields_of(file, shared))
    rungs = tuple(_rung(file, common, table) for table in _tables(file))
    names = [rung.name for rung in rungs]
    if doubled := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"{file.path}: two renditions are named {doubled}", "Give each rendition its own name.")
    return rungs


def preset_names() -> list[str]:
    """Return the names of the built-in presets."""
    return sorted(
        each.name.removesuffix(PRESET_SUFFIX) for each in _PRESETS.iterdir() if each.name.endswith(PRESET_SUFFIX)
    )


def _path_of(preset: str) -> Path:
    if preset.endswith(PRESET_SUFFIX):
        return Path(preset)
    if preset not in preset_names():
        listed = ", ".join(preset_names())
        raise UsageError(f"--preset: there is no ladder {preset}", f"Choose {listed}, or name a file, NAME.toml.")
    return Path(str(_PRESETS.joinpath(f"{preset}{PRESET_SUFFIX}")))


def _tables(file: TomlFile) -> Iterable[Mapping[str, Any]]:
    tables = file.tables.get(_TABLE)
    if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables) or not tables:
        raise UsageError(f"{file.path} has no renditions", f"Write each as [[{_TABLE}]]: {_PAGE}")
    if len(tables) > MOST_RUNGS:
        raise UsageError(f"{file.path} has {len(tables)} renditions", f"A ladder has at most {MOST_RUNGS}.")
    return tables


def _rung(file: TomlFile, common: Layer, table: Mapping[str, Any]) -> Rung:
    name = table.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        message = f"{file.place(_TABLE)}: a rendition has no name, or one that is not letters, digits, - and _: {name}"
        raise UsageError(message, 'Write name = "720p".')
    if _TAKEN.fullmatch(name):
        raise UsageError(f"{file.path}: a rendition cannot be named {name}", "The package has such a file already.")
    own = fields_of(file, {key: value for key, value in table.items() if key != "name"})
    return Rung(name, (common, layer_of(file, own)))


def rendition_spec(ladder: LadderSpec, rung: Rung, folder: Path, *, carries: bool) -> TranscodeSpec:
    """Return the request for one rendition, which is written into ``folder``.

    Only one rendition of a ladder ``carries`` sound and subtitles.

    Raises UsageError: a field is invalid, or fields conflict.
    """
    files_ = {"source": ladder.source, "output": str(folder / f"{rung.name}.mp4"), "overwrite": True}
    sides = {} if carries else {"audio": "none", "subtitles": "none"}
    given = Layer(files_ | ladder.for_each | sides, str)
    spec = spec_of(TranscodeSpec, [*rung.layers, given], KEYS_HELP)
    if spec.keyframe_interval_s is None:
        raise UsageError(
            f"the rendition {rung.name} has no keyframe interval", "Set keyframe_interval for all renditions."
        )
    return spec


def check_grid(ladder: LadderSpec, specs: Mapping[str, TranscodeSpec]) -> None:
    """Check that all renditions have the same keyframes, at which the package's segments can begin.

    Raises UsageError: the intervals differ, or the package's segments do not begin at keyframes.
    """
    intervals: dict[Fraction, str] = {}
    for name, spec in specs.items():
        intervals.setdefault(spec.keyframe_interval_s or Fraction(0), name)
    if len(intervals) > 1:
        (first_s, first), (second_s, second) = list(intervals.items())[:2]
        message = f"keyframes of {first} are {float(first_s):g} s apart, and those of {second} {float(second_s):g} s"
        raise UsageError(message, "Give all renditions the same keyframe_interval.")
    (interval_s,) = intervals
    if (ladder.packaged_s / interval_s).denominator != 1:
        message = f"segments of {float(ladder.packaged_s):g} s do not begin at keyframes {float(interval_s):g} s apart"
        raise UsageError(message, "Let --packaged-seconds be a multiple of --keyframe-interval.")


def fitted(scale: Scale, source: tuple[int, int]) -> Scale:
    """Return the size of a rendition whose rung asks for ``scale``, for pictures of the size ``source``.

    A height H means a picture of 16:9 with that height: wider pictures get the same width, not the same height, and
    upright pictures are treated as if they lay on their side. None keeps the source's size.
    """
    if scale is None or scale[0] is not None:
        return scale
    short, long = sorted(source)
    lines = min(scale[1], max(2, 2 * round(_WIDEST * Fraction(scale[1] * short, 2 * long))))
    if abs(lines - short) < _LINES_APART:
        return None
    return (None, lines) if source[0] >= source[1] else (None, 2 * round(Fraction(lines * long, 2 * short)))


def choose(
    rungs: Sequence[Rung], specs: Sequence[TranscodeSpec], source: tuple[int, int]
) -> tuple[tuple[tuple[Rung, Scale], ...], tuple[LeftOut, ...]]:
    """Return the rungs to make, each with its size, and the rungs to leave out: those larger than the source.

    ``specs`` are the requests of the rungs, and ``source`` is the size of the pictures before scaling. If all rungs are
    larger, the smallest rung is made at the source's size.
    """
    sizes = [fitted(spec.scale, source) for spec in specs]
    larger = [_enlarges(size, source) for size in sizes]
    if all(larger):
        last = min(range(len(rungs)), key=lambda number: (specs[number].scale or (None, 0))[1])
        larger[last], sizes[last] = False, None
    made = tuple(each for each, is_larger in zip(zip(rungs, sizes, strict=True), larger, strict=True) if not is_larger)
    shown = f"{source[0]}x{source[1]}"
    left_out = tuple(
        LeftOut(name=rung.name, reason=f"it would be larger than the source's pictures of {shown}")
        for rung, is_larger in zip(rungs, larger, strict=True)
        if is_larger
    )
    return made, left_out


def _enlarges(size: Scale, source: tuple[int, int]) -> bool:
    return size is not None and (size[1] > source[1] or (size[0] or 0) > source[0])

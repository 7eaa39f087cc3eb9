"""Reads the rungs of a preset, makes an ordinary request for each, and chooses those that do not enlarge the source."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeAlias

from ...actors.encode.settings import Codec
from ...cluster.toml_file import TomlFile, read_toml
from ...errors import UsageError
from ..request.carried import Carried, SoundAndSubtitles
from ..request.layers import Layer, spec_of
from ..request.options import options_of
from ..request.parts import SourceRange, VideoOptions
from ..request.picture import Picture
from ..request.spec import TranscodeSpec
from ..request.spec_file import KEYS_HELP, fields_of, layer_of
from .report import LeftOut
from .spec import PRESET_SUFFIX, LadderSpec

_PRESETS: Final = files(f"{__name__.split('.')[0]}.configs").joinpath("ladders")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_TAKEN: Final = re.compile(r"(master|thumbnails|(sound|text)(-\d+)?|.*-keyframes)", re.IGNORECASE)
"""Names that renditions cannot have: other files of the package have them, or ``--per-title`` may add such a number."""
_OF_ONE: Final = frozenset({*VideoOptions.model_fields, "scale", "pix_fmt"} - {"size_bytes"})
"""The fields that may differ between renditions."""
_OF_ALL: Final = _OF_ONE | frozenset(
    chain({"force"}, *(model.model_fields for model in (Picture, Carried, SourceRange)))
)
"""The fields that a file may set for all renditions. All other fields say where and how the work is done."""
_OF_SOUND: Final = frozenset(SoundAndSubtitles.model_fields) - {"audio_tracks", "subtitles"}
"""The fields that may differ between groups of sound."""
_NO_SIDES: Final = {name: field.default for name, field in Carried.model_fields.items()} | {
    "audio": "none",
    "subtitles": "none",
}
_TABLE: Final = "rendition"
_SOUND: Final = "sound"
_PAGE: Final = "docs/ladder.md describes the file."
MOST_RUNGS: Final = 32
Scale: TypeAlias = tuple[int | None, int] | None  #: Width and height, as ``--scale`` gives them; None keeps the size
_WIDEST: Final = Fraction(16, 9)
_EFFICIENCY: Final = {"h264": 1, "hevc": 2, "vp9": 2, "av1": 3}
"""The generations of codecs, by FFmpeg's names: a later one needs fewer bits. All others are older than these."""
_LINES_APART: Final = 2  #: A picture is not scaled if its shorter side would change by fewer lines than this


@dataclass(frozen=True, slots=True)
class Rung:
    """The entry of one rendition in a preset. ``layers`` are the fields for all renditions, then its own."""

    name: str
    layers: tuple[Layer, ...]


@dataclass(frozen=True, slots=True)
class SoundGroup:
    """The entry of one group of sound in a preset."""

    name: str
    layer: Layer


def read_rungs(preset: str, text: str | None = None) -> tuple[Rung, ...]:
    """Return the rungs of a built-in preset, or of a file whose name ends in ``.toml``, in their order.

    ``text`` is the file's content, if the file is on another machine. Raises UsageError: there is no such preset, or
    its file is wrong.
    """
    file = _file(preset, text)
    shared = {key: value for key, value in file.tables.items() if key not in (_TABLE, _SOUND)}
    common = layer_of(file, _fields(file, shared, _OF_ALL))
    rungs = tuple(_rung(file, common, table) for table in _tables(file))
    _check_names(file, "renditions", [rung.name.lower() for rung in rungs])  # some file systems ignore case
    return rungs


def read_sounds(preset: str, text: str | None = None) -> tuple[SoundGroup, ...]:
    """Return the groups of sound of a preset, in their order; () if it has none.

    The arguments and errors are those of ``read_rungs``.
    """
    file = _file(preset, text)
    tables = file.tables.get(_SOUND, [])
    if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
        raise UsageError(f"{file.path}: {_SOUND} is not a list of tables", f"Write each as [[{_SOUND}]]: {_PAGE}")
    sounds = tuple(SoundGroup(*_named(file, _SOUND, table, _OF_SOUND)) for table in tables)
    _check_names(file, "groups of sound", [sound.name for sound in sounds])
    return sounds


def _file(preset: str, text: str | None) -> TomlFile:
    return read_toml("ladder", _path_of(preset), missing="Check the path.", wrong=_PAGE, parse_float=str, text=text)


def _check_names(file: TomlFile, what: str, names: Sequence[str]) -> None:
    if doubled := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"{file.path}: two {what} are named {doubled}", "Give each its own name.")


def files_of(preset: str, text: str | None = None) -> tuple[str, ...]:
    """Return the files that a preset needs: its own, unless built in or given as ``text``, and those that it names.

    The arguments and errors are those of ``read_rungs``.
    """
    named = read_rungs(preset, text)[0].layers[0].fields
    own = (preset,) if preset.endswith(PRESET_SUFFIX) and text is None else ()
    return (*own, *(str(named[field]) for field in ("overlay", "subtitle_font") if field in named))


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
        raise UsageError(f"--preset: there is no preset {preset}", f"Choose {listed}, or name a file, NAME.toml.")
    return Path(str(_PRESETS.joinpath(f"{preset}{PRESET_SUFFIX}")))


def _tables(file: TomlFile) -> Iterable[Mapping[str, Any]]:
    tables = file.tables.get(_TABLE)
    if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables) or not tables:
        raise UsageError(f"{file.path} has no renditions", f"Write each as [[{_TABLE}]]: {_PAGE}")
    if len(tables) > MOST_RUNGS:
        raise UsageError(f"{file.path} has {len(tables)} renditions", f"A ladder has at most {MOST_RUNGS} renditions.")
    return tables


def _rung(file: TomlFile, common: Layer, table: Mapping[str, Any]) -> Rung:
    name, own = _named(file, _TABLE, table, _OF_ONE)
    if _TAKEN.fullmatch(name):
        message = f"{file.path}: a rendition cannot be named {name}, because other files of the package are"
        raise UsageError(message, "Choose another name.")
    return Rung(name, (common, own))


def _named(file: TomlFile, kind: str, table: Mapping[str, Any], allowed: frozenset[str]) -> tuple[str, Layer]:
    name = table.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        message = f"{file.place(kind)}: a {kind} needs a name of letters, digits, - and _, not {name}"
        raise UsageError(message, 'Write name = "720p".')
    fields = _fields(file, {key: value for key, value in table.items() if key != "name"}, allowed)
    return name, layer_of(file, fields)


def _fields(file: TomlFile, table: Mapping[str, Any], allowed: frozenset[str]) -> dict[str, Any]:
    fields = fields_of(file, table)
    if refused := next((field for field in fields if field not in allowed), None):
        key = options_of(TranscodeSpec)[refused].key
        step = "Set it on the command line" if refused in LadderSpec.model_fields else "Leave it out of ladders"
        step = "Set it for all renditions, above the tables" if refused in _OF_ALL else step
        raise UsageError(f"{file.place(key)}: {key} cannot be set here", f"{step}: {_PAGE}")
    return fields


def rendition_spec(
    ladder: LadderSpec, rung: Rung, folder: Path, *, carries: bool, sound: SoundGroup | None = None
) -> TranscodeSpec:
    """Return the request for one rendition, whose file is written into ``folder``.

    ``carries``: whether the rendition has sound and subtitles; only one rendition of a ladder does. ``sound`` is the
    group whose sound it gets; None if the preset has no groups.

    Raises UsageError: a field is invalid, fields conflict, or there is no keyframe interval.
    """
    files_ = {"source": ladder.source, "output": str(folder / f"{rung.name}.mp4"), "overwrite": True}
    layers = rung.layers if sound is None else (*rung.layers, sound.layer)
    spec = spec_of(TranscodeSpec, [*layers, Layer(files_ | ladder.for_each, str)], KEYS_HELP)
    if not carries:
        spec = spec.model_copy(update=_NO_SIDES)
    spec = spec.resolved()
    if spec.keyframe_interval_s is None:
        raise UsageError(
            f"the rendition {rung.name} has no keyframe interval", "Set keyframe_interval for all renditions."
        )
    return spec


def check_grid(ladder: LadderSpec, specs: Mapping[str, TranscodeSpec]) -> None:
    """Check that all renditions have one keyframe interval, and that each segment of the package begins at a keyframe.

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
        raise UsageError(message, "Make --packaged-seconds a multiple of --keyframe-interval.")


def fitted(scale: Scale, source: tuple[int, int]) -> Scale:
    """Return the size of a rendition with the option ``scale``, for source pictures of the size ``source``.

    A height means a 16:9 picture of that height: wider pictures get the width of that picture instead, and for
    upright pictures height and width change places. None keeps the source's size.
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


@dataclass(frozen=True, slots=True)
class SourceRate:
    """The codec of the source's video, by FFmpeg's name, and its average bitrate."""

    codec: str
    bps: int


def without_padding(
    chosen: Sequence[tuple[Rung, Scale]], specs: Mapping[str, TranscodeSpec], source: SourceRate
) -> tuple[tuple[tuple[Rung, Scale], ...], tuple[LeftOut, ...]]:
    """Return the rungs to make, and the rungs to leave out: those that ask for a higher bitrate than the source has.

    No size is lost: of the rungs of one codec and size, the lowest bitrate always stays. A codec that needs more bits
    than the source's may have a higher bitrate. ``specs`` are the requests by the names of their rungs.
    """
    rates: dict[tuple[Codec | None, Scale], list[int]] = {}
    for rung, size in chosen:
        rates.setdefault((specs[rung.name].codec, size), []).append(specs[rung.name].bitrate_bps or 0)

    def is_padding(rung: Rung, size: Scale) -> bool:
        spec = specs[rung.name]
        rate_bps, codec = spec.bitrate_bps or 0, spec.codec or Codec.H264
        is_as_good = _EFFICIENCY[codec.value] >= _EFFICIENCY.get(source.codec, 0)
        return is_as_good and rate_bps > source.bps and rate_bps > min(rates[spec.codec, size])

    left_out = tuple(rung.name for rung, size in chosen if is_padding(rung, size))
    reason = f"its bitrate would be higher than the {round(source.bps / 1000)} kbit/s of the source's video"
    made = tuple(each for each in chosen if each[0].name not in left_out)
    return made, tuple(LeftOut(name=name, reason=reason) for name in left_out)


def _enlarges(size: Scale, source: tuple[int, int]) -> bool:
    return size is not None and (size[1] > source[1] or (size[0] or 0) > source[0])

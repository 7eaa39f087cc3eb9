"""Presets: named spec files, built in (docs/config.md) or the user's own, and the values of ``--preset``.

A preset is the spec file ``NAME.toml``. A comment in the first line of the file is the preset's summary.
"""

import os
import re
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any, Final

from ...errors import UsageError
from .layers import spec_of
from .options import Kind, options_of
from .places import presets_folder
from .spec import TranscodeSpec
from .spec_file import KEYS_HELP, SpecFile, given_layer
from .spellings import BETWEEN, PRESET_NAMES
from .values import refusal

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
PRESETS_SCHEMA: Final = 1  #: The schema version of the output of ``codecfleet presets --json``


@dataclass(frozen=True, slots=True)
class PresetChoice:
    """The value of ``--preset``: a preset's name, a speed of 1 to 7, or both; a speed overrides the preset's speed."""

    name: str | None = None
    speed: int | None = None


@dataclass(frozen=True, slots=True)
class NamedPreset:
    """A named spec file."""

    name: str
    path: Path
    is_own: bool  #: Whether the user made the preset
    hides: bool  #: Whether the preset replaces a built-in preset of the same name

    @property
    def text(self) -> str:
        """The file's text."""
        return SpecFile.read(self.path).file.text

    @property
    def codec(self) -> str:
        """The preset's codec; "" if the container decides."""
        return str(SpecFile.read(self.path).fields.get("codec", ""))

    @property
    def summary(self) -> str:
        """The preset's purpose: the first line of the file, if that is a comment."""
        first = self.text.partition("\n")[0]
        return first.removeprefix("#").strip() if first.startswith("#") else ""

    def to_json(self) -> dict[str, Any]:
        """Return the preset as JSON values."""
        return {
            "name": self.name,
            "codec": self.codec or None,
            "for": self.summary,
            "path": str(self.path),
            "is_own": self.is_own,
            "hides": self.hides,
        }


def find_presets(own_folder: Path | None) -> dict[str, NamedPreset]:
    """Return all presets by name. The user's presets replace built-in ones. Raises UsageError: a name is invalid."""
    built_in = _presets_in(Path(str(files(f"{__name__.split('.')[0]}.configs").joinpath("presets"))))
    own = {} if own_folder is None else _presets_in(own_folder)
    for name, path in own.items():
        if not _NAME.fullmatch(name) or _is_speed(name):
            reason = "the name of a speed" if _is_speed(name) else "not made of letters, digits, dots and dashes"
            raise UsageError(f"the name of the preset {path} is {reason}", "Rename the file.")
    found = {
        name: NamedPreset(name, path, is_own=name in own, hides=name in own and name in built_in)
        for name, path in (built_in | own).items()
    }
    return dict(sorted(found.items()))


def _presets_in(folder: Path) -> dict[str, Path]:
    return {path.stem: path for path in folder.glob("*.toml")}


def preset_named(name: str, own_folder: Path | None, asked_by: str = "--preset") -> NamedPreset:
    """Return a preset. Raises UsageError: there is no such preset; the message names the option ``asked_by``."""
    presets = find_presets(own_folder)
    if name in presets:
        return presets[name]
    near = get_close_matches(name, [*presets, *PRESET_NAMES], n=1)
    listed = f"Choose {', '.join(presets)}; `codecfleet presets` says what each is for. A speed is 1 to 7."
    raise UsageError(f"{asked_by}: there is no preset {name}", f"Did you mean {near[0]}?" if near else listed)


def load_preset(
    name: str, *, source: str | PathLike[str], output: str | PathLike[str], **overrides: object
) -> TranscodeSpec:
    """Return the spec that a preset (built in, or the user's own) describes for one input and output.

    Args:
        name: as ``codecfleet presets`` lists it.
        source: as in ``TranscodeSpec``.
        output: as in ``TranscodeSpec``.
        overrides: as in ``load_spec``.

    Raises:
        UsageError: there is no such preset, or its file or a field is invalid.
    """
    preset = preset_named(name, presets_folder(os.environ), "name")
    given = given_layer(source, output, overrides)
    return spec_of(TranscodeSpec, [SpecFile.read(preset.path).layer, given], KEYS_HELP)


def read_choice(name: str, raw: object) -> PresetChoice:
    """Parse a value of ``--preset``; the preset need not exist.

    Raises UsageError: the value is neither a name nor a speed.
    """
    words = _words_of(name, raw)
    names = [word for word in words if _NAME.fullmatch(word) and not _is_speed(word)]
    speeds = [_speed(name, word) for word in words if word not in names]
    if not words or len(names) > 1 or len(speeds) > 1:
        raise refusal(name, ", ".join(words), "not one preset", "Give a preset's name, a speed, or both.")
    return PresetChoice(next(iter(names), None), next(iter(speeds), None))


def _words_of(name: str, raw: object) -> list[str]:
    """Split a value into words.

    The command line gives a list, a variable gives text, and TOML gives text, a number or a list.
    """
    items: list[Any] = raw.split(",") if isinstance(raw, str) else raw if isinstance(raw, list) else [raw]
    if not all(isinstance(item, str | int) and not isinstance(item, bool) for item in items):
        raise refusal(name, str(raw), "neither a preset's name nor a speed", 'Write "web-h264", 5, or ["web-h264", 5].')
    return [str(item).strip() for item in items]


def _speed(name: str, word: str) -> int:
    speed: int = _SPEED.read(name, word)
    return speed


def _is_speed(word: str) -> bool:
    if word.lower() in BETWEEN:
        return True  # a speed of x264 that lies between two numbers; ``_speed`` refuses it, and names the numbers
    try:
        _speed("", word)
    except UsageError:
        return False
    return True


_SPEED: Final = options_of(TranscodeSpec)["preset"].kind
PRESETS: Final = Kind(
    "1..7|NAME",
    "1 to 7, x264's name for the speed, a preset's name, or a list of a speed and a name",
    read_choice,
    is_list=True,
)

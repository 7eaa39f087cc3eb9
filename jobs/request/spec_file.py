"""Specs in files: a TOML file whose keys are the options of ``codecfleet transcode``, for jobs that come again.

docs/config.md lists every key. Values are written as on the command line, numbers without quotes too.
"""

from dataclasses import dataclass
from os import PathLike
from typing import Any, Final, Self, TypeVar

from ...cluster.toml_file import TomlFile, read_toml
from ...errors import UsageError
from .options import Speller, build, options_of
from .spec import JobOptions, TranscodeSpec
from .spellings import name_for

ModelT = TypeVar("ModelT", bound=JobOptions)
_HELP: Final = "docs/config.md lists the keys and their values."
KEYS: Final = {option.key: field for field, option in options_of(TranscodeSpec).items() if option.key}
"""The field of ``TranscodeSpec`` that each key sets."""


def load_spec(
    path: str | PathLike[str], *, source: str | PathLike[str], output: str | PathLike[str], **overrides: object
) -> TranscodeSpec:
    """Return the spec that a TOML file describes, for one input and output.

    Args:
        path: the file, which names neither input nor output.
        source: as in ``TranscodeSpec``.
        output: as in ``TranscodeSpec``.
        overrides: fields of ``TranscodeSpec`` that replace the file's; a bitrate also its quality, and a quality its
            bitrate.

    Raises:
        UsageError: the file cannot be read, is not TOML, has a key or a value that makes no sense; or the fields do
            not fit together.
    """
    return SpecFile.read(path).spec({"source": source, "output": output, **overrides}, str, TranscodeSpec)


def left_by(fields: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return what of some fields still counts beside those ``given``: a quality also ends a bitrate, and back."""
    replaced = {"quality": "bitrate_bps", "bitrate_bps": "quality"}
    ended = {replaced[field] for field in given.keys() & replaced}
    return {field: value for field, value in fields.items() if field not in given.keys() | ended}


@dataclass(frozen=True, slots=True)
class SpecFile:
    """A spec file's fields."""

    file: TomlFile
    fields: dict[str, Any]

    @classmethod
    def read(cls, path: str | PathLike[str]) -> Self:
        """Read a file; raises ``UsageError`` as ``load_spec`` does."""
        # A float would round times and rates; as text they reach the same parsers as the command line's.
        file = read_toml(
            "spec", path, missing="Check the path.", wrong='Text stands in quotes: start = "1:30".', parse_float=str
        )
        options = options_of(TranscodeSpec)
        fields = {}
        for key, value in file.tables.items():
            if key not in KEYS:
                raise unknown_key(file.place(key), key)
            fields[KEYS[key]] = options[KEYS[key]].kind.read(_spelled(file, key), value)
        return cls(file, fields)

    def spec(self, given: dict[str, Any], spell: Speller, model: type[ModelT]) -> ModelT:
        """Return the spec of the file's fields and those ``given``, which count instead and are spelled by ``spell``.

        Raises:
            UsageError: the fields do not fit together, or one that was given makes no sense.
        """
        own = left_by(self.fields, given)

        def spelled(field: str) -> str:
            return _spelled(self.file, options_of(TranscodeSpec)[field].key) if field in own else spell(field)

        return build(model, own | given, spelled, _HELP)


def _spelled(file: TomlFile, key: str) -> str:
    return f"{key} ({file.place(key)})"


def unknown_key(place: str, key: str) -> UsageError:
    """Return the error of a key that is none of an option's, at a place in words."""
    message = f"{place}: there is no key {key}"
    if key in ("source", "output"):
        return UsageError(message, "Input and output are given with each job, not in its spec.")
    ours = name_for(key, KEYS, {field: each for each, field in KEYS.items()})
    return UsageError(message, f"Did you mean {ours}?" if ours else _HELP)

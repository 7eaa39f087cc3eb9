"""Specs in files: TOML whose keys are the options of ``codecfleet transcode``, written alike: docs/config.md."""

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, Final, Self

from ...cluster.toml_file import TomlFile, read_toml
from ...errors import UsageError
from .layers import Layer, spec_of
from .options import options_of, with_own_names
from .spec import TranscodeSpec
from .spellings import name_for

KEYS_HELP: Final = "docs/config.md lists the keys and their values."
KEYS: Final = {option.key: field for field, option in options_of(TranscodeSpec).items() if option.key}
"""The field of ``TranscodeSpec`` that each key sets."""
KEY_ALIASES: Final = {alias: option.key for option in options_of(TranscodeSpec).values() for alias in option.also}
"""The key that each other name of one stands for."""


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
    return spec_of(TranscodeSpec, [SpecFile.read(path).layer, given_layer(source, output, overrides)], KEYS_HELP)


def given_layer(source: str | PathLike[str], output: str | PathLike[str], overrides: Mapping[str, object]) -> Layer:
    """Return what a call gives beside a file. Raises UsageError: a field is given under two names."""
    aliases = {alias: KEYS[key] for alias, key in KEY_ALIASES.items()}
    return Layer(_own_names({"source": source, "output": output, **overrides}, aliases), str)


def own_keys(given: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return what a file has under its keys' own names; ``place`` is for the UsageError about one given twice."""
    return _own_names(given, KEY_ALIASES, f"{place}: ")


def _own_names(given: Mapping[str, Any], aliases: Mapping[str, str], place: str = "") -> dict[str, Any]:
    try:
        return with_own_names(given, aliases)
    except ValueError as error:
        raise UsageError(f"{place}{error}", KEYS_HELP) from None


@dataclass(frozen=True, slots=True)
class SpecFile:
    """A spec file's fields."""

    file: TomlFile
    fields: dict[str, Any]

    @classmethod
    def read(cls, path: str | PathLike[str], text: str | None = None) -> Self:
        """Read a file, or the ``text`` of one that lies elsewhere; raises ``UsageError`` as ``load_spec`` does."""
        # A float would round times and rates; as text they reach the same parsers as the command line's.
        file = read_toml(
            "spec",
            path,
            missing="Check the path.",
            wrong='Text stands in quotes: start = "1:30".',
            parse_float=str,
            text=text,
        )
        options = options_of(TranscodeSpec)
        fields = {}
        for key, value in own_keys(file.tables, str(path)).items():
            if key not in KEYS:
                raise unknown_key(file.place(key), key)
            fields[KEYS[key]] = options[KEYS[key]].kind.read(_spelled(file, key), value)
        return cls(file, fields)

    @property
    def layer(self) -> Layer:
        """Its fields, named with file and line."""
        return Layer(self.fields, lambda field: _spelled(self.file, options_of(TranscodeSpec)[field].key))


def _spelled(file: TomlFile, key: str) -> str:
    return f"{key} ({file.place(key)})"


def unknown_key(place: str, key: str) -> UsageError:
    """Return the error of a key that is none of an option's, at a place in words."""
    message = f"{place}: there is no key {key}"
    if key in ("source", "output"):
        return UsageError(message, "Input and output are given with each job, not in its spec.")
    near = name_for(key, KEYS, {field: each for each, field in KEYS.items()})
    return UsageError(message, f"Did you mean {near}?" if near else KEYS_HELP)

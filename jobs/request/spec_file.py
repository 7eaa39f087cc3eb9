"""Spec files: TOML with the options of ``codecfleet transcode`` as keys (docs/config.md)."""

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
"""The key for each alias."""


def load_spec(
    path: str | PathLike[str], *, source: str | PathLike[str], output: str | PathLike[str], **overrides: object
) -> TranscodeSpec:
    """Return the spec that a TOML file describes, for one input and output.

    Args:
        path: the file, which contains neither input nor output.
        source: as in ``TranscodeSpec``.
        output: as in ``TranscodeSpec``.
        overrides: fields of ``TranscodeSpec`` that replace those of the file; a bitrate also replaces the file's
            quality, and a quality replaces the bitrate.

    Raises:
        UsageError: the file cannot be read or is not TOML, a key or a value is invalid, or fields conflict.
    """
    return spec_of(TranscodeSpec, [SpecFile.read(path).layer, given_layer(source, output, overrides)], KEYS_HELP)


def given_layer(source: str | PathLike[str], output: str | PathLike[str], overrides: Mapping[str, object]) -> Layer:
    """Return the fields that a call gives. Raises UsageError: a field is given under two names."""
    aliases = {alias: KEYS[key] for alias, key in KEY_ALIASES.items()}
    return Layer(_own_names({"source": source, "output": output, **overrides}, aliases), str)


def own_keys(given: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Replace aliases by their keys. Raises UsageError: a key is given twice; ``place`` names the file."""
    return _own_names(given, KEY_ALIASES, f"{place}: ")


def _own_names(given: Mapping[str, Any], aliases: Mapping[str, str], place: str = "") -> dict[str, Any]:
    try:
        return with_own_names(given, aliases)
    except ValueError as error:
        raise UsageError(f"{place}{error}", KEYS_HELP) from None


@dataclass(frozen=True, slots=True)
class SpecFile:
    """A spec file that was read."""

    file: TomlFile
    fields: dict[str, Any]

    @classmethod
    def read(cls, path: str | PathLike[str], text: str | None = None) -> Self:
        """Read a file, or parse ``text`` instead. Raises the UsageErrors of ``load_spec``."""
        # A float would round times and rates, so numbers reach the command line's parsers as text.
        file = read_toml(
            "spec",
            path,
            missing="Check the path.",
            wrong='Write text in quotes: start = "1:30".',
            parse_float=str,
            text=text,
        )
        return cls(file, fields_of(file, file.tables))

    @property
    def layer(self) -> Layer:
        """The fields in the file. Errors name the fields with file and line."""
        return layer_of(self.file, self.fields)


def fields_of(file: TomlFile, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of ``TranscodeSpec`` that a table sets. Raises UsageError: a key or a value is wrong."""
    options = options_of(TranscodeSpec)
    fields = {}
    for key, value in own_keys(table, str(file.path)).items():
        if key not in KEYS:
            raise unknown_key(file.place(key), key)
        fields[KEYS[key]] = options[KEYS[key]].kind.read(_spelled(file, key), value)
    return fields


def layer_of(file: TomlFile, fields: Mapping[str, Any]) -> Layer:
    """Return fields of a file as a layer. Errors name the fields with file and line."""
    return Layer(fields, lambda field: _spelled(file, options_of(TranscodeSpec)[field].key))


def _spelled(file: TomlFile, key: str) -> str:
    return f"{key} ({file.place(key)})"


def unknown_key(place: str, key: str) -> UsageError:
    """Return the error for an unknown key at ``place``."""
    message = f"{place}: there is no key {key}"
    if key in ("source", "output"):
        return UsageError(message, "Give input and output with each job, not in its spec.")
    near = name_for(key, KEYS, {field: each for each, field in KEYS.items()})
    return UsageError(message, f"Did you mean {near}?" if near else KEYS_HELP)

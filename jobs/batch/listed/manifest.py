"""Reads lists of inputs line by line: CSV, JSONL, or a name on each line. Errors name the line."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from ....errors import UsageError
from ...request.options import FLAG, options_of
from ...request.spec import TranscodeSpec
from ...request.spec_file import KEY_ALIASES, KEYS, own_keys, unknown_key

SOURCE: Final = "source"
OUTPUT: Final = "output"
_FLAGS: Final = {"true": True, "false": False}
_OTHER_SEPARATORS: Final = frozenset(";\t|")
_SHOWN_CHARACTERS: Final = 60


class ManifestFormat(Enum):
    """The format of a list of inputs; the values are file extensions."""

    CSV = ".csv"
    JSONL = ".jsonl"
    PLAIN = ".txt"


@dataclass(frozen=True, slots=True)
class ManifestRow:
    """One line of a list: an input, with its output's name and its options."""

    source: str
    output: str = ""  #: "" if the template names the output
    overrides: str = "{}"  #: this input's options: a JSON object with the keys of a spec file
    place: str = ""  #: ``file:line``, for errors


def read_manifest(lines: Iterable[str], form: ManifestFormat, name: str) -> Iterator[ManifestRow]:
    """Yield the rows of a list, without empty lines and without the comments (#) of a plain list.

    ``name`` is the list's name in errors.

    Raises UsageError: a line is invalid.
    """
    lines = _unmarked(lines)
    match form:
        case ManifestFormat.CSV:
            yield from _csv_rows(lines, name)
        case ManifestFormat.JSONL:
            yield from _json_rows(lines, name)
        case ManifestFormat.PLAIN:
            yield from _plain_rows(lines, name)


def _unmarked(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines without the byte order mark that programs on Windows write at the beginning."""
    rows = iter(lines)
    if (first := next(rows, None)) is not None:
        yield first.removeprefix("\ufeff")
        yield from rows


def _plain_rows(lines: Iterable[str], name: str) -> Iterator[ManifestRow]:
    for number, line in enumerate(lines, 1):
        text = line.rstrip("\r\n")
        if text.strip() and not text.startswith("#"):
            yield ManifestRow(text, place=f"{name}:{number}")


def _csv_rows(lines: Iterable[str], name: str) -> Iterator[ManifestRow]:
    reader = csv.reader(lines, strict=True)
    try:
        header = next(reader, [])
        if len(header) == 1 and _OTHER_SEPARATORS.intersection(header[0]):
            message = f"{name}:1: the cells of {header[0][:_SHOWN_CHARACTERS]!r} are not separated by commas"
            raise UsageError(message, "Write for example source,quality,scale; a spreadsheet can be saved as CSV.")
        header = [KEY_ALIASES.get(key, key) for key in header]
        for key in header:
            _check_key(key, f"{name}:1")
        if SOURCE not in header or len(set(header)) < len(header):
            raise UsageError(
                f"{name}:1: the header needs one column named {SOURCE}, and no column twice",
                "Write for example source,quality,scale.",
            )
        for cells in reader:
            place = f"{name}:{reader.line_num}"
            if len(cells) > len(header):
                raise UsageError(
                    f"{place}: {len(cells)} cells for {len(header)} columns", "Quote cells that contain commas."
                )
            if any(cells):
                yield _row({key: cell for key, cell in zip(header, cells, strict=False) if cell}, place, _from_cell)
    except csv.Error as error:
        message = f"{name}:{reader.line_num}: not CSV: {error}"
        raise UsageError(message, "Quote cells that contain commas or quotes.") from None


def _json_rows(lines: Iterable[str], name: str) -> Iterator[ManifestRow]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"{name}:{number}"
        try:
            # decimal numbers are read as text, so that times and rates are exact
            values = json.loads(line, parse_float=str)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{place}: not JSON: {error}", 'Write {"source": "film.mkv"} on each line.') from None
        if not isinstance(values, dict):
            raise UsageError(f"{place}: not an object", 'Write {"source": "film.mkv"} on each line.')
        values = own_keys(values, place)
        for key in values:
            _check_key(key, place)
        yield _row({key: value for key, value in values.items() if value is not None}, place, lambda _, value: value)


def _check_key(key: str, place: str) -> None:
    if key not in (SOURCE, OUTPUT) and key not in KEYS:
        raise unknown_key(place, key)


def _row(values: dict[str, Any], place: str, converted: Callable[[str, Any], object]) -> ManifestRow:
    source, output = (values.pop(key, "") for key in (SOURCE, OUTPUT))
    for key, text in ((SOURCE, source), (OUTPUT, output)):
        if not isinstance(text, str) or "\0" in text:
            raise UsageError(f"{place}: {key} {str(text)[:_SHOWN_CHARACTERS]!r} is not a name", "Write text.")
    if not source.strip():
        raise UsageError(f"{place}: {SOURCE} is missing", "Name the input.")
    overrides = {key: converted(key, value) for key, value in sorted(values.items())}
    return ManifestRow(source, output, json.dumps(overrides), place)


def _from_cell(key: str, cell: str) -> object:
    """Return a cell's value as a spec file would state it; in a cell, spaces separate the items of a list or table."""
    option = options_of(TranscodeSpec)[KEYS[key]]
    if option.kind is FLAG:
        return _FLAGS.get(cell.lower(), cell)
    return cell.split() if option.kind.is_list else cell


def override_fields(overrides: str) -> dict[str, Any]:
    """Return the fields of ``TranscodeSpec`` that a row's overrides set. Raises UsageError: a value is invalid."""
    options = options_of(TranscodeSpec)
    values: dict[str, Any] = json.loads(overrides)
    return {KEYS[key]: options[KEYS[key]].kind.read(key, value) for key, value in values.items()}

"""Reads TOML files of users, with the same errors for all files."""

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ..errors import UsageError

ModelT = TypeVar("ModelT", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class TomlFile:
    """The tables of a TOML file, and its text, in which ``place`` finds line numbers."""

    path: Path
    text: str
    tables: dict[str, Any]

    def place(self, key: str) -> str:
        """Return ``file:line`` of a top-level key; only the file if the line is not found."""
        found = re.search(rf"""^[ \t]*\[?["']?{re.escape(key)}["']?[ \t]*[.=\]]""", self.text, re.MULTILINE)
        return str(self.path) if found is None else f"{self.path}:{self.text.count(chr(10), 0, found.start()) + 1}"


def read_toml(
    kind: str,
    path: str | PathLike[str],
    *,
    missing: str,
    wrong: str,
    parse_float: Callable[[str], Any],
    text: str | None = None,
) -> TomlFile:
    """Return the content of a TOML file.

    Args:
        kind: the role of the file, for messages: "the ``kind`` ``path`` cannot be read".
        path: the path of the file.
        missing: the next step if the file cannot be read.
        wrong: the next step if the file is not TOML.
        parse_float: converts numbers with a decimal point; ``str`` keeps every digit.
        text: the content, if the file is on another machine.

    Raises UsageError: the file cannot be read, or is not TOML.
    """
    if "\0" in str(path):
        raise UsageError(f"the {kind} {str(path)!r} cannot be read: its path has a NUL character", missing)
    try:
        text = Path(path).read_text(encoding="utf-8") if text is None else text
        return TomlFile(Path(path), text, tomllib.loads(text, parse_float=parse_float))
    except OSError as error:
        raise UsageError(f"the {kind} {path} cannot be read: {error.strerror}", missing) from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"the {kind} {path} is not valid TOML: {error}", wrong) from None


def load_model(
    kind: str,
    path: str | Path,
    model: type[ModelT],
    *,
    missing: str,
    wrong: str,
    parse_float: Callable[[str], Any] = float,
) -> ModelT:
    """Return the instance of ``model`` that a TOML file describes; the other arguments are for ``read_toml``.

    Raises UsageError: the file cannot be read, is not TOML, or has an invalid key or value.
    """
    file = read_toml(kind, path, missing=missing, wrong=wrong, parse_float=parse_float)
    try:
        return model.model_validate(file.tables)
    except ValidationError as error:
        where, message = first_problem(error)
        place = file.place(where[0]) if where else str(path)
        raise UsageError(": ".join((f"the {kind} {place}", *filter(None, [".".join(where)]), message)), wrong) from None


def first_problem(error: ValidationError) -> tuple[tuple[str, ...], str]:
    """Return the path of the keys (empty for the whole document) and the message of pydantic's first error."""
    first = error.errors()[0]
    message = str(first["msg"]).removeprefix("Value error, ")
    return tuple(str(part) for part in first["loc"]), f"{message[:1].lower()}{message[1:]}"

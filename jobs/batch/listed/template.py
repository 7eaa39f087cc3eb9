"""Names of outputs: a template and an input give a path below the output root, or a refusal. Pure."""

import posixpath
import re
from dataclasses import dataclass
from typing import Final, Self

from ....errors import UsageError
from ...carry.containers import EXTENSIONS

FIELDS: Final = ("dir", "stem", "ext")
_OTHERWISE: Final = "mp4"
_PIECE: Final = re.compile(r"\{\{|\}\}|\{[^{}]*\}|[{}]|[^{}]+")
_HOW: Final = "Write for example {dir}/{stem}.{ext}; a brace itself is doubled: {{."


@dataclass(frozen=True, slots=True)
class InputName:
    """How an input is called, as far as its output's name depends on it.

    ``folder`` is relative, with slashes, "" for none; ``suffix`` begins with its dot, "" for none.
    """

    folder: str
    stem: str
    suffix: str

    @classmethod
    def of(cls, path: str) -> Self:
        """Return the name of a relative path."""
        folder, name = posixpath.split(path)
        stem, suffix = posixpath.splitext(name)
        return cls(folder, stem, suffix)

    @property
    def path(self) -> str:
        """The relative path."""
        return posixpath.join(self.folder, f"{self.stem}{self.suffix}")

    @property
    def extension(self) -> str:
        """The extension of a container that can be written: the input's own, or mp4."""
        own = self.suffix.removeprefix(".").lower()
        return own if own in EXTENSIONS else _OTHERWISE


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template: literal texts, and fields as ``{name}``, by turns."""

    text: str
    pieces: tuple[tuple[str, str], ...]
    """(literal, field): the field follows the literal; "" where none does."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the template that a text is.

        Raises:
            UsageError: a brace is open, a field is unknown, or all outputs would have one name.
        """
        pieces, literal = [], ""
        for piece in _PIECE.findall(text):
            if piece in ("{{", "}}"):
                literal += piece[0]
            elif piece[0] not in "{}":
                literal += piece
            elif piece[1:-1] in FIELDS and len(piece) > 1:
                pieces.append((literal, piece[1:-1]))
                literal = ""
            else:
                raise _refused(text, f"has {piece}, and knows {{dir}}, {{stem}} and {{ext}}")
        check_relative(text, "--output-template")
        if not any(field == "stem" for _, field in pieces):
            raise _refused(text, "gives every input of a folder one name: {stem} is missing")
        return cls(text, (*pieces, (literal, "")))

    def output(self, name: InputName) -> str:
        """Return the output's path below the root.

        Raises:
            UsageError: it would leave the root, or name a folder.
        """
        values = {"dir": name.folder, "stem": name.stem, "ext": name.extension, "": ""}
        return below_root("".join(literal + values[field] for literal, field in self.pieces), self.text)


def check_relative(path: str, what: str) -> None:
    """Make sure that a path or template has no root of its own.

    Raises:
        UsageError: it is absolute, or a URL.
    """
    if path.startswith("/") or "://" in path:
        raise UsageError(f"{what} {path!r} has a root of its own", "Outputs lie below --output: write a relative path.")


def below_root(path: str, origin: str) -> str:
    """Return a relative path without empty parts, which stays below whatever root it is put under.

    Args:
        path: with slashes; empty parts and ``.`` are left out, so that ``/a`` of an empty ``{dir}`` is ``a``.
        origin: what gave it, for the error.

    Raises:
        UsageError: it leads upwards or is not the name of a file.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise UsageError(f"{origin!r} gives {path!r}, which leads out of the output folder", "Leave .. out.")
    if not parts or path.endswith(("/", "/.")) or "\0" in path:
        raise UsageError(f"{origin!r} gives {path!r}, which is not the name of a file", _HOW)
    return "/".join(parts)


def _refused(text: str, reason: str) -> UsageError:
    return UsageError(f"--output-template {text!r} {reason}", _HOW)

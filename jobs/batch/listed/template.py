"""Makes the path of an output below the output root, from a template and the input's name. Pure."""

import posixpath
from dataclasses import dataclass
from string import Formatter
from typing import Final, Self

from ....errors import UsageError
from ...carry.containers import EXTENSIONS

FIELDS: Final = ("dir", "stem", "ext")
_OTHERWISE: Final = "mp4"
_KNOWN: Final = "it may have {dir}, {stem} and {ext}"
_HOW: Final = "Write for example {dir}/{stem}.{ext}; write {{ for a brace."


@dataclass(frozen=True, slots=True)
class InputName:
    """The parts of an input's name that a template can use."""

    folder: str  #: relative, with slashes; "" for the root itself
    stem: str
    suffix: str  #: with the dot; "" if there is no extension

    @classmethod
    def of(cls, path: str) -> Self:
        """Split a relative path into the parts of a name."""
        folder, name = posixpath.split(path)
        stem, suffix = posixpath.splitext(name)
        return cls(folder, stem, suffix)

    @property
    def path(self) -> str:
        """The input's path, relative to the root."""
        return posixpath.join(self.folder, f"{self.stem}{self.suffix}")

    @property
    def extension(self) -> str:
        """The input's extension if codecfleet can write that container, otherwise mp4."""
        own = self.suffix.removeprefix(".").lower()
        return own if own in EXTENSIONS else _OTHERWISE


@dataclass(frozen=True, slots=True)
class Template:
    """A checked template: a format string with the fields ``FIELDS``."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the template.

        Raises UsageError: ``text`` has an unbalanced brace or an unknown field, or lacks ``{stem}``.
        """
        try:
            fields = [each for _, *each in Formatter().parse(text) if each[0] is not None]
        except ValueError:
            raise _refused(text, f"has an unbalanced brace or an incomplete conversion; {_KNOWN}") from None
        for name, form, conversion in fields:
            if name not in FIELDS or form or conversion:
                stated = f"{name}{'!' if conversion else ''}{conversion or ''}{':' if form else ''}{form or ''}"
                raise _refused(text, f"has {{{stated}}}; {_KNOWN}")
        check_relative(text, "--output-template")
        if "stem" not in (name for name, *_ in fields):
            raise _refused(text, "gives all inputs of a folder the same name: {stem} is missing")
        return cls(text)

    def output(self, name: InputName) -> str:
        """Return the output's path below the root. Raises UsageError: the path leaves the root, or names a folder."""
        return below_root(self.text.format(dir=name.folder, stem=name.stem, ext=name.extension), self.text)


def check_relative(path: str, what: str) -> None:
    """Raise UsageError if a path or template is absolute, or a URL."""
    if path.startswith("/") or "://" in path:
        raise UsageError(f"{what} {path!r} is absolute or a URL", "Write a path relative to --output.")


def below_root(path: str, origin: str) -> str:
    """Return a relative path without empty parts and ``.``: with an empty ``{dir}``, ``/a`` becomes ``a``.

    Raises UsageError: the path leads upwards or does not name a file; the error names ``origin``.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise UsageError(f"{origin!r} gives {path!r}, which leads out of the output folder", "Leave .. out.")
    if not parts or path.endswith(("/", "/.")) or "\0" in path:
        raise UsageError(f"{origin!r} gives {path!r}, which is not the name of a file", _HOW)
    return "/".join(parts)


def _refused(text: str, reason: str) -> UsageError:
    return UsageError(f"--output-template {text!r} {reason}", _HOW)

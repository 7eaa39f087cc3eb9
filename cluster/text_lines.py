"""Lines of text for people: wrapped to a width that every terminal has."""

import textwrap
from typing import Final

__all__ = ["WIDTH", "gigabytes", "wrapped"]

WIDTH: Final = 80


def gigabytes(size_bytes: int) -> str:
    """Return a size as ``25.3 GB``, decimal."""
    return f"{size_bytes / 1e9:.1f} GB"


def wrapped(text: str, first: str, indent: int | None = None) -> list[str]:
    """Return ``text`` after ``first``, in lines of at most ``WIDTH``; the others are indented by ``indent`` columns.

    Words are never cut: a UUID or a file name that is longer than a line stands alone on it.
    """
    hanging = " " * (len(first) + 2 if indent is None else indent)
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )

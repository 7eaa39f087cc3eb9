"""Text for terminals, wrapped to a fixed width."""

import textwrap
from typing import Final

WIDTH: Final = 80


def gigabytes(size_bytes: int) -> str:
    """Return a size in decimal gigabytes, such as ``25.3 GB``."""
    return f"{size_bytes / 1e9:.1f} GB"


def wrapped(text: str, first: str, indent: int | None = None) -> list[str]:
    """Return ``text`` with the prefix ``first``, in lines of at most ``WIDTH`` columns.

    Later lines are indented by ``indent`` columns, by default by two more than the length of ``first``. Words are never
    split; a word that is too long gets a separate line.
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

"""Values that only the command line has: pairs, and names of files; ``jobs.values`` parses all others.

Every parser is pure and takes the option's name for its error.
"""

import re
from collections.abc import Sequence

from ..errors import UsageError
from ..jobs.request.values import (
    parse_choice,
    parse_count,
    parse_counts,
    parse_rate,
    parse_size,
    parse_time,
    refusal,
    refuse_repeats,
)

__all__ = [
    "parse_choice",
    "parse_count",
    "parse_counts",
    "parse_pair",
    "parse_pairs",
    "parse_path",
    "parse_rate",
    "parse_size",
    "parse_time",
]

_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")


def parse_pair(option: str, text: str) -> tuple[str, str]:
    """Return (key, value) of ``key=value``; the value may hold more ``=`` signs.

    Raises:
        UsageError: there is no ``=``, no value, or the key has characters no encoder option has.
    """
    key, sign, value = text.partition("=")
    if not sign or not value or _KEY.fullmatch(key) is None:
        raise refusal(option, text, "not of the form KEY=VALUE", "Write for example tune=film.")
    return key, value


def parse_pairs(option: str, texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the pairs of an option that may be repeated, in the order given.

    Raises:
        UsageError: one is not ``key=value``, or a key is given twice.
    """
    pairs = tuple(parse_pair(option, text) for text in texts)
    refuse_repeats(option, [key for key, _ in pairs])
    return pairs


def parse_path(option: str, text: str) -> str:
    """Return ``text`` when it can name a file.

    Raises:
        UsageError: it is empty, holds a NUL, or looks like an option that lacks its value.
    """
    if not text.strip():
        message = f"{option} is empty"
        raise UsageError(message, "Name a file.")
    if "\0" in text:
        raise refusal(option, text, "not a file name", "Leave the NUL character out.")
    if text.startswith("-") and option.startswith("-"):
        raise refusal(option, text, "an option, not a file name", f"Write ./{text} if the file has that name.")
    return text

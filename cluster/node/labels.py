"""Labels of a node in Ray's syntax, which is that of Kubernetes ("Labels and Selectors", Syntax and character set)."""

import re
from collections.abc import Iterable
from typing import Final

from ...errors import UsageError

_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_PREFIX: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_PREFIX_MAX: Final = 253
PREFIX, RESERVED = "codecfleet/", "ray.io/"
"""How our own labels begin, and Ray's."""
ENCODES, DECODES = f"{PREFIX}encodes-", f"{PREFIX}decodes-"
"""How a label begins for each codec that a GPU of the node encodes, or decodes."""
_SYNTAX: Final = (
    "Write KEY=VALUE; both are letters, digits, `-`, `_` and `.`, 63 at most; KEY may begin with a domain and /."
)


def is_label_value(text: str) -> bool:
    """Return whether a node's label may have this value."""
    return text == "" or _NAME.fullmatch(text) is not None


def parse_labels(given: Iterable[str]) -> dict[str, str]:
    """Return labels that are written as KEY=VALUE; the last of a key counts.

    Raises:
        UsageError: one is not a label, or its key is one of Ray's own.
    """
    return dict(_label(each) for each in given)


def parse_zone(text: str) -> str:
    """Return the name of a zone, "" for none.

    Raises:
        UsageError: a label cannot have it as its value.
    """
    if not is_label_value(text):
        raise UsageError(
            f"--zone {text!r} is not the name of a zone", "Write letters, digits, `-`, `_` and `.`, 63 at most."
        )
    return text


def _label(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    prefix, slash, name = key.rpartition("/")
    fits = not slash or (len(prefix) <= _PREFIX_MAX and _PREFIX.fullmatch(prefix) is not None)
    if not separator or not fits or _NAME.fullmatch(name) is None or not is_label_value(value):
        raise UsageError(f"--label {text!r} is not a label", _SYNTAX)
    if key.startswith(RESERVED):
        raise UsageError(f"--label {text!r}: labels of {RESERVED} are Ray's own", "Use --zone for the zone.")
    return key, value

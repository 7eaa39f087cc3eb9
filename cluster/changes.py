"""What has changed among named values since a message, so that the next one need not repeat the rest.

A change is told with every message until the other side is known to have one that told of it. So a message can be taken
in after that one, or after any between.
"""

from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

ValueT = TypeVar("ValueT")

OVER_KEPT = 4096
"""How many names are kept that are gone: one who has not heard of more is told everything."""


class Changed(NamedTuple, Generic[ValueT]):
    """The values that have changed or come, by name, and the names that are gone."""

    values: dict[str, ValueT]
    over: tuple[str, ...]


class Changes(Generic[ValueT]):
    """Named values, and before which message each has changed; messages have numbers that grow."""

    def __init__(self) -> None:
        self._values: dict[str, ValueT] = {}
        self._changed_at: dict[str, int] = {}
        self._over_at: dict[str, int] = {}
        self._first: int | None = None
        self._newest = 0

    def note(self, number: int, values: Mapping[str, ValueT]) -> None:
        """Take the values of message ``number``, which is newer than any before."""
        before = self._values
        for name, value in values.items():
            if name not in before or (before[name] is not value and before[name] != value):
                self._changed_at[name] = number
                self._over_at.pop(name, None)
        for name in before.keys() - values.keys():
            del self._changed_at[name]
            self._over_at[name] = number
        self._first = number if self._first is None else self._first
        self._values, self._newest = dict(values), number
        while len(self._over_at) > OVER_KEPT:
            self._first = self._over_at.pop(next(iter(self._over_at)))

    def since(self, number: int) -> Changed[ValueT] | None:
        """Return what has changed since a message that was noted; None where that is not known."""
        if self._first is None or not self._first <= number <= self._newest:
            return None
        values = {name: self._values[name] for name, changed_at in self._changed_at.items() if changed_at > number}
        return Changed(values, tuple(name for name, over_at in self._over_at.items() if over_at > number))

"""Groups equal machines, devices and faults, so that commands print each group once."""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

_NUMBERED: Final = re.compile(r"^(.*?)(\d+)(\D*)$", re.DOTALL)
_RUN_LEAST: Final = 3
_PARTS_MOST: Final = 4


def counted(count: int, noun: str) -> str:
    """Return ``1 node`` or ``2 nodes``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def tallied(kinds: Iterable[str]) -> list[str]:
    """Return each kind once, with its count, such as ``2 x NVIDIA L4``; the kinds are in order of first appearance."""
    return [f"{count} x {kind}" for kind, count in Counter(kinds).items()]


def equal_groups(items: Iterable[T], key: Callable[[T], Hashable]) -> list[tuple[T, ...]]:
    """Return groups of items with equal keys; groups and members keep the order of the items."""
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return [tuple(group) for group in groups.values()]


def short_names(names: Iterable[str]) -> str:
    """Return names in one line, each once; three or more in sequence become ``gpu-017 ... gpu-024``.

    At most four names or sequences are shown; the remaining names are only counted.
    """
    parts = [part for run in _runs(list(dict.fromkeys(names))) for part in _parts(run)]
    if len(parts) <= _PARTS_MOST:
        return ", ".join(text for text, _ in parts)
    rest = sum(count for _, count in parts[_PARTS_MOST - 1 :])
    return ", ".join([*(text for text, _ in parts[: _PARTS_MOST - 1]), f"and {rest} more"])


def named_nodes(names: Sequence[str]) -> str:
    """Return ``node gpu-1``, or ``8 nodes: gpu-017 ... gpu-024``."""
    different = list(dict.fromkeys(names))
    return f"node {different[0]}" if len(different) == 1 else f"{len(different)} nodes: {short_names(different)}"


def number_ranges(numbers: Iterable[int]) -> str:
    """Return numbers as text; consecutive numbers become ranges: ``0-3, 7``."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ", ".join("-".join(map(str, part)) for part in parts)


def _parts(run: Sequence[str]) -> list[tuple[str, int]]:
    """Return the texts that stand for a run of names, each with the number of its names."""
    if len(run) >= _RUN_LEAST:
        return [(f"{run[0]} ... {run[-1]}", len(run))]
    return [(name, 1) for name in run]


def _runs(names: list[str]) -> Iterator[list[str]]:
    """Yield names in runs of consecutive numbers; a name without a number forms its own run."""
    run: list[str] = []
    expected: tuple[str, str, int] | None = None
    for name in sorted(names, key=_natural):
        place = _place(name)
        if run and (place is None or place != expected):
            yield run
            run = []
        run.append(name)
        expected = None if place is None else (place[0], place[1], place[2] + 1)
    if run:
        yield run


def _place(name: str) -> tuple[str, str, int] | None:
    found = _NUMBERED.match(name)
    return None if found is None else (found[1], found[3], int(found[2]))


def _natural(name: str) -> tuple[str, str, int, str]:
    place = _place(name)
    return (name, "", 0, name) if place is None else (*place, name)

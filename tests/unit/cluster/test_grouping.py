"""Equal things are listed once: short names, and groups that lose no member."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.grouping import counted, equal_groups, named_nodes, number_ranges, short_names


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["a"], "a"),
        (["n-1", "n-2"], "n-1, n-2"),
        (["n-1", "n-2", "n-3"], "n-1 ... n-3"),
        ([f"gpu-{n:03}" for n in range(17, 25)], "gpu-017 ... gpu-024"),
        (["n-1", "n-10", "n-11", "n-2", "n-3", "n-12"], "n-1 ... n-3, n-10 ... n-12"),
        (["10.0.0.7", "10.0.0.8", "10.0.0.9"], "10.0.0.7 ... 10.0.0.9"),
        (["x1.example", "x2.example", "x3.example"], "x1.example ... x3.example"),
        (["head", "n-1", "n-1"], "head, n-1"),
        (["a", "b", "c", "d"], "a, b, c, d"),
        (["a", "b", "c", "d", "n-1", "n-2", "n-3"], "a, b, c, and 4 more"),
    ],
)
def test_names_that_count_up_are_a_range(names: list[str], text: str) -> None:
    """Three or more names in sequence become a range, equal names appear once, and the rest is counted."""
    assert short_names(names) == text


def test_nodes_are_counted_before_they_are_named() -> None:
    """A single node is named; several nodes are first counted."""
    assert named_nodes(["gpu-1", "gpu-1"]) == "node gpu-1"
    assert named_nodes([f"gpu-{n:03}" for n in range(17, 25)]) == "8 nodes: gpu-017 ... gpu-024"


def test_one_is_singular() -> None:
    """The noun agrees with the count."""
    assert [counted(count, "node") for count in (0, 1, 2)] == ["0 nodes", "1 node", "2 nodes"]


@given(st.lists(st.integers(0, 9)))
def test_groups_keep_everything_in_order(items: list[int]) -> None:
    """Each item is in the group of its key, and groups are in the order of their first members."""
    groups = equal_groups(items, lambda item: item % 3)
    assert sorted(item for group in groups for item in group) == sorted(items)
    assert [group[0] % 3 for group in groups] == list(dict.fromkeys(item % 3 for item in items))
    assert all(list(group) == [item for item in items if item % 3 == group[0] % 3] for group in groups)


@given(st.sets(st.integers(0, 60)))
def test_ranges_name_every_number(numbers: set[int]) -> None:
    """The ranges give the same numbers when parsed, and no two of them touch."""
    pairs = [tuple(map(int, part.split("-"))) for part in number_ranges(numbers).split(", ") if part]
    assert {n for pair in pairs for n in range(pair[0], pair[-1] + 1)} == numbers
    assert all(left[-1] + 1 < right[0] for left, right in itertools.pairwise(pairs))


@given(st.sets(st.integers(0, 30), max_size=12))
def test_short_names_stand_for_every_name(numbers: set[int]) -> None:
    """The names in ranges and in counts add up to all names."""
    stands_for = 0
    for part in short_names(f"n-{number}" for number in numbers).split(", "):
        if part.startswith("and "):
            stands_for += int(part.split()[1])
        elif " ... " in part:
            first, last = (int(end.removeprefix("n-")) for end in part.split(" ... "))
            stands_for += last - first + 1
        else:
            stands_for += bool(part)
    assert stands_for == len(numbers)

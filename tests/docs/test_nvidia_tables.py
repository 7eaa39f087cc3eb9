"""The tables of docs/nvidia: each row works and is tested, or says why not; none of the documents' items is missing."""

import re

import pytest

from .nvidia_tables import ITEMS, NEWER, PAGES, count_table, counted, rows, unreachable, untested
from .test_option_tables import held

NOT_BUILT_MAX = 10
COMPLETE = ("4", "5")
"""The chapters of CUDA for Tegra that are built completely: EGL and cuDLA."""


@pytest.mark.parametrize("page", ITEMS)
def test_every_item_has_its_row(page: str) -> None:
    """A page has one row for each item of its document, with the item's section."""
    found = [row for row in rows(page) if row.section != NEWER]
    assert len(found) == ITEMS[page]
    assert [row.place for row in found if not (re.fullmatch(r"\d+(\.\d+)*", row.section) and row.item)] == []
    said = [(row.section, row.item) for row in rows(page)]
    assert sorted(key for key in set(said) if said.count(key) > 1) == []


@pytest.mark.parametrize("page", ITEMS)
def test_every_row_is_reached_and_tested(page: str) -> None:
    """The code that a row names exists, and the row's test or result exists."""
    wrong = [f"{row.place}: {why}" for row in rows(page) for why in (*unreachable(row), *untested(row))]
    assert wrong == []


def test_what_is_not_built_has_a_reason_that_is_not_itself() -> None:
    """Few items are not built, none of EGL, cuDLA or compatibility; each reason says more than that it is not built."""
    missing = [(page, row) for page in ITEMS for row in rows(page) if row.state == "not built" and row.section != NEWER]
    assert len(missing) <= NOT_BUILT_MAX
    for page, row in missing:
        assert page != "cuda-compatibility.md", row.place
        assert page != "tegra.md" or not row.section.startswith(COMPLETE), row.place
        reason = row.reached_by.removeprefix("not built: ")
        assert len(reason.split()) > 1, row.place
        assert "not built" not in reason, row.place


def test_the_counts_are_those_of_the_tables() -> None:
    """docs/nvidia/README.md says how many items of each document there are, work, and are not built."""
    path = PAGES / "README.md"
    text = path.read_text(encoding="utf-8")
    wanted = re.sub(r"(<!-- counts -->).*?(<!-- end -->)", rf"\1\n{count_table()}\n\2", text, flags=re.DOTALL)
    assert held(path, wanted), "make docs writes it"
    assert sum(counted(page).total() for page in ITEMS) == sum(ITEMS.values())

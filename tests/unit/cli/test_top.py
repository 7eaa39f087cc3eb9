"""``codecfleet top``: the content of the screen for given statuses."""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from codecfleet.cluster.supervisor.status import Status
from codecfleet.console.top import heading, screen_lines, shared_rows, tables

from .large_fleet import SICK, device, job, large_fleet, worker

GOLDEN = Path(__file__).parents[2] / "golden" / "pages" / "top.txt"
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
LARGE = large_fleet()


def first_cells(status: Status, table: str) -> list[str]:
    """Return the first cells of a table's rows."""
    return next([row.cells[0] for row in each.rows] for each in tables(status) if each.columns[0] == table)


def test_a_large_fleet_on_a_small_terminal() -> None:
    """A screen of 80 x 23 has the totals and, in each table, broken entries first, then the busiest, with the count.

    The screen is in tests/golden/pages/top.txt, which ``UPDATE_GOLDEN=1`` writes again.
    """
    text = "".join(f"{line}\n" for line in screen_lines(LARGE, width=80, height=23, colour=False))
    if os.environ.get("UPDATE_GOLDEN") == "1":
        GOLDEN.write_text(text, encoding="utf-8")
    assert GOLDEN.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("colour", [False, True])
@settings(max_examples=20)
@given(width=st.integers(20, 200), height=st.integers(1, 80))
def test_nothing_leaves_the_screen(colour: bool, width: int, height: int) -> None:  # noqa: FBT001 - a parameter
    """The lines fit a screen of any width and height."""
    lines = screen_lines(LARGE, width=width, height=height, colour=colour)
    assert len(lines) <= height
    assert all(cell_len(ESCAPES.sub("", line)) <= width for line in lines)
    assert height < 20 or len(lines) == height


def test_without_a_height_all_is_there() -> None:
    """Without a height, as in a file, every row is written."""
    lines = screen_lines(LARGE, width=110, height=None, colour=False)
    assert len(lines) == len(heading(LARGE)) + sum(1 + len(table.rows) for table in tables(LARGE))


def test_colours_are_those_of_trouble() -> None:
    """Broken entries are red, those that wait or get no new work are yellow, and all others have no colour."""
    lines = screen_lines(LARGE, width=110, height=60, colour=True)
    assert {line.partition(" ")[0] for line in lines if line.startswith("\x1b[31m")} == {
        f"\x1b[31m{name}" for name in ("L4", "gpu-111", "gpu-33/cpu#0")
    }
    assert {line.partition(" ")[0] for line in lines if line.startswith("\x1b[33m")} == {
        f"\x1b[33m{name}" for name in ("00000003", "gpu-250")
    }


def test_a_device_that_is_held_down_comes_before_busier_ones() -> None:
    """Devices in quarantine, under an order or with limited clocks come first, then the others, the busiest first."""
    given_ = (
        device(1, use={"nvdec": {"percent": 10}}),
        device(2, use={"nvdec": {"percent": 5}, "nvenc": {"percent": 80}}),
        device(3, throttle="thermal"),
        device(4, state="cordoned"),
        device(5, state="draining"),
        device(SICK),
        device(6, use={}, memory={}, encoder_sessions={}),
    )
    found = first_cells(replace(LARGE, devices=given_), "device on")
    assert found == ["gpu-111", "gpu-5", "gpu-4", "gpu-3", "gpu-2", "gpu-1", "gpu-6"]


def test_empty_stations_are_not_shown() -> None:
    """A station without a process does not count as a worker."""
    status = replace(LARGE, workers=(worker(0), replace(worker(1), state="empty")))
    assert first_cells(status, "worker") == ["gpu-0/cpu#0"]
    assert "workers     1: 1 ready; 3 of 4 slots in use, 0.0 fps" in heading(status)


def test_names_cannot_move_the_cursor() -> None:
    """A name is shown on one line, with control characters escaped and secrets removed."""
    odd = replace(job(1), client="a\x1b[2Jb\n", waits_for="s3://key:secret@store/a")
    text = "\n".join(screen_lines(replace(LARGE, jobs=(odd,)), width=200, height=40, colour=False))
    assert "\x1b" not in text
    assert "a\\x1b[2Jb" in text
    assert "secret" not in text


@given(wanted=st.lists(st.integers(0, 30), max_size=6), rows=st.integers(-5, 100))
def test_rows_are_shared_fairly(wanted: list[int], rows: int) -> None:
    """No row of the screen stays empty while a table has hidden rows.

    No table gets more rows than it has, and the shares are fair.
    """
    shares = shared_rows(wanted, rows)
    assert sum(shares) == max(0, min(rows, sum(wanted)))
    assert all(share <= want for share, want in zip(shares, wanted, strict=True))
    cut = [share for share, want in zip(shares, wanted, strict=True) if share < want]
    assert not cut or max(shares) <= min(cut) + 1


def test_a_clock_that_is_off_is_shown() -> None:
    """The row of an open node turns yellow, and says what its clock shows."""
    node = replace(LARGE.nodes[0], state="open", clock="its clock is 5 s ahead", probed=True)
    (table,) = [each for each in tables(replace(LARGE, nodes=(node,))) if each.columns[0] == "node"]
    (row,) = table.rows
    assert (row.style, row.cells[-1].startswith("its clock is 5 s ahead; ")) == ("yellow", True)

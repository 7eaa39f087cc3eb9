"""``codecfleet top``: what is on the screen, drawn from given statuses."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from codecfleet.cluster.supervisor.status import Status
from codecfleet.console.top import heading, screen_lines, shared_rows, tables

from .large_fleet import SICK, device, job, large_fleet, worker

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
LARGE = large_fleet()


def first_cells(status: Status, table: str) -> list[str]:
    """Return the first cells of a table's rows."""
    return next([row.cells[0] for row in each.rows] for each in tables(status) if each.columns[0] == table)


def test_a_large_fleet_on_a_small_terminal() -> None:
    """On 80 x 23 stand the sums, and of each kind the broken first, then the busiest, with how many there are."""
    assert screen_lines(LARGE, width=80, height=23, colour=False) == [
        "supervisor  process 4711 on head",
        "nodes       300: 299 open, 1 draining",
        "devices     300: 299 open, 1 quarantined; encoder sessions: 600",
        "workers     300: 299 ready, 1 resting; 897 of 1196 slots in use, 44817.0 fps",
        "jobs        40, 1 waiting; segments left: 780",
        "quarantine",
        "L4 (GPU-111) since 2026-01-01, next trial in 20 s: 3 files failed on it",
        "job (3 of 40)  input   done  left   slots   segments  driver         waits for",
        "00000003       3.mkv   3 %          0 of 0  3         vm process 3   other jobs…",
        "00000027       39.mkv  39 %  39:00  3 of 4  39        vm process 39",
        "00000026       38.mkv  38 %  38:00  3 of 4  38        vm process 38",
        "device on (2 of 300)  state        NVDEC  NVENC  memory GiB   sessions  what",
        "gpu-111               quarantined  37 %          3.0 of 24.0  2         L4; 3 f…",
        "gpu-297               open         99 %          3.0 of 24.0  2         L4",
        "worker (2 of 300)  state    on         slots   fps    works on",
        "gpu-33/cpu#0       resting  processor  0 of 4         Ray did not reserve it",
        "gpu-299/cpu#0      ready    processor  3 of 4  299.0  35daf5cc 3",
        "node (2 of 300)   state     slots   fps    offers",
        "gpu-250 000000fa  draining  3 of 4  250.0  16 cores, L4",
        "gpu-299 0000012b  open      3 of 4  299.0  16 cores, L4",
        "event (2 of 100)",
        "00:01:39          event 99",
        "00:01:38          event 98",
    ]


@pytest.mark.parametrize("colour", [False, True])
@settings(max_examples=20)
@given(width=st.integers(20, 200), height=st.integers(1, 80))
def test_nothing_leaves_the_screen(colour: bool, width: int, height: int) -> None:  # noqa: FBT001 - a parameter
    """However small the screen is, no line is wider and there are no more lines."""
    lines = screen_lines(LARGE, width=width, height=height, colour=colour)
    assert len(lines) <= height
    assert all(cell_len(ESCAPES.sub("", line)) <= width for line in lines)
    assert height < 20 or len(lines) == height


def test_without_a_height_all_is_there() -> None:
    """Into a file goes every row."""
    lines = screen_lines(LARGE, width=110, height=None, colour=False)
    assert len(lines) == len(heading(LARGE)) + sum(1 + len(table.rows) for table in tables(LARGE))


def test_colours_are_those_of_trouble() -> None:
    """What is broken is red, what gets no new work or waits is yellow, all else has no colour."""
    lines = screen_lines(LARGE, width=110, height=60, colour=True)
    assert {line.partition(" ")[0] for line in lines if line.startswith("\x1b[31m")} == {
        f"\x1b[31m{name}" for name in ("L4", "gpu-111", "gpu-33/cpu#0")
    }
    assert {line.partition(" ")[0] for line in lines if line.startswith("\x1b[33m")} == {
        f"\x1b[33m{name}" for name in ("00000003", "gpu-250")
    }


def test_a_device_that_is_held_down_comes_before_busier_ones() -> None:
    """After those in quarantine, under any order and whose clocks are limited come the others, the busiest first."""
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
    """A place without a process is none of the workers."""
    status = replace(LARGE, workers=(worker(0), replace(worker(1), state="empty")))
    assert first_cells(status, "worker") == ["gpu-0/cpu#0"]
    assert "workers     1: 1 ready; 3 of 4 slots in use, 0.0 fps" in heading(status)


def test_names_cannot_move_the_cursor() -> None:
    """What others named is shown on one line, with control characters escaped and secrets left out."""
    odd = replace(job(1), client="a\x1b[2Jb\n", waits_for="s3://key:secret@store/a")
    text = "\n".join(screen_lines(replace(LARGE, jobs=(odd,)), width=200, height=40, colour=False))
    assert "\x1b" not in text
    assert "a\\x1b[2Jb" in text
    assert "secret" not in text


@given(wanted=st.lists(st.integers(0, 30), max_size=6), rows=st.integers(-5, 100))
def test_rows_are_shared_fairly(wanted: list[int], rows: int) -> None:
    """No row is left while a table has more, none gets more than it has, and a smaller share is never refused more."""
    shares = shared_rows(wanted, rows)
    assert sum(shares) == max(0, min(rows, sum(wanted)))
    assert all(share <= want for share, want in zip(shares, wanted, strict=True))
    cut = [share for share, want in zip(shares, wanted, strict=True) if share < want]
    assert not cut or max(shares) <= min(cut) + 1

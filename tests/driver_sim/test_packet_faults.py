"""Faults of the driver below ``Decoder`` and ``Encoder``: the errors that the table has for sessions in jobs."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.sweeps import swept

from .fault_cases import Case, assert_clear, first_of_each, told_by, told_of_rows
from .fault_table import PATIENCE_S, PROCESS, ROWS, SILENT_AFTER_S, Ends, Row
from .scenario import Action

pytestmark = pytest.mark.skipif(
    find_spec("PyNvVideoCodec") is None or find_spec("cuda") is None, reason="PyNvVideoCodec or cuda-python is missing"
)
FAULTS = [
    row
    for row in ROWS
    if row.program in ("nvcuvid", "nvenc") and (row.outcome is PROCESS or not isinstance(row.outcome, Ends))
]
FIRST = first_of_each(FAULTS)


def is_silent(row: Row) -> bool:
    """Tell whether a call hangs that holds the interpreter: an encoder with the process's context is destroyed so."""
    return row.fault.action is Action.HANG and row.fault.function == "NvEncDestroyEncoder"


@pytest.fixture(scope="module")
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Return what the program of each row under test told, by the row's name."""
    return told_of_rows(request, tmp_path_factory.mktemp("faults"), case_of)


def case_of(row: Row) -> Case:
    """Return a row's case."""
    patience_s = SILENT_AFTER_S if is_silent(row) else PATIENCE_S
    return Case(f"{row.program} packets", (row.fault,), row.limit_s, patience_s=patience_s)


@pytest.mark.parametrize("row", swept(FAULTS, is_slow=lambda row: row.name not in FIRST), ids=lambda row: row.name)
def test_a_fault_ends_in_the_same_error(row: Row, told: dict[str, dict[str, Any]]) -> None:
    """Whatever call fails, hangs or ends the process, a caller gets the error that a job gets, in two clear lines."""
    answer = told[row.name]
    if is_silent(row):
        assert answer["exit_code"] is None
        return
    if row.outcome is PROCESS:
        assert answer["exit_code"] not in (None, 0)
        return
    assert not isinstance(row.outcome, Ends)
    _, kind, retry, message, next_step = next(line for line in answer["told"] if line[1])
    assert (kind, retry) == (row.outcome.__name__, row.outcome.retry.name), message
    assert row.words in message
    assert_clear(message, next_step)


def test_without_a_fault_nothing_fails(tmp_path: Path) -> None:
    """Every step ends well."""
    for answer in told_by(tmp_path, [Case("nvcuvid packets", ()), Case("nvenc packets", ())]):
        assert [line[1] for line in answer["told"]] == [""] * 4
        assert answer["exit_code"] == 0

"""Every fault that a driver can have ends in the error that the table states.

The faults are those of the scenario language, at four stages of a session; the calls go through the real
PyNvVideoCodec, cuda-python and nvidia-ml-py. A fault without an error is one of ``Ends``. A process that ends, or whose
interpreter a call holds forever, cannot report anything: the pool raises ``WorkerLost`` for an ended process, and the
supervisor ends a process that has not answered for 20 s (docs/supervisor.md).
"""

from pathlib import Path

import pytest

from codecfleet.testing.clips import Clip, constant_times, make_clip
from tests.sweeps import swept

from .build import LIBRARIES
from .fault_cases import Case, Told, assert_clear, first_of_each, told_by
from .fault_programs import STEPS
from .fault_table import (
    ABSENT,
    EXIT_CODE,
    LOST,
    PATIENCE_S,
    PLACES,
    PROCESS,
    ROWS,
    SILENCE,
    SILENT_AFTER_S,
    XID,
    Ends,
    Row,
)
from .scenario import Action
from .simulated_driver import needs

pytestmark = needs("PyNvVideoCodec", "cuda")


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clip of 26 pictures, which the decoders' programs decode."""
    clip = Clip(times=constant_times(26), options=(("x264-params", "keyint=8"),))
    return make_clip(tmp_path_factory.mktemp("faults") / "film.mp4", clip)


@pytest.mark.parametrize("program", ["nvcuvid packets", "nvenc packets"])
def test_every_step_of_packets_succeeds(program: str, film: Path) -> None:
    """A ``Decoder`` decodes a clip twice, an ``Encoder`` encodes also at new rates: both use the sessions of jobs."""
    answer = told_by(Case(program), film)
    assert [line[1] for line in answer.lines] == [""] * 4
    assert answer.exit_code == 0


def case_of(row: Row) -> Case:
    """Return a row's case."""
    patience_s = SILENT_AFTER_S if row.outcome is SILENCE else PATIENCE_S
    return Case(row.program, (row.fault,), row.limit_s, patience_s=patience_s, xids=row.fault.action is Action.XID)


def test_every_library_has_its_rows() -> None:
    """Every library is in the table, and no two rows have the same name."""
    short = {Path(library.file).name.removeprefix("lib").split(".", maxsplit=1)[0] for library in LIBRARIES}
    names = {"cuda": "libcuda", "nvidia-encode": "nvenc", "nvidia-ml": "nvml"}
    assert {names.get(each, each) for each in short} - {"codecfleet_sim"} == set(PLACES)
    assert len({row.name for row in ROWS}) == len(ROWS)


FIRST = first_of_each(ROWS)


def is_for_later(row: Row) -> bool:
    """Whether CI leaves a row out: harmless rows, and repetitions of a program, action and outcome."""
    return row.outcome is Ends.NOTHING or row.name not in FIRST


@pytest.mark.parametrize("row", swept(ROWS, is_slow=is_for_later), ids=lambda row: row.name)
def test_a_fault_ends_in_its_error(row: Row, film: Path) -> None:
    """The error of the table comes where the table says, in two clear lines."""
    answer = told_by(case_of(row), film)
    lines = [line for line in answer.lines if line[0] != "xids"]
    if isinstance(row.outcome, Ends):
        assert_ends(row, answer, lines)
        return
    step, kind, retry, message, next_step = next(line for line in lines if line[1])
    assert kind == row.outcome.__name__, message
    assert retry == row.outcome.retry.name
    assert_clear(message, next_step)
    assert row.words in message
    before = [line[0] for line in lines[: lines.index([step, kind, retry, message, next_step])]]
    # Work that is given up does not report its current step, only the earlier steps.
    assert step == row.step or (step == "work" and before == list(STEPS[: STEPS.index(row.step)]))
    assert answer.exit_code == 0


def assert_ends(row: Row, answer: Told, lines: list[list[str]]) -> None:
    """Check an outcome that is none of our errors."""
    trouble = [line for line in lines if line[1]]
    if row.outcome is PROCESS:
        assert answer.exit_code == (EXIT_CODE if row.fault.action is Action.EXIT else 1)
    elif row.outcome is SILENCE:
        assert answer.exit_code is None
        assert row.step not in [line[0] for line in lines]
    elif row.outcome is LOST:
        assert next(line[2] for line in trouble if line[1] == "LOST").startswith("nvml")
    elif row.outcome is ABSENT:
        assert trouble[0][1] in {"NO_PERMISSION", "TIMED_OUT", "FAILED"}
        assert trouble[0][2]
    else:
        assert (trouble, answer.exit_code) == ([], 0)
        assert row.program == "nvml" or [line[0] for line in lines] == list(STEPS)
    if row.fault.action is Action.XID:
        # Tegra's NVML has no events, NvSci has no device, and NVML's initialisation belongs to no device.
        silent = row.program.startswith(("cudla", "nvsci")) or row.fault.function in ("nvmlInit", "nvmlShutdown")
        is_told = not silent
        assert answer.lines[-1] == ["xids", "", "", f"[{XID}]" if is_told else "[]", ""]

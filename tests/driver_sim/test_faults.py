"""Every fault that a driver can have, and the error of ours that it ends in: the table, and the proof of each row.

The faults are those of the scenario language, at four stages of what a session does; the calls go through the real
PyNvVideoCodec, cuda-python and nvidia-ml-py. What has no error of its own is one of ``Ends``. A process that ends, or
that falls silent because a call holds the interpreter for ever, cannot say anything itself: the pool says WorkerLost
when it hears of the end, and the supervisor ends what has not answered for 20 s (docs/supervisor.md).
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.sweeps import swept

from .build import LIBRARIES
from .fault_cases import Case, assert_clear, first_of_each, told_by
from .fault_programs import STEPS
from .fault_table import (
    ABSENT,
    EXIT_CODE,
    HUNG_AFTER_S,
    LOST,
    PATIENCE_S,
    PLACES,
    PROCESS,
    RENEWED,
    RETRIES,
    ROWS,
    SILENCE,
    SILENT_AFTER_S,
    TABLE,
    XID,
    Ends,
    Row,
    fault,
)
from .scenario import Action

SHARING = ("EGL", "EGL image", "cudla standalone", "nvscibuf", "nvscisync")
"""Programs of sessions whose calls go through the code of the others."""
pytestmark = pytest.mark.skipif(
    find_spec("PyNvVideoCodec") is None or find_spec("cuda") is None, reason="PyNvVideoCodec or cuda-python is missing"
)


@pytest.fixture(scope="module")
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Return what the program of each row under test told, by the row's name."""
    calls = [getattr(item, "callspec", None) for item in request.session.items]
    wanted = {call.params["row"].name for call in calls if call is not None and isinstance(call.params.get("row"), Row)}
    rows = [row for row in ROWS if row.name in wanted]
    cases = [
        Case(
            row.program,
            (row.fault,),
            row.limit_s,
            patience_s=SILENT_AFTER_S if row.outcome is SILENCE else PATIENCE_S,
            xids=row.fault.action is Action.XID,
        )
        for row in rows
    ]
    found = told_by(tmp_path_factory.mktemp("faults"), cases)
    return {row.name: answer for row, answer in zip(rows, found, strict=True)}


def test_every_action_has_its_rows_for_every_library() -> None:
    """An action or a library that is added is not left out of the table."""
    short = {Path(library.file).name.removeprefix("lib").split(".", maxsplit=1)[0] for library in LIBRARIES}
    names = {"cuda": "libcuda", "nvidia-encode": "nvenc", "nvidia-ml": "nvml"}
    libraries = {names.get(each, each) for each in short} - {"codecfleet_sim"}
    assert libraries == set(PLACES)
    # What NVML's questions answer is not a fault of a session's: test_live_health.py.
    actions = set(Action) - {Action.ANSWER}
    assert {(library, action) for library in libraries for action in actions} == set(TABLE)
    assert len({row.name for row in ROWS}) == len(ROWS)


FIRST = first_of_each(ROWS)


def is_for_later(row: Row) -> bool:
    """Tell rows that CI leaves out: harmless ones, and of the sessions that share most calls all but one of a kind."""
    return row.outcome is Ends.NOTHING or (row.program in SHARING and row.name not in FIRST)


@pytest.mark.parametrize("row", swept(ROWS, is_slow=is_for_later), ids=lambda row: row.name)
def test_a_fault_ends_in_its_error(row: Row, told: dict[str, dict[str, Any]]) -> None:
    """What the table says of the fault is what the work that meets it tells, where it meets it, in two clear lines."""
    answer = told[row.name]
    lines = [line for line in answer["told"] if line[0] != "xids"]
    if isinstance(row.outcome, Ends):
        assert_ends(row, answer, lines)
        return
    step, kind, retry, message, next_step = next(line for line in lines if line[1])
    assert kind == row.outcome.__name__, message
    assert retry == RETRIES[row.outcome].name
    assert_clear(message, next_step)
    assert row.words in message
    before = [line[0] for line in lines[: lines.index([step, kind, retry, message, next_step])]]
    # Work that is given up does not tell in which step it was: those before it are over.
    assert step == row.step or (step == "work" and before == list(STEPS[: STEPS.index(row.step)]))
    assert answer["exit_code"] == 0


def assert_ends(row: Row, answer: dict[str, Any], lines: list[list[str]]) -> None:
    """Check an outcome that is not an error of ours."""
    trouble = [line for line in lines if line[1]]
    if row.outcome is PROCESS:
        assert answer["exit_code"] == (EXIT_CODE if row.fault.action is Action.EXIT else 1)
    elif row.outcome is SILENCE:
        assert answer["exit_code"] is None
        assert row.step not in [line[0] for line in lines]
    elif row.outcome is LOST:
        assert next(line[2] for line in trouble if line[1] == "LOST").startswith("nvml")
    elif row.outcome is ABSENT:
        assert trouble[0][1] in {"NO_PERMISSION", "TIMED_OUT", "FAILED"}
        assert trouble[0][2]
    else:
        assert (trouble, answer["exit_code"]) == ([], 0)
        assert row.program == "nvml" or [line[0] for line in lines] == list(STEPS)
    if row.fault.action is Action.XID:
        # Tegra's NVML tells of no events, NvSci has no device, and opening and closing NVML is nothing that one does.
        silent = row.program.startswith(("cudla", "nvsci")) or row.fault.function in ("nvmlInit", "nvmlShutdown")
        is_told = not silent
        assert answer["told"][-1] == ["xids", "", "", f"[{XID}]" if is_told else "[]", ""]


@pytest.mark.parametrize("program", ["nvcuvid", "nvenc"])
def test_a_worker_whose_call_hangs_says_so_and_ends_itself(program: str, tmp_path: Path) -> None:
    """The work gets EngineHung, and so does what ran beside it; then the process ends, to be replaced."""
    function = {"nvcuvid": "cuvidDecodePicture", "nvenc": "NvEncEncodePicture"}[program]
    case = Case(f"worker {program}", (fault(function, Action.HANG, 4),), limit_s=HUNG_AFTER_S)
    (answer,) = told_by(tmp_path, [case])
    outcomes = [line for line in answer["told"] if line[0] == "outcome"]
    assert [(kind, retry) for _, kind, retry, _, _ in outcomes] == [("EngineHung", "ELSEWHERE")] * 2
    assert answer["exit_code"] == RENEWED


def test_a_worker_whose_device_is_lost_blames_no_other(tmp_path: Path) -> None:
    """The work gets DeviceLost; what ran beside it gets no answer but the end of its process."""
    case = Case("worker nvenc", (fault("NvEncEncodePicture", Action.LOSE, 4),))
    (answer,) = told_by(tmp_path, [case])
    outcomes = [line[1] for line in answer["told"] if line[0] == "outcome"]
    assert outcomes == ["DeviceLost"]
    assert answer["exit_code"] == RENEWED

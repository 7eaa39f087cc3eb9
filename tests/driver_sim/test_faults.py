"""Every fault that a driver can have, and the error of ours that it ends in: the table, and the proof of each row.

The faults are those of the scenario language, at four stages of what a session does; the calls go through the real
PyNvVideoCodec, cuda-python and nvidia-ml-py. What has no error of its own is one of ``Ends``. A process that ends, or
that falls silent because a call holds the interpreter for ever, cannot say anything itself: the pool says WorkerLost
when it hears of the end, and the supervisor ends what has not answered for 20 s (docs/supervisor.md).
"""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pynvml
import pytest

from codecfleet.actors.dla.statuses import Status
from codecfleet.errors import (
    DeviceError,
    DeviceLost,
    DeviceMemory,
    EngineFailed,
    EngineHung,
    EngineUnfit,
    Retry,
    SessionLimit,
    Unsupported,
    UsageError,
)
from codecfleet.testing.clips import Clip, constant_times, make_clip

from .build import LIBRARIES
from .fault_programs import STEPS
from .scenario import Action, Fault, Scenario, machine
from .simulated_driver import REPOSITORY, simulated_environment
from .test_dla import scenario as orin

pytestmark = pytest.mark.skipif(
    find_spec("PyNvVideoCodec") is None or find_spec("cuda") is None, reason="PyNvVideoCodec or cuda-python is missing"
)

PATIENCE_S: Final = 10.0
SILENT_AFTER_S: Final = 2.0
HUNG_AFTER_S: Final = 1.0
EXIT_CODE: Final = 41
XID: Final = 31
RENEWED: Final = 75
MORE: Final = 17
"""NV_ENC_ERR_NEED_MORE_INPUT, which is no fault: the picture's packet comes later."""


class Ends(Enum):
    """What becomes of a fault that is no error of ours."""

    NOTHING = "the work goes on, and is right"
    PROCESS = "the process ends: WorkerLost"
    SILENCE = "the process says nothing any more, and the supervisor ends it: WorkerLost"
    UNSEEN = "nobody sees it before the output is decoded: codecfleet verify"
    ABSENT = "the answer is absent, with its reason"
    LOST = "the report calls the device lost"


Outcome = type[Exception] | Ends
NOTHING, PROCESS, SILENCE, UNSEEN, ABSENT, LOST = Ends
RETRIES: Final = {
    DeviceError: Retry.ELSEWHERE,
    DeviceLost: Retry.ELSEWHERE,
    EngineFailed: Retry.ELSEWHERE,
    EngineHung: Retry.ELSEWHERE,
    EngineUnfit: Retry.ANYWHERE,
    DeviceMemory: Retry.ANYWHERE,
    SessionLimit: Retry.ANYWHERE,
    Unsupported: Retry.NEVER,
    UsageError: Retry.NEVER,
}

PLACES: Final = {
    "libcuda": (("cuDevicePrimaryCtxRetain", 1), ("cuMemAlloc", 1), ("cuMemAlloc", 3), ("cuMemFree", 2)),
    # A session decodes a picture of its first range while it is opened, and again in its turn.
    "nvcuvid": (
        ("cuvidCreateDecoder", 1),
        ("cuvidDecodePicture", 2),
        ("cuvidDecodePicture", 9),
        ("cuvidDestroyDecoder", 1),
    ),
    # The encoders before the third are PyNvVideoCodec's own, which ask for capabilities.
    "nvenc": (
        ("NvEncInitializeEncoder", 1),
        ("NvEncEncodePicture", 1),
        ("NvEncLockBitstream", 4),
        ("NvEncDestroyEncoder", 3),
    ),
    "nvml": (("nvmlInit", 1), ("nvmlDeviceGetPciInfo", 1), ("nvmlDeviceGetMemoryInfo", 1), ("nvmlShutdown", 1)),
    "cudla": (("cudlaCreateDevice", 1), ("cudlaSubmitTask", 1), ("cudlaSubmitTask", 3), ("cudlaDestroyDevice", 1)),
}
"""By library, the function and call at which its faults happen: opening, the first call, a later one, closing."""


def everywhere(outcome: Outcome) -> tuple[Outcome, ...]:
    """Return the same outcome for all stages."""
    return (outcome,) * len(STEPS)


VALUES: Final = {Action.EXIT: EXIT_CODE, Action.XID: XID, Action.SLOW: 20}
STATUSES: Final = {"libcuda": 700, "nvcuvid": 700, "nvenc": 20, "nvml": 4, "cudla": Status.OS}
SILENT_BREAK: Final = (EngineFailed, EngineFailed, EngineFailed, NOTHING)
TABLE: Final[dict[tuple[str, Action], tuple[Outcome, ...]]] = {
    ("libcuda", Action.STATUS): everywhere(DeviceLost),
    ("libcuda", Action.HANG): everywhere(EngineHung),
    ("libcuda", Action.EXIT): everywhere(PROCESS),
    ("libcuda", Action.LOSE): everywhere(DeviceLost),
    ("libcuda", Action.XID): everywhere(NOTHING),
    ("libcuda", Action.SHORT): everywhere(NOTHING),  # it has no picture
    ("libcuda", Action.CORRUPT): everywhere(NOTHING),  # it has no picture
    ("libcuda", Action.SLOW): everywhere(NOTHING),
    # The package says nothing of a decoder that does not close, and holds the interpreter while it does.
    ("nvcuvid", Action.STATUS): (DeviceLost, DeviceLost, DeviceLost, NOTHING),
    ("nvcuvid", Action.HANG): (EngineHung, EngineHung, EngineHung, SILENCE),
    ("nvcuvid", Action.EXIT): everywhere(PROCESS),
    ("nvcuvid", Action.LOSE): everywhere(DeviceLost),
    ("nvcuvid", Action.XID): everywhere(NOTHING),
    ("nvcuvid", Action.SHORT): (NOTHING, EngineFailed, EngineFailed, NOTHING),
    ("nvcuvid", Action.CORRUPT): (NOTHING, EngineFailed, EngineFailed, NOTHING),
    ("nvcuvid", Action.SLOW): everywhere(NOTHING),
    ("nvenc", Action.STATUS): SILENT_BREAK,
    ("nvenc", Action.HANG): everywhere(EngineHung),
    ("nvenc", Action.EXIT): everywhere(PROCESS),
    # Destroying an encoder on a lost device, the package ends the process.
    ("nvenc", Action.LOSE): (DeviceLost, DeviceLost, DeviceLost, PROCESS),
    ("nvenc", Action.XID): everywhere(NOTHING),
    # H.264 and HEVC do not state how long a picture is; AV1 does: EXTRAS.
    ("nvenc", Action.SHORT): (NOTHING, UNSEEN, UNSEEN, NOTHING),
    ("nvenc", Action.CORRUPT): everywhere(NOTHING),  # it decodes no picture
    ("nvenc", Action.SLOW): everywhere(NOTHING),
    # NVML is asked by probes alone, which raise nothing: a report says what was not to be had.
    ("nvml", Action.STATUS): (ABSENT, ABSENT, ABSENT, NOTHING),
    ("nvml", Action.HANG): everywhere(ABSENT),
    ("nvml", Action.EXIT): everywhere(ABSENT),
    # Opening and closing the library is nothing that a device does.
    ("nvml", Action.LOSE): (NOTHING, LOST, LOST, NOTHING),
    ("nvml", Action.XID): everywhere(NOTHING),
    ("nvml", Action.SHORT): everywhere(NOTHING),  # it has no picture
    ("nvml", Action.CORRUPT): everywhere(NOTHING),  # it has no picture
    ("nvml", Action.SLOW): everywhere(NOTHING),
    ("cudla", Action.STATUS): everywhere(DeviceLost),
    ("cudla", Action.HANG): everywhere(EngineHung),
    ("cudla", Action.EXIT): everywhere(PROCESS),
    ("cudla", Action.LOSE): everywhere(DeviceLost),
    ("cudla", Action.XID): everywhere(NOTHING),
    ("cudla", Action.SHORT): everywhere(NOTHING),  # it has no bitstream
    ("cudla", Action.CORRUPT): everywhere(NOTHING),  # a task is spoilt, not its submission: EXTRAS
    ("cudla", Action.SLOW): everywhere(NOTHING),
}
"""By library and action: what becomes of the fault at each of the four stages."""


@dataclass(frozen=True, slots=True)
class Row:
    """One fault and what becomes of it; ``step`` is where that is told, ``slow_limit_s`` how long calls may take."""

    program: str
    fault: Fault
    step: str
    outcome: Outcome
    words: str = ""
    limit_s: float = 0.0

    @property
    def name(self) -> str:
        """Its name in the test's own."""
        fault = self.fault
        value = "" if fault.value is None else f" {fault.value}"
        return f"{self.program} {fault.function} {fault.call} {fault.action.value}{value}"


def fault(function: str, action: Action, call: int, value: int | None = None) -> Fault:
    """Return a fault of device 0, which every fault befalls that knows a device."""
    device = 0 if action in (Action.LOSE, Action.XID) else None
    return Fault(function=function, action=action, value=value, device=device, call=call)


def stage_rows() -> list[Row]:
    """Return the rows of the table."""
    rows = []
    for (library, action), outcomes in TABLE.items():
        value = STATUSES[library] if action is Action.STATUS else VALUES.get(action)
        for step, (function, call), outcome in zip(STEPS, PLACES[library], outcomes, strict=True):
            if action in (Action.SHORT, Action.CORRUPT) and outcomes == everywhere(NOTHING) and step != "later calls":
                continue  # it means nothing to this library: one place is enough to see that
            # NVDEC opens its decoder with the first picture of the first range.
            told = "first call" if library == "nvcuvid" and step != "closing" else step
            limit_s = HUNG_AFTER_S if action is Action.HANG else 0.0
            if library == "nvml" and action in (Action.HANG, Action.EXIT):
                limit_s = 1.5  # a process of its own, which has to start
            rows.append(Row(library, fault(function, action, call, value), told, outcome, limit_s=limit_s))
    return rows


EXTRAS: Final = (
    Row("nvenc av1", fault("NvEncEncodePicture", Action.SHORT, 1), "later calls", EngineFailed, "cut short"),
    Row("nvenc av1", fault("NvEncLockBitstream", Action.SHORT, 4), "later calls", EngineFailed, "cut short"),
    Row("nvcuvid", fault("cuvidGetDecoderCaps", Action.STATUS, 1, 999), "first call", DeviceLost, "what it can"),
    Row("nvcuvid", fault("cuvidCreateVideoParser", Action.STATUS, 1, 1), "first call", DeviceError, "no session"),
    Row(
        "nvcuvid",
        fault("cuvidMapVideoFrame", Action.HANG, 3),
        "first call",
        EngineHung,
        "decoding a picture",
        HUNG_AFTER_S,
    ),
    Row(
        "nvcuvid",
        fault("cuvidParseVideoData", Action.HANG, 5),
        "first call",
        EngineHung,
        "decoding a picture",
        HUNG_AFTER_S,
    ),
    Row("nvcuvid", fault("cuStreamSynchronize", Action.HANG, 2), "first call", EngineHung, "", HUNG_AFTER_S),
    Row("nvcuvid", fault("cuvidGetDecoderCaps", Action.HANG, 1), "first call", SILENCE, "", HUNG_AFTER_S),
    # The picture's packet is said to come later, and is not there then.
    Row(
        "nvenc", fault("NvEncEncodePicture", Action.STATUS, 4, MORE), "later calls", EngineFailed, "nvEncLockBitstream"
    ),
    Row("nvenc", fault("NvEncGetEncodeCaps", Action.HANG, 1), "opening", SILENCE, "", HUNG_AFTER_S),
    Row("nvenc", fault("NvEncOpenEncodeSessionEx", Action.HANG, 2), "opening", EngineHung, "", HUNG_AFTER_S),
    Row("nvenc", fault("NvEncLockBitstream", Action.HANG, 2), "later calls", EngineHung, "Encode", HUNG_AFTER_S),
    # A call that comes back too late was given up before.
    Row("libcuda", fault("cuMemAlloc", Action.SLOW, 3, 1500), "later calls", EngineHung, "cuMemAlloc", HUNG_AFTER_S),
    Row("nvenc", fault("NvEncEncodePicture", Action.SLOW, 3, 1500), "later calls", EngineHung, "Encode", HUNG_AFTER_S),
    Row("cudla", fault("cudlaTask", Action.CORRUPT, 1), "first call", EngineFailed, "does not match"),
    Row("cudla", fault("cudlaTask", Action.CORRUPT, 3), "later calls", EngineFailed, "does not match"),
    Row("cudla", fault("cudlaTask", Action.HANG, 3), "later calls", EngineHung, "in time", HUNG_AFTER_S),
    Row("cudla", fault("cudlaTask", Action.LOSE, 1), "first call", DeviceLost),
    Row("cudla", fault("cudlaMemRegister", Action.HANG, 1), "first call", EngineHung, "registering", HUNG_AFTER_S),
    Row("cudla", fault("cudlaGetLastError", Action.HANG, 2), "later calls", EngineHung, "", HUNG_AFTER_S),
)
"""Faults at other places: where the same action means something else."""
ROWS: Final = (*stage_rows(), *EXTRAS)


@dataclass(frozen=True, slots=True)
class Case:
    """One run of a program; ``times`` is how often, for walks."""

    program: str
    faults: tuple[Fault, ...]
    limit_s: float = 0.0
    times: int = 0
    patience_s: float = PATIENCE_S
    xids: bool = False

    def scenario(self) -> Scenario:
        """Return the machine, with the faults."""
        return (
            orin(*self.faults) if "cudla" in self.program else Scenario(machine=machine("rtx-4090"), faults=self.faults)
        )


def told_by(folder: Path, cases: list[Case]) -> list[dict[str, Any]]:
    """Run all cases in forks of one process; return what each told."""
    film = make_clip(folder / "film.mp4", Clip(times=constant_times(26), options=(("x264-params", "keyint=8"),)))
    described = []
    for number, case in enumerate(cases):
        own = folder / str(number)
        own.mkdir()
        environment = simulated_environment(case.scenario(), own)
        environment.pop("CODECFLEET_DRIVER_SIM_TRACE")
        described.append(
            {
                "program": case.program,
                "environment": environment,
                "limit_s": case.limit_s,
                "times": case.times,
                "patience_s": case.patience_s,
                "xids": case.xids,
            }
        )
    (folder / "cases.json").write_text(json.dumps({"film": str(film), "cases": described}), encoding="utf-8")
    variables = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
    variables |= {"LD_LIBRARY_PATH": environment["LD_LIBRARY_PATH"], "PYTHONPATH": str(REPOSITORY)}
    variables |= {"OPENBLAS_NUM_THREADS": "1"}  # a process with threads is not to be forked
    done = subprocess.run(
        [sys.executable, "-m", "tests.driver_sim.fault_programs", str(folder / "cases.json")],
        env=variables,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Return what each row's program told, by the row's name."""
    cases = [
        Case(
            row.program,
            (row.fault,),
            row.limit_s,
            patience_s=SILENT_AFTER_S if row.outcome is SILENCE else PATIENCE_S,
            xids=row.fault.action is Action.XID,
        )
        for row in ROWS
    ]
    found = told_by(tmp_path_factory.mktemp("faults"), cases)
    return {row.name: answer for row, answer in zip(ROWS, found, strict=True)}


def assert_clear(message: str, next_step: str) -> None:
    """Check that an error is one line that says what went wrong, and one that says what to do."""
    assert message
    assert next_step
    for line in (message, next_step):
        assert line == " ".join(line.split()), line
        assert len(line) <= 320, line
    assert not message.endswith((".", ":", ",")), message
    assert next_step.endswith("."), next_step


def test_every_action_has_its_rows_for_every_library() -> None:
    """An action or a library that is added is not left out of the table."""
    short = {Path(library.file).name.removeprefix("lib").split(".", maxsplit=1)[0] for library in LIBRARIES}
    names = {"cuda": "libcuda", "nvidia-encode": "nvenc", "nvidia-ml": "nvml"}
    libraries = {names.get(each, each) for each in short} - {"codecfleet_sim"}
    assert libraries == set(PLACES)
    # What NVML's questions answer is no fault of a session's: test_live_health.py.
    actions = set(Action) - {Action.ANSWER}
    assert {(library, action) for library in libraries for action in actions} == set(TABLE)
    assert len({row.name for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
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
    """Check an outcome that is no error of ours."""
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
        # Tegra's NVML tells of no events, and opening and closing the library is nothing that a device does.
        is_told = row.program != "cudla" and row.fault.function not in ("nvmlInit", "nvmlShutdown")
        assert answer["told"][-1] == ["xids", "", "", f"[{XID}]" if is_told else "[]", ""]


FATAL: Final = (3, 4, 46, 100, 201, 214, 220, 226, 304, 700, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911, 999)
CUDA_KINDS: Final[dict[int, type[DeviceError]]] = {2: DeviceMemory, 702: EngineHung, 801: EngineUnfit} | dict.fromkeys(
    FATAL, DeviceLost
)
NVENC_OPENING: Final[dict[int, type[DeviceError]]] = {
    **dict.fromkeys((1, 2, 8, 12, 15, 21, 22), EngineUnfit),
    **dict.fromkeys((3, 4, 5), DeviceLost),
    10: SessionLimit,  # memory is free: it is not that
}
NVENC_RUNNING: Final[dict[int, type[DeviceError]]] = {
    **dict.fromkeys((1, 2, 15, 22), EngineUnfit),
    **dict.fromkeys((3, 4, 5), DeviceLost),
    10: DeviceMemory,
}
CUDLA_KINDS: Final[dict[int, type[Exception]]] = {
    Status.MEMORY_REGISTERED: UsageError,
    Status.INCOMPATIBLE_DLA_SW_VERSION: Unsupported,
    Status.INVALID_MODULE: Unsupported,
    Status.UNSUPPORTED_OPERATION: Unsupported,
    Status.DLA_ENGINE_TIMEOUT: EngineHung,
    **{status: EngineFailed for status in Status if Status.DLA_INVALID_INPUT <= status < Status.DLA_ENGINE_TIMEOUT},
    Status.DLA_DATA_MISMATCH: EngineFailed,
}
NVML_ABSENCES: Final = {
    **dict.fromkeys((2, 3, 22, 24), "NOT_SUPPORTED"),
    4: "NO_PERMISSION",
    **dict.fromkeys((6, 21, 27), "NOT_FOUND"),
    **dict.fromkeys((9, 12), "NO_LIBRARY"),
    10: "TIMED_OUT",
    **dict.fromkeys((13, 25, 26), "FUNCTION_NOT_FOUND"),
}
NVML_LOST: Final = (15, 16, 18, 28)


def cuda_statuses() -> list[int]:
    """Return every CUresult that the binding's header defines."""
    from cuda.bindings import driver  # noqa: PLC0415 - it may be missing

    return [int(result) for result in driver.CUresult if int(result)]


def nvenc_statuses() -> list[int]:
    """Return every NVENCSTATUS that nvEncodeAPI.h defines: it counts from success."""
    header = Path("/usr/include/ffnvcodec/nvEncodeAPI.h").read_text(encoding="utf-8")
    body = re.search(r"typedef enum _NVENCSTATUS\n\{(.*?)\} NVENCSTATUS;", header, re.DOTALL)
    assert body is not None
    names = re.findall(r"^ {4}(NV_ENC_\w+),?$", re.sub(r"/\*.*?\*/", "", body[1], flags=re.DOTALL), re.MULTILINE)
    assert names[0] == "NV_ENC_SUCCESS"
    return list(range(1, len(names)))


def cudla_statuses() -> list[int]:
    """Return every cudlaStatus that the binding's header defines, and those that came before or after."""
    from cuda.bindings import cudla  # noqa: PLC0415 - it may be missing

    defined = {int(status) for status in cudla.Status}
    assert defined <= {int(status) for status in Status}
    return sorted(int(status) for status in Status if status)


def nvml_statuses() -> list[int]:
    """Return every nvmlReturn_t that the binding defines."""
    names = [name for name in dir(pynvml) if name.startswith("NVML_ERROR_")]
    return sorted({value for name in names if isinstance(value := getattr(pynvml, name), int)})


DECODING, ENCODING = TWICE = ("NVDEC decoding", "NVENC encoding")
WALKS: Final = {
    "CUDA": ("walk libcuda", "cuMemAlloc", cuda_statuses),
    DECODING: ("walk nvcuvid", "cuvidDecodePicture", cuda_statuses),
    "NVENC opening": ("walk nvenc", "NvEncOpenEncodeSessionEx", nvenc_statuses),
    ENCODING: ("walk nvenc", "NvEncEncodePicture", lambda: [code for code in nvenc_statuses() if code != MORE]),
    "cuDLA": ("walk cudla", "cudlaCreateDevice", cudla_statuses),
    "NVML device": ("walk nvml", "nvmlDeviceGetMemoryInfo", nvml_statuses),
    "NVML": ("walk nvml", "nvmlInit", nvml_statuses),
}
"""What each walk runs, the function that meets its faults, and the statuses that it meets."""
Walks = dict[str, dict[int, list[list[str]]]]


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Walks:
    """Return by walk and status what was told of it: each walk is one process, and each of its calls has one fault."""
    cases, statuses = [], {}
    for name, (program, function, listed) in WALKS.items():
        statuses[name] = listed()
        # What closes a session that failed may call the function once more, which nobody hears: that takes a fault too.
        met = [status for status in statuses[name] for _ in range(2 if name in TWICE else 1)]
        faults = tuple(
            Fault(function=function, action=Action.STATUS, value=value, call=call)
            for call, value in enumerate(met, start=1)
        )
        cases.append(Case(program, faults, times=len(faults), patience_s=60))
    found = told_by(tmp_path_factory.mktemp("walks"), cases)
    walks = {name: by_fault(answer["told"]) for name, answer in zip(WALKS, found, strict=True)}
    for name in TWICE:
        failed = (lines for lines in walks[name] if any(line[1] for line in lines))
        walks[name] = list({first_error(lines)[2]: lines for lines in failed}.values())
    return {name: dict(zip(statuses[name], told, strict=True)) for name, told in walks.items()}


def by_fault(lines: list[list[str]]) -> list[list[list[str]]]:
    """Return what was told of each fault of a walk."""
    found: list[list[list[str]]] = [[]]
    for line in lines:
        if line == ["end"]:
            found.append([])
        else:
            found[-1].append(line)
    return found[:-1]


def first_error(lines: list[list[str]]) -> list[str]:
    """Return the first error among a fault's lines: its class, retry, message and next step."""
    return next(line[1:] for line in lines if line[1])


@pytest.mark.parametrize("name", ["CUDA", DECODING])
def test_every_result_of_cuda_is_an_error_of_ours(name: str, walked: Walks) -> None:
    """Each CUresult, from CUDA itself and from NVDEC through the package, is the error that the table has for it."""
    for code, lines in walked[name].items():
        kind, retry, message, next_step = first_error(lines)
        expected = CUDA_KINDS.get(code, DeviceError)
        assert (code, kind, retry) == (code, expected.__name__, RETRIES[expected].name), message
        assert f"CUDA error {code}" in message
        assert_clear(message, next_step)


@pytest.mark.parametrize(("name", "kinds"), [("NVENC opening", NVENC_OPENING), (ENCODING, NVENC_RUNNING)])
def test_every_status_of_nvenc_is_an_error_of_ours(
    name: str, kinds: dict[int, type[DeviceError]], walked: Walks
) -> None:
    """Each NVENCSTATUS, while a session is opened and while it encodes, is the error that the table has for it."""
    for code, lines in walked[name].items():
        kind, retry, message, next_step = first_error(lines)
        expected = kinds.get(code, EngineFailed)
        assert (code, kind, retry) == (code, expected.__name__, RETRIES[expected].name), message
        assert re.search(rf"(status|error|code :) {code}\b", message), message
        assert_clear(message, next_step)


def test_every_status_of_cudla_is_an_error_of_ours(walked: Walks) -> None:
    """Each cudlaStatus is the error that the table has for it."""
    for code, lines in walked["cuDLA"].items():
        kind, retry, message, next_step = first_error(lines)
        expected = CUDLA_KINDS.get(code, DeviceLost)
        assert (kind, retry) == (expected.__name__, RETRIES[expected].name), message
        assert f"(cuDLA status {Status(code).name}, {code:#x})" in message
        assert_clear(message, next_step)


@pytest.mark.parametrize(("name", "asked"), [("NVML device", "memory"), ("NVML", "library")])
def test_every_return_of_nvml_is_an_answer(name: str, asked: str, walked: Walks) -> None:
    """Each nvmlReturn_t is an absence with its reason; four of them say that the device is lost."""
    for code, lines in walked[name].items():
        said = {line[0]: line[1:] for line in lines}
        absence, reason, _ = said[asked]
        assert (code, absence) == (code, NVML_ABSENCES.get(code, "FAILED"))
        assert f"({code})" in reason
        assert_clear(reason, "It is in the report.")
        assert (said["device"][0] == "LOST") is (asked == "memory" and code in NVML_LOST)


@pytest.mark.parametrize("program", ["nvcuvid", "nvenc"])
def test_a_worker_whose_call_hangs_says_so_and_ends_itself(program: str, tmp_path: Path) -> None:
    """The work gets EngineHung, and so does what ran beside it; then the process ends, to be replaced."""
    function = {"nvcuvid": "cuvidDecodePicture", "nvenc": "NvEncEncodePicture"}[program]
    case = Case(f"worker {program}", (fault(function, Action.HANG, 4),), limit_s=HUNG_AFTER_S)
    (answer,) = told_by(tmp_path, [case])
    outcomes = [line for line in answer["told"] if line[0] == "outcome"]
    assert [(kind, retry) for _, kind, retry, _, _ in outcomes] == [("EngineHung", "ELSEWHERE")] * 2
    assert answer["exit_code"] == RENEWED


def test_a_worker_whose_device_is_lost_blames_nobody_else(tmp_path: Path) -> None:
    """The work gets DeviceLost; what ran beside it gets no answer but the end of its process."""
    case = Case("worker nvenc", (fault("NvEncEncodePicture", Action.LOSE, 4),))
    (answer,) = told_by(tmp_path, [case])
    outcomes = [line[1] for line in answer["told"] if line[0] == "outcome"]
    assert outcomes == ["DeviceLost"]
    assert answer["exit_code"] == RENEWED

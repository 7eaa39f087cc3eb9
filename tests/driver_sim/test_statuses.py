"""Every status that a driver's library can answer is an error of ours."""

import re
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pynvml
import pytest

from codecfleet.actors.dla.engine.statuses import CudlaStatus
from codecfleet.errors import (
    DeviceError,
    DeviceLost,
    DeviceMemory,
    EngineFailed,
    EngineHung,
    EngineUnfit,
    SessionLimit,
    Unsupported,
    UsageError,
)

from .fault_cases import Case, assert_clear, told_by
from .fault_table import MORE, RETRIES
from .scenario import Action, Fault

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),  # the longest walk opens 210 decoders: 20 s on idle cores, 130 on busy ones
    pytest.mark.skipif(
        find_spec("PyNvVideoCodec") is None or find_spec("cuda") is None,
        reason="PyNvVideoCodec or cuda-python is missing",
    ),
]


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
    CudlaStatus.MEMORY_REGISTERED: UsageError,
    CudlaStatus.INCOMPATIBLE_DLA_SW_VERSION: Unsupported,
    CudlaStatus.INVALID_MODULE: Unsupported,
    CudlaStatus.UNSUPPORTED_OPERATION: Unsupported,
    CudlaStatus.DLA_ENGINE_TIMEOUT: EngineHung,
    **{
        status: EngineFailed
        for status in CudlaStatus
        if CudlaStatus.DLA_INVALID_INPUT <= status < CudlaStatus.DLA_ENGINE_TIMEOUT
    },
    CudlaStatus.DLA_DATA_MISMATCH: EngineFailed,
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
    from cuda.bindings import driver

    return [int(result) for result in driver.CUresult if int(result)]


def nvenc_statuses() -> list[int]:
    """Return every NVENCSTATUS that nvEncodeAPI.h defines: it counts from success."""
    told = subprocess.run(
        ["pkg-config", "--variable=includedir", "ffnvcodec"], capture_output=True, text=True, check=False
    )
    path = Path(told.stdout.strip(), "ffnvcodec", "nvEncodeAPI.h")
    if not path.is_file():
        pytest.skip("there is no nvEncodeAPI.h: apt-get install libffmpeg-nvenc-dev")
    header = path.read_text(encoding="utf-8")
    body = re.search(r"typedef enum _NVENCSTATUS\n\{(.*?)\} NVENCSTATUS;", header, re.DOTALL)
    assert body is not None
    names = re.findall(r"^ {4}(NV_ENC_\w+),?$", re.sub(r"/\*.*?\*/", "", body[1], flags=re.DOTALL), re.MULTILINE)
    assert names[0] == "NV_ENC_SUCCESS"
    return list(range(1, len(names)))


def cudla_statuses() -> list[int]:
    """Return every cudlaStatus that the binding's header defines, and those that came before or after."""
    from cuda.bindings import cudla

    defined = {int(status) for status in cudla.Status}
    assert defined <= {int(status) for status in CudlaStatus}
    return sorted(int(status) for status in CudlaStatus if status)


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
        # What closes a session that failed may call the function once more, unseen: that takes a fault too.
        met = [status for status in statuses[name] for _ in range(2 if name in TWICE else 1)]
        faults = tuple(
            Fault(function=function, action=Action.STATUS, value=value, call=call)
            for call, value in enumerate(met, start=1)
        )
        cases.append(Case(program, faults, times=len(faults), patience_s=500))
    found = told_by(tmp_path_factory.mktemp("walks"), cases, limit_s=550)
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
        assert f"(cuDLA status {CudlaStatus(code).name}, {code:#x})" in message
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

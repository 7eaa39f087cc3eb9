"""Asks an NVML library every query that codecfleet.testing.FakeNvml knows; the answers are plain values.

With the simulated driver, ``main`` prints the real binding's answers from the simulated library; a test
compares them with the fake's answers for the same machine.
"""

import ctypes
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pynvml

from codecfleet.testing.nvml.fake_nvml import _ON_DEVICES
from codecfleet.testing.nvml.fake_nvml_mig import SLICE_ANSWERS
from codecfleet.testing.nvml.fake_nvml_vgpu import INSTANCE_ANSWERS, TYPE_ANSWERS

__all__ = ["answers", "main"]

SYSTEM = (
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlDeviceGetCount",
)
PROFILE_IDS = (0, 5, 6, 9, 14, 15, 19, 20, 21, 32, 65, 67, 99)
ARGUMENTS: dict[str, tuple[tuple[Any, ...], ...]] = {
    "nvmlDeviceGetApplicationsClock": ((0,),),
    "nvmlDeviceGetClockInfo": ((0,), (3,)),
    "nvmlDeviceGetDefaultApplicationsClock": ((0,),),
    "nvmlDeviceGetFieldValues": (([230, 1],),),
    "nvmlDeviceGetGpuInstanceProfileInfoV": tuple((kind,) for kind in range(19)),
    "nvmlDeviceGetGpuInstanceRemainingCapacity": tuple((number,) for number in PROFILE_IDS),
    "nvmlDeviceGetInforomVersion": ((0,), (1,), (2,)),
    "nvmlDeviceGetMaxClockInfo": ((0,), (3,)),
    "nvmlDeviceGetMemoryErrorCounter": ((0, 0, 2), (1, 0, 7), (1, 0, 0)),
    "nvmlDeviceGetMemoryInfo": ((), (pynvml.nvmlMemory_v2,)),
    "nvmlDeviceGetPcieThroughput": ((0,),),
    "nvmlDeviceGetProcessUtilization": ((0,),),
    "nvmlDeviceGetRetiredPages": ((0,),),
    "nvmlDeviceGetTemperature": ((0,),),
    "nvmlDeviceGetTemperatureThreshold": ((0,),),
    "nvmlDeviceGetTemperatureV": ((0,),),
    "nvmlDeviceGetTotalEccErrors": ((1, 0), (0, 0)),
    "nvmlDeviceGetVgpuProcessUtilization": ((0,),),
    "nvmlDeviceGetVgpuUtilization": ((0,),),
    "nvmlVgpuInstanceGetAccountingStats": ((1,),),
    "nvmlVgpuTypeGetCapabilities": ((0,), (1,)),
}
# This query also takes a type, and is asked only for the types that the device supports.
NOT_ASKED = {"nvmlVgpuTypeGetMaxInstances"}
PADDING = frozenset({"version", "reserved", "opaqueData", "opaqueDataSize", "timestamp", "latencyUsec"})


def answers(nvml: Any) -> dict[str, Any]:
    """Return every answer by its query; an error is given by its number. ``nvml`` must be open."""
    said = {name: _said(getattr(nvml, name)) for name in SYSTEM}
    for index in range(nvml.nvmlDeviceGetCount()):
        said |= _of_device(nvml, index)
    for number in (*_supported(nvml), 77):
        said |= {key: value for name in TYPE_ANSWERS for key, value in _asked(nvml, name, number, str(number))}
    for number in (*_active(nvml), 77):
        said |= {key: value for name in INSTANCE_ANSWERS for key, value in _asked(nvml, name, number, str(number))}
    return said


def _of_device(nvml: Any, index: int) -> dict[str, Any]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    names = sorted({*_ON_DEVICES} - NOT_ASKED)
    said = {key: value for name in names for key, value in _asked(nvml, name, handle, f"gpu {index}")}
    for place in range(8):
        try:
            piece = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
        except pynvml.NVMLError as error:
            said[f"gpu {index} slice {place}"] = error.value
            continue
        for name in SLICE_ANSWERS:
            said |= dict(_asked(nvml, name, piece, f"gpu {index} slice {place}"))
        said[f"gpu {index} slice {place} has rates"] = _said(nvml.nvmlDeviceGetUtilizationRates, piece)
    said |= _of_instances(nvml, handle, f"gpu {index}")
    for number in _supported(nvml):
        said[f"gpu {index} holds of {number}"] = _said(nvml.nvmlVgpuTypeGetMaxInstances, handle, number)
    return said


def _of_instances(nvml: Any, gpu: object, called: str) -> dict[str, Any]:
    return {
        f"{called} instance {number}": _said(
            lambda each: nvml.nvmlGpuInstanceGetInfo(nvml.nvmlDeviceGetGpuInstanceById(gpu, each)), number
        )
        for number in range(1, 9)
    }


def _asked(nvml: Any, name: str, subject: object, called: str) -> Iterator[tuple[str, Any]]:
    for arguments in ARGUMENTS.get(name, ((),)):
        yield f"{called} {name}{list(arguments)}", _said(getattr(nvml, name), subject, *arguments)


def _said(function: Callable[..., Any], *arguments: object) -> Any:
    try:
        return _plain(function(*arguments))
    except pynvml.NVMLError as error:
        return {"error": error.value}


def _plain(value: Any) -> Any:  # noqa: PLR0911 - plain values
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, str):
        return value.replace(" (simulated)", "")
    if isinstance(value, ctypes.Union):
        return bytes(value).hex()
    if isinstance(value, ctypes.Structure):
        fields = (field[0] for field in value._fields_)
        return {name: _plain(getattr(value, name)) for name in fields if name not in PADDING}
    if isinstance(value, (list, tuple, ctypes.Array)):
        return [_plain(each) for each in value]
    if isinstance(value, ctypes._Pointer):
        return "a handle"
    if isinstance(value, ctypes._SimpleCData):
        return value.value
    return value


def _numbers(nvml: Any, name: str) -> list[int]:
    found: list[int] = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            found += getattr(nvml, name)(nvml.nvmlDeviceGetHandleByIndex(index))
        except pynvml.NVMLError:
            continue
    return found


def _supported(nvml: Any) -> list[int]:
    return _numbers(nvml, "nvmlDeviceGetSupportedVgpus")


def _active(nvml: Any) -> list[int]:
    return _numbers(nvml, "nvmlDeviceGetActiveVgpus")


def main() -> None:
    """Print what the library answers."""
    pynvml.nvmlInit()
    json.dump(answers(pynvml), sys.stdout)

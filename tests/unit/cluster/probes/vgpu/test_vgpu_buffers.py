import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeAlias

import pynvml
import pytest

from codecfleet.cluster.probes.nvml.calls import ask_named
from codecfleet.cluster.probes.report.absence import Unavailable
from codecfleet.cluster.probes.vgpu.buffers import with_safe_vgpu_calls

CPointer: TypeAlias = Any  # the form in which ctypes passes values to a callback

INSTANCE = 77
LONG_VM_ID = b"vm-" + b"x" * 100
METADATA_EXTRA_BYTES = 512

GET_TEXT = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_uint, ctypes.POINTER(ctypes.c_char), ctypes.c_uint, ctypes.POINTER(ctypes.c_uint)
)
GET_64 = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint, ctypes.POINTER(ctypes.c_ulonglong))
GET_SIZED = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint))
GET_PIDS = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint, ctypes.POINTER(ctypes.c_uint), ctypes.POINTER(ctypes.c_uint))


ACCOUNTED_MAX = 4000


class CDriver:
    """A libnvidia-ml of C functions that write as much as NVML's header allows, behind pynvml's own loader."""

    NVMLError = pynvml.NVMLError
    c_nvmlVgpuMetadata_t = pynvml.c_nvmlVgpuMetadata_t  # noqa: N815 - pynvml's name
    c_nvmlVgpuPgpuMetadata_t = pynvml.c_nvmlVgpuPgpuMetadata_t  # noqa: N815 - pynvml's name

    def __init__(self, pids: tuple[int, ...] = (), code: int = 0) -> None:
        self.pids = pids
        self.code = code
        self.rooms: list[int] = []
        self._functions = {
            "nvmlVgpuInstanceGetVmID": GET_TEXT(self._vm_id),
            "nvmlVgpuInstanceGetFbUsage": GET_64(self._usage),
            "nvmlVgpuInstanceGetMetadata": GET_SIZED(self._metadata),
            "nvmlDeviceGetVgpuMetadata": GET_SIZED(self._metadata),
            "nvmlVgpuInstanceGetAccountingPids": GET_PIDS(self._pids),
        }

    def _nvmlGetFunctionPointer(self, name: str) -> Callable[..., int]:  # noqa: N802 - pynvml's name
        return self._functions[name]

    def _vm_id(self, instance: int, buffer: CPointer, room: int, kind: CPointer) -> int:
        assert instance == INSTANCE
        ctypes.memset(buffer, 0x5A, room)  # NVML may use all the memory that it was told of
        ctypes.memmove(buffer, LONG_VM_ID + b"\0", len(LONG_VM_ID) + 1)
        kind[0] = 1
        return self.code

    def _usage(self, _instance: int, used: CPointer) -> int:
        used[0] = 5 << 30
        return self.code

    def _metadata(self, _instance: int, memory: int | None, room: CPointer) -> int:
        needed = ctypes.sizeof(pynvml.c_nvmlVgpuMetadata_t) + METADATA_EXTRA_BYTES
        self.rooms.append(room[0])
        if memory is None or room[0] < needed:
            room[0] = needed
            return 7
        ctypes.memset(memory, 0, needed)
        ctypes.cast(memory, ctypes.POINTER(ctypes.c_uint))[0] = 2
        return self.code

    def _pids(self, _instance: int, count: CPointer, pids: CPointer) -> int:
        if count[0] < len(self.pids):
            count[0] = ACCOUNTED_MAX
            return 7
        for position, pid in enumerate(self.pids):
            pids[position] = pid
        count[0] = len(self.pids)
        return self.code


def test_vm_id_longer_than_the_bindings_buffer_is_read_whole() -> None:
    """An id of more than 80 characters arrives whole, and no byte is written past the buffer."""
    assert with_safe_vgpu_calls(CDriver()).nvmlVgpuInstanceGetVmID(INSTANCE) == (LONG_VM_ID.decode(), 1)


def test_frame_buffer_use_above_four_gib_is_read_whole() -> None:
    """The use of the frame buffer is a 64-bit number, so 5 GiB do not become 1 GiB."""
    assert with_safe_vgpu_calls(CDriver()).nvmlVgpuInstanceGetFbUsage(INSTANCE) == 5 << 30


@pytest.mark.parametrize("function", ["nvmlVgpuInstanceGetMetadata", "nvmlDeviceGetVgpuMetadata"])
def test_metadata_gets_the_room_that_the_driver_asks_for(function: str) -> None:
    """The structure has as much memory as the driver requires, even if pynvml's structure is smaller."""
    driver = CDriver()
    found = getattr(with_safe_vgpu_calls(driver), function)(INSTANCE)
    assert found.version == 2
    assert driver.rooms == [0, ctypes.sizeof(pynvml.c_nvmlVgpuMetadata_t) + METADATA_EXTRA_BYTES]


@pytest.mark.parametrize("pids", [(), (4711,), (1, 2, 3)])
def test_accounted_processes_are_listed_none_included(pids: tuple[int, ...]) -> None:
    """If there are no accounted processes, the list is empty, and no call fails."""
    count, found = with_safe_vgpu_calls(CDriver(pids)).nvmlVgpuInstanceGetAccountingPids(INSTANCE)
    assert tuple(found[: count.value]) == pids
    assert len(found) == (ACCOUNTED_MAX if pids else 0)


@pytest.mark.parametrize(
    "function",
    [
        "nvmlVgpuInstanceGetVmID",
        "nvmlVgpuInstanceGetFbUsage",
        "nvmlVgpuInstanceGetMetadata",
        "nvmlVgpuInstanceGetAccountingPids",
    ],
)
def test_refusals_stay_nvmls_own(function: str) -> None:
    """A return code of the driver is raised as pynvml's error, which a probe turns into an absence."""
    driver = CDriver((1,), code=pynvml.NVML_ERROR_NOT_SUPPORTED)
    assert isinstance(ask_named(with_safe_vgpu_calls(driver), function, INSTANCE), Unavailable)


def test_library_without_a_loader_answers_itself() -> None:
    """A library without C functions is called directly."""
    library = SimpleNamespace(nvmlDeviceGetName=lambda _: "name")
    assert with_safe_vgpu_calls(library) is library

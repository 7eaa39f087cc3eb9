"""Asks the CUDA driver, in a process of its own: initialising it may hang, crash or end the process.

It calls libcuda through ctypes of its own and not through ``cuda.bindings``: it has to judge the driver the same way
whichever binding is installed, or none. Everything is yielded as soon as it is known, as plain values, so that a crash
leaves what came before it.
"""

import ctypes
import importlib
import os
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TypeAlias

CODEC_LIBRARIES = ("libnvcuvid.so.1", "libnvidia-encode.so.1", "libnvidia-ml.so.1")

ATTRIBUTES = {
    "integrated": 18,
    "compute_capability_major": 75,
    "compute_capability_minor": 76,
    "managed_memory": 83,
    "pageable_memory_access": 88,
    "concurrent_managed_access": 89,
    "can_use_host_pointer_for_registered_memory": 91,
    "host_register_supported": 99,
    "virtual_address_management_supported": 102,
    "handle_type_posix_file_descriptor_supported": 103,
}
"""The driver API's CU_DEVICE_ATTRIBUTE_* that say what a device's memory can do, by our names."""

Item: TypeAlias = tuple[str | int | None, ...]
_NAME_BYTES = 256
_KERNEL = b'extern "C" __global__ void trial(int *out) { *out = 1; }'


def ask(*, every_device: bool = False) -> Iterator[Item]:
    """Yield ``(key, *values)`` for everything that can be asked, the riskiest last.

    ``every_device`` asks about all the machine's devices, whatever CUDA_VISIBLE_DEVICES leaves of them.
    """
    if every_device:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        yield "no library", str(error)
        cuda = None
    if cuda is not None:
        yield "library", _mapped("libcuda.so")
        version = ctypes.c_int()
        yield "cuda version", _call(cuda, "cuDriverGetVersion", ctypes.byref(version)), version.value
    for name in CODEC_LIBRARIES:
        yield from _ask_codec_library(name)
    if cuda is not None:
        nvrtc = yield from _ask_nvrtc()
        yield from _ask_devices(cuda, nvrtc)


def _ask_codec_library(name: str) -> Iterator[Item]:
    yield "step", f"loading {name}"
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        yield "not loaded", name, str(error)
        return
    yield "loaded", name, _mapped(name.removesuffix(".1"))
    if name == "libnvidia-encode.so.1":
        version = ctypes.c_uint32()
        yield "nvenc", _call(library, "NvEncodeAPIGetMaxSupportedVersion", ctypes.byref(version)), version.value


def _ask_nvrtc() -> Generator[Item, None, ctypes.CDLL | None]:
    """Look for NVRTC where ``cuda.core`` does, which compiles our kernels with it; return it."""
    yield "step", "loading NVRTC"
    try:
        finder = importlib.import_module("cuda.pathfinder")
        library = ctypes.CDLL(finder.load_nvidia_dynamic_lib("nvrtc").abs_path)
    except (ImportError, OSError, RuntimeError) as error:
        yield "no nvrtc", str(error).partition("\n")[0]
        return None
    major, minor = ctypes.c_int(), ctypes.c_int()
    code = _call(library, "nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
    yield "nvrtc", code, f"{major.value}.{minor.value}"
    return library


def _ask_devices(cuda: ctypes.CDLL, nvrtc: ctypes.CDLL | None) -> Iterator[Item]:
    yield "step", "cuInit"
    code = _call(cuda, "cuInit", 0)
    yield "init", code
    if code != 0:
        return
    count = ctypes.c_int()
    yield "count", _call(cuda, "cuDeviceGetCount", ctypes.byref(count)), count.value
    for ordinal in range(count.value):
        yield from _ask_device(cuda, ordinal)
    # Contexts last: each takes memory and time, and may be what ends us.
    for ordinal in range(count.value):
        yield "step", f"retaining the primary context of device {ordinal}"
        yield from _ask_in_context(cuda, nvrtc, ordinal)


def _ask_device(cuda: ctypes.CDLL, ordinal: int) -> Iterator[Item]:
    yield "step", f"asking about device {ordinal}"
    device = _device(cuda, ordinal)
    name = ctypes.create_string_buffer(_NAME_BYTES)
    code = _call(cuda, "cuDeviceGetName", name, _NAME_BYTES, device)
    yield "device", ordinal, code, name.value.decode(errors="replace")
    code = _call(cuda, "cuDeviceGetPCIBusId", name, _NAME_BYTES, device)
    yield "pci", ordinal, code, name.value.decode(errors="replace")
    raw = (ctypes.c_ubyte * 16)()
    # The second version names a MIG instance, the first the GPU under it.
    code = _call(cuda, "cuDeviceGetUuid_v2", raw, device)
    if code is None:
        code = _call(cuda, "cuDeviceGetUuid", raw, device)
    yield "uuid", ordinal, code, str(uuid.UUID(bytes=bytes(raw)))
    for attribute, number in ATTRIBUTES.items():
        value = ctypes.c_int()
        code = _call(cuda, "cuDeviceGetAttribute", ctypes.byref(value), number, device)
        yield "attribute", ordinal, attribute, code, value.value


def _ask_in_context(cuda: ctypes.CDLL, nvrtc: ctypes.CDLL | None, ordinal: int) -> Iterator[Item]:
    """Retain the device's primary context, ask for its memory, and load a kernel.

    Yields "context" (code, code of asking, free and total bytes) and "kernel" (NVRTC's code, the driver's code).
    """
    device = _device(cuda, ordinal)
    context = ctypes.c_void_p()
    code = _call(cuda, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    if code != 0:
        yield "context", ordinal, code, None, 0, 0
        return
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    asked = _call(cuda, "cuCtxSetCurrent", context)
    if asked == 0:
        asked = _call(cuda, "cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    yield "context", ordinal, code, asked, free.value, total.value
    if nvrtc is not None and asked == 0:
        yield "step", f"loading a kernel on device {ordinal}"
        yield ("kernel", ordinal, *_kernel(cuda, nvrtc, device))
    _call(cuda, "cuDevicePrimaryCtxRelease_v2", device)


def _kernel(cuda: ctypes.CDLL, nvrtc: ctypes.CDLL, device: ctypes.c_int) -> Item:
    """Compile a kernel for the device and load it, as ``actors/nvidia/cuda/kernels.py`` does: both codes."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _call(cuda, "cuDeviceGetAttribute", ctypes.byref(major), ATTRIBUTES["compute_capability_major"], device)
    _call(cuda, "cuDeviceGetAttribute", ctypes.byref(minor), ATTRIBUTES["compute_capability_minor"], device)
    code, binary = _compiled(nvrtc, f"sm_{major.value}{minor.value}")
    if code != 0:
        return code, None
    module = ctypes.c_void_p()
    loaded = _call(cuda, "cuModuleLoadData", ctypes.byref(module), binary)
    if loaded == 0:
        _call(cuda, "cuModuleUnload", module)
    return code, loaded


def _compiled(nvrtc: ctypes.CDLL, architecture: str) -> tuple[int | None, bytes]:
    """Return NVRTC's code and the machine code of a kernel; code None is an NVRTC that makes no machine code."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture={architecture}".encode())
    code = _call(nvrtc, "nvrtcCreateProgram", ctypes.byref(program), _KERNEL, b"trial.cu", 0, None, None)
    code = code or _call(nvrtc, "nvrtcCompileProgram", program, 1, options)
    if code == 0:
        code = _call(nvrtc, "nvrtcGetCUBINSize", program, ctypes.byref(size))
    binary = ctypes.create_string_buffer(size.value)
    if code == 0:
        code = _call(nvrtc, "nvrtcGetCUBIN", program, binary)
    return code, binary.raw


def _device(cuda: ctypes.CDLL, ordinal: int) -> ctypes.c_int:
    device = ctypes.c_int(ordinal)
    _call(cuda, "cuDeviceGet", ctypes.byref(device), ordinal)
    return device


def _call(library: ctypes.CDLL, function: str, *arguments: object) -> int | None:
    """Return the call's code, or None where the library is older than the function."""
    found = getattr(library, function, None)
    return None if found is None else int(found(*arguments))


def _mapped(beginning: str) -> str:
    """Return the file of ours whose name begins so, as the kernel has mapped it; "" for none."""
    for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
        path = line.split(maxsplit=5)[5] if len(line.split(maxsplit=5)) > 5 else ""  # noqa: PLR2004 - maps has six columns
        if path.rpartition("/")[2].startswith(beginning):
            return path
    return ""

"""Queries the CUDA driver in a child process, because initialising the driver may hang, crash or call exit().

ctypes calls libcuda directly, so the driver can be judged with any version of ``cuda.bindings``, or none. Each answer
is yielded at once, so that a crash loses no earlier answers.
"""

import ctypes
import importlib
import os
import uuid
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from ..report.absence import Absence, Maybe, Unavailable
from .packages import library_of
from .report import NOT_ASKED, CudaDevice, CudaReport
from .tables import cuda_error, cuda_version

T = TypeVar("T")

CODEC_LIBRARIES = ("libnvcuvid.so.1", "libnvidia-encode.so.1", "libnvidia-ml.so.1")

ATTRIBUTES = {
    "compute_capability_major": 75,
    "compute_capability_minor": 76,
    "concurrent_managed_access": 89,
    "host_register_supported": 99,
    "virtual_address_management_supported": 102,
    "handle_type_posix_file_descriptor_supported": 103,
}
"""The CU_DEVICE_ATTRIBUTE_* numbers of the compute capability and of features of the memory, under codecfleet's
names."""


UNASKED = CudaReport(codec_libraries=dict.fromkeys(CODEC_LIBRARIES, NOT_ASKED))
"""The report if the child process returns nothing."""
Found: TypeAlias = str | dict[str, Any]
"""The name of the next step, or fields of ``CudaReport``."""
_NO_LIBRARY = Unavailable(Absence.NO_LIBRARY, "libcuda.so.1 is not installed")
_NOT_IN_DRIVER = Unavailable(Absence.FUNCTION_NOT_FOUND, "the driver is too old to answer this question")
_NOT_INITIALISED = Unavailable(Absence.FAILED, "cuInit failed, so nothing more was asked")
_NO_CONTEXT = Unavailable(Absence.FAILED, "there is no context")
_NEED_LIBCUDA = ("cuda_version", "init_code", "device_count", "nvenc_api", "nvrtc")
_NAME_BYTES = 256
_KERNEL = b'extern "C" __global__ void trial(int *out) { *out = 1; }'


def ask(*, every_device: bool = False) -> Iterator[Found]:
    """Yield all answers, the riskiest questions last; ``every_device`` ignores CUDA_VISIBLE_DEVICES."""
    if every_device:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    cuda = None
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        yield {**dict.fromkeys(_NEED_LIBCUDA, _NO_LIBRARY), "library": _not_loaded("libcuda", error)}
    else:
        path, version = _mapped("libcuda.so"), ctypes.c_int()
        code = _call(cuda, "cuDriverGetVersion", ctypes.byref(version))
        library = library_of(path) if path else NOT_ASKED
        yield {"library": library, "cuda_version": _answer(code, cuda_version(version.value))}
    yield from _ask_codec_libraries()
    if cuda is not None:
        nvrtc = yield from ask_nvrtc()
        yield from _ask_devices(cuda, nvrtc)


def _ask_codec_libraries() -> Iterator[Found]:
    found = dict(UNASKED.codec_libraries)
    for name in CODEC_LIBRARIES:
        yield f"loading {name}"
        try:
            library = ctypes.CDLL(name)
        except OSError as error:
            found[name] = _not_loaded(name, error)
            yield {"codec_libraries": dict(found)}
            continue
        found[name] = _mapped(name.removesuffix(".1"))
        yield {"codec_libraries": dict(found)}
        if name == "libnvidia-encode.so.1":
            version = ctypes.c_uint32()
            code = _call(library, "NvEncodeAPIGetMaxSupportedVersion", ctypes.byref(version))
            yield {"nvenc_api": _answer(code, f"{version.value >> 4}.{version.value & 15}")}


def ask_nvrtc() -> Generator[Found, None, ctypes.CDLL | None]:
    """Load the NVRTC that ``cuda.core`` would load to compile kernels; return NVRTC, or None on failure."""
    yield "loading NVRTC"
    try:
        finder = importlib.import_module("cuda.pathfinder")
        library = ctypes.CDLL(finder.load_nvidia_dynamic_lib("nvrtc").abs_path)
    except (ImportError, OSError, RuntimeError) as error:
        yield {"nvrtc": _not_loaded("NVRTC", str(error).partition("\n")[0])}
        return None
    major, minor = ctypes.c_int(), ctypes.c_int()
    code = _call(library, "nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
    yield {"nvrtc": _answer(code, f"{major.value}.{minor.value}")}
    return library


def _ask_devices(cuda: ctypes.CDLL, nvrtc: ctypes.CDLL | None) -> Iterator[Found]:
    yield "cuInit"
    code = _call(cuda, "cuInit", 0)
    if code != 0:
        yield {"init_code": _code(code), "device_count": _NOT_INITIALISED}
        return
    yield {"init_code": code}
    count = ctypes.c_int()
    yield {"device_count": _answer(_call(cuda, "cuDeviceGetCount", ctypes.byref(count)), count.value)}
    devices: list[CudaDevice] = []
    for ordinal in range(count.value):
        yield f"asking about device {ordinal}"
        devices.append(_device(cuda, ordinal))
        yield {"devices": tuple(devices)}
    # Contexts come last: each context takes memory and time, and creating it may end this process.
    for ordinal in range(count.value):
        yield f"retaining the primary context of device {ordinal}"
        for found in _in_context(cuda, nvrtc, devices[ordinal]):
            if isinstance(found, CudaDevice):
                devices[ordinal] = found
            yield found if isinstance(found, str) else {"devices": tuple(devices)}


def _device(cuda: ctypes.CDLL, ordinal: int) -> CudaDevice:
    device = _handle(cuda, ordinal)
    text, raw = ctypes.create_string_buffer(_NAME_BYTES), (ctypes.c_ubyte * 16)()
    _call(cuda, "cuDeviceGetName", text, _NAME_BYTES, device)
    # For a MIG instance, cuDeviceGetUuid would return the UUID of its GPU.
    identified = _call(cuda, "cuDeviceGetUuid_v2", raw, device)
    attributes = {each: _answer(*_attribute(cuda, device, each)) for each in ATTRIBUTES}
    major, minor = attributes.pop("compute_capability_major"), attributes.pop("compute_capability_minor")
    return CudaDevice(
        ordinal=ordinal,
        uuid=_answer(identified, str(uuid.UUID(bytes=bytes(raw)))),
        name=text.value.decode(errors="replace"),
        compute_capability=major if isinstance(major, Unavailable) else f"{major}.{minor}",
        attributes=attributes,
    )


def _attribute(cuda: ctypes.CDLL, device: ctypes.c_int, attribute: str) -> tuple[int | None, int]:
    value = ctypes.c_int()
    code = _call(cuda, "cuDeviceGetAttribute", ctypes.byref(value), ATTRIBUTES[attribute], device)
    return code, value.value


def _in_context(cuda: ctypes.CDLL, nvrtc: ctypes.CDLL | None, known: CudaDevice) -> Iterator[str | CudaDevice]:
    """Yield the device with its context's return code and free memory, then with the result of loading a kernel too."""
    device, context = _handle(cuda, known.ordinal), ctypes.c_void_p()
    code = _call(cuda, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    if code != 0:
        yield replace(known, context_code=_code(code), free_bytes=_in_words(code))
        return
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    asked = _call(cuda, "cuCtxSetCurrent", context)
    if asked == 0:
        asked = _call(cuda, "cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    if asked != 0:
        yield replace(known, context_code=code, free_bytes=_in_words(asked))
    else:
        known = replace(known, context_code=code, free_bytes=free.value)
        yield known
        if nvrtc is not None:
            yield f"loading a kernel on device {known.ordinal}"
            yield replace(known, kernel_code=_kernel(cuda, nvrtc, device))
    _call(cuda, "cuDevicePrimaryCtxRelease_v2", device)


def _in_words(code: int | None) -> Unavailable:
    return _NO_CONTEXT if code is None else Unavailable(Absence.FAILED, cuda_error(code).meaning)


def _kernel(cuda: ctypes.CDLL, nvrtc: ctypes.CDLL, device: ctypes.c_int) -> Maybe[int]:
    """Compile and load a kernel as ``actors/nvidia/cuda/kernels.py`` does; return the driver's return code."""
    _, major = _attribute(cuda, device, "compute_capability_major")
    _, minor = _attribute(cuda, device, "compute_capability_minor")
    code, binary = _compiled(nvrtc, f"sm_{major}{minor}")
    if code != 0:
        return compile_refusal(code)
    module = ctypes.c_void_p()
    loaded = _call(cuda, "cuModuleLoadData", ctypes.byref(module), binary)
    if loaded == 0:
        _call(cuda, "cuModuleUnload", module)
    return _code(loaded)


def compile_refusal(code: int | None) -> Unavailable:
    """Return why NVRTC compiled no kernel; ``code`` is NVRTC's return code, or None if its version makes no binary."""
    said = "produced no machine code" if code is None else f"returned {code}"
    return Unavailable(Absence.NOT_SUPPORTED, f"NVRTC {said} when compiling a kernel for this device")


def _compiled(nvrtc: ctypes.CDLL, architecture: str) -> tuple[int | None, bytes]:
    """Return NVRTC's return code (None if it cannot produce machine code) and the kernel's machine code."""
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


def _handle(cuda: ctypes.CDLL, ordinal: int) -> ctypes.c_int:
    device = ctypes.c_int(ordinal)
    _call(cuda, "cuDeviceGet", ctypes.byref(device), ordinal)
    return device


def _call(library: ctypes.CDLL, function: str, *arguments: object) -> int | None:
    """Return the called function's return code; None if the library is too old to have the function."""
    found = getattr(library, function, None)
    return None if found is None else int(found(*arguments))


def _code(code: int | None) -> Maybe[int]:
    return _NOT_IN_DRIVER if code is None else code


def _answer(code: int | None, value: T) -> Maybe[T]:
    """Return the value if the call succeeded, otherwise the reason why there is no value."""
    if code is None:
        return _NOT_IN_DRIVER
    error = cuda_error(code)
    return Unavailable(Absence.FAILED, f"{error.name} ({code}): {error.meaning}") if code else value


def _not_loaded(what: str, why: object) -> Unavailable:
    return Unavailable(Absence.NO_LIBRARY, f"{what} cannot be loaded: {why}")


def _mapped(beginning: str) -> str:
    """Return the path of a mapped file with a name that starts with ``beginning``; "" if this process maps none."""
    for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
        _, slash, path = line.partition("/")  # the path is the last column
        if path.rpartition("/")[2].startswith(beginning):
            return slash + path
    return ""

"""libEGL through ctypes: functions, errors and displays.

Sources: EGL 1.5; EGL_EXT_device_base, EGL_EXT_platform_device, EGL_NV_device_cuda.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from ....errors import DeviceError, DeviceLost, DeviceMemory, EngineUnfit, UsageError
from ...watchdog import process_watch

NONE: Final = 0x3038
_EXTENSIONS: Final = 0x3055
_CUDA_DEVICE: Final = 0x323A
_PLATFORM_DEVICE: Final = 0x313F
_DEVICES_MOST: Final = 32
_FIX: Final = "Install libegl1 and the driver's EGL library; codecfleet doctor shows the driver."
_WRONG: Final = "docs/egl.md lists what each end may do, and when."

_P, _I, _U = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32
_U64 = ctypes.c_uint64
_FUNCTIONS: Final[dict[str, tuple[Any, ...]]] = {
    "eglInitialize": (_U, _P, _P, _P),
    "eglQueryDevicesEXT": (_U, _I, _P, _P),
    "eglQueryDeviceAttribEXT": (_U, _P, _I, _P),
    "eglGetPlatformDisplayEXT": (_P, _U, _P, _P),
    "eglBindAPI": (_U, _U),
    "eglChooseConfig": (_U, _P, _P, _P, _I, _P),
    "eglCreateContext": (_P, _P, _P, _P, _P),
    "eglDestroyContext": (_U, _P, _P),
    "eglMakeCurrent": (_U, _P, _P, _P, _P),
    "eglCreateStreamKHR": (_P, _P, _P),
    "eglDestroyStreamKHR": (_U, _P, _P),
    "eglQueryStreamKHR": (_U, _P, _P, _U, _P),
    "eglQueryStreamu64KHR": (_U, _P, _P, _U, _P),
    "eglGetStreamFileDescriptorKHR": (_I, _P, _P),
    "eglCreateStreamFromFileDescriptorKHR": (_P, _P, _I),
    "eglCreateImageKHR": (_P, _P, _P, _U, _P, _P),
    "eglDestroyImageKHR": (_U, _P, _P),
    "eglCreateSyncKHR": (_P, _P, _U, _P),
    "eglCreateSync64KHR": (_P, _P, _U, _P),
    "eglClientWaitSyncKHR": (_I, _P, _P, _I, _U64),
    "eglDestroySyncKHR": (_U, _P, _P),
}
"""Each function's result type and parameter types. A handle is an address."""
_NO_DESCRIPTOR: Final = -1


@dataclass(frozen=True, slots=True)
class _Code:
    """An error number of EGL: its name, and codecfleet's error class for it."""

    name: str
    kind: type[DeviceError] | type[UsageError]


_LIBRARY: Final = "libEGL.so.1"
_SUCCESS: Final = 0x3000
_CODES: Final = {
    0x3001: _Code("EGL_NOT_INITIALIZED", EngineUnfit),
    0x3002: _Code("EGL_BAD_ACCESS", DeviceError),
    0x3003: _Code("EGL_BAD_ALLOC", DeviceMemory),
    0x3004: _Code("EGL_BAD_ATTRIBUTE", UsageError),
    0x3005: _Code("EGL_BAD_CONFIG", EngineUnfit),
    0x3006: _Code("EGL_BAD_CONTEXT", UsageError),
    0x3008: _Code("EGL_BAD_DISPLAY", UsageError),
    0x3009: _Code("EGL_BAD_MATCH", UsageError),
    0x300C: _Code("EGL_BAD_PARAMETER", UsageError),
    0x300E: _Code("EGL_CONTEXT_LOST", DeviceLost),
    0x321B: _Code("EGL_BAD_STREAM_KHR", UsageError),
    0x321C: _Code("EGL_BAD_STATE_KHR", UsageError),
}
"""EGL's errors by number (egl.h, EGL_KHR_stream)."""


class Egl:
    """The process's libEGL; ``EngineUnfit`` if it is missing. Safe from any thread: EGL keeps an error per thread."""

    def __init__(self) -> None:
        try:
            library = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            raise EngineUnfit(f"{_LIBRARY} cannot be loaded: {error}", _FIX) from error
        self._get: Any = library.eglGetProcAddress
        self._get.restype, self._get.argtypes = _P, (ctypes.c_char_p,)
        self._query: Any = library.eglQueryString
        self._query.restype, self._query.argtypes = ctypes.c_char_p, (_P, _I)
        self._error: Any = library.eglGetError
        self._library = library
        self._found: dict[str, Any] = {}

    def function(self, name: str, *types: object) -> Any:
        """Return a function of libEGL; ``types`` replace the usual types of its result and arguments.

        Raises EngineUnfit if this libEGL lacks the function.
        """
        if name not in self._found:
            signature: tuple[Any, ...] = types or _FUNCTIONS[name]
            address = self._get(name.encode())
            if address:
                self._found[name] = ctypes.CFUNCTYPE(*signature)(address)
            elif hasattr(self._library, name):
                core: Any = getattr(self._library, name)
                core.restype, core.argtypes = signature[0], signature[1:]
                self._found[name] = core
            else:
                raise EngineUnfit(f"libEGL has no {name}", _FIX)
        return self._found[name]

    def call(self, name: str, *arguments: object) -> Any:
        """Call a function under watch; return its result, unless the result means failure.

        Raises:
            UsageError: an argument, or the state of an object, does not fit.
            EngineUnfit: this libEGL does not have the function.
            DeviceMemory, DeviceLost, DeviceError: the call failed in another way.
        """
        function = self.function(name)
        with process_watch().calling("EGL", name):
            found = function(*arguments)
            code = _SUCCESS if found and found != _NO_DESCRIPTOR else self._error()
        if code != _SUCCESS:
            known = _CODES.get(code, _Code("", DeviceError))
            named = f" ({known.name})" if known.name else ""
            raise known.kind(f"{name} failed with EGL error {code:#x}{named}", _WRONG)
        if not found:
            raise DeviceError(f"{name} failed and reports no error", _WRONG)
        return found

    def extensions(self, display: int | None) -> frozenset[str]:
        """Return the extensions of a display; None means the extensions that need no display."""
        return frozenset((self._query(display, _EXTENSIONS) or b"").decode().split())


def attributes(*pairs: tuple[int, int]) -> Any:
    """Return a list of attributes in the form that EGL takes: 32 bits each, with EGL_NONE at the end."""
    return (_I * (2 * len(pairs) + 1))(*(number for pair in pairs for number in pair), NONE)


class EglDisplay:
    """An initialised display, which stays open until the process ends: EGL gives the same display to every caller."""

    def __init__(self, egl: Egl, handle: int) -> None:
        self.egl = egl
        self.handle = handle
        major, minor = _I(), _I()
        egl.call("eglInitialize", handle, ctypes.byref(major), ctypes.byref(minor))

        self.extensions = egl.extensions(handle)

    def require(self, extensions: Sequence[str]) -> None:
        """Check that the display has these extensions; ``EngineUnfit`` names the missing extensions."""
        lacking = [name for name in extensions if name not in self.extensions]
        if lacking:
            raise EngineUnfit(f"this machine's EGL lacks {', '.join(lacking)}", _FIX)


@cache
def egl() -> Egl:
    """Return this process's libEGL; ``EngineUnfit`` if there is none."""
    return Egl()


@cache
def device_display() -> EglDisplay:
    """Return the display of the GPU that CUDA numbers 0 (EGL_CUDA_DEVICE_NV); no screen is needed.

    ``EngineUnfit`` if no EGL device is that GPU, ``DeviceError`` if the display does not open.
    """
    library = egl()
    count, devices = _I(), (_P * _DEVICES_MOST)()
    library.call("eglQueryDevicesEXT", _DEVICES_MOST, devices, ctypes.byref(count))
    for device in devices[: count.value]:
        number = ctypes.c_ssize_t(-1)
        is_known = library.function("eglQueryDeviceAttribEXT")(device, _CUDA_DEVICE, ctypes.byref(number))
        if is_known and number.value == 0:
            return EglDisplay(library, library.call("eglGetPlatformDisplayEXT", _PLATFORM_DEVICE, device, None))
    raise EngineUnfit(f"none of {count.value} EGL devices is the CUDA device 0", _FIX)

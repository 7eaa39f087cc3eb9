"""The one place where NVML is called, and where its errors become values.

NVML answers with a return code, which the Python binding raises. "Not supported", "no permission" and the like are
ordinary answers about a machine; a lost GPU or a replaced driver is trouble that health has to see. Neither may leave a
probe as an exception or become a zero.

The library is always an argument: the ``pynvml`` module (package nvidia-ml-py), or ``codecfleet.testing.FakeNvml``.
Return codes: NVML API Reference Manual, "nvmlReturn_t".
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ..report.absence import Absence, Maybe, Unavailable

T = TypeVar("T")

SUCCESS = 0
GPU_IS_LOST = 15
RESET_REQUIRED = 16
LIB_RM_VERSION_MISMATCH = 18
GPU_NOT_FOUND = 28

_NAMES = (
    "SUCCESS UNINITIALIZED INVALID_ARGUMENT NOT_SUPPORTED NO_PERMISSION ALREADY_INITIALIZED NOT_FOUND INSUFFICIENT_SIZE"
    " INSUFFICIENT_POWER DRIVER_NOT_LOADED TIMEOUT IRQ_ISSUE LIBRARY_NOT_FOUND FUNCTION_NOT_FOUND CORRUPTED_INFOROM"
    " GPU_IS_LOST RESET_REQUIRED OPERATING_SYSTEM LIB_RM_VERSION_MISMATCH IN_USE MEMORY NO_DATA VGPU_ECC_NOT_SUPPORTED"
    " INSUFFICIENT_RESOURCES FREQ_NOT_SUPPORTED ARGUMENT_VERSION_MISMATCH DEPRECATED NOT_READY GPU_NOT_FOUND"
    " INVALID_STATE RESET_TYPE_NOT_SUPPORTED"
)
RETURN_CODES: dict[int, str] = {**dict(enumerate(_NAMES.split())), 999: "UNKNOWN"}

# What is an ordinary answer, and what it says. Where vGPU functions are not supported at all, some drivers answer
# INVALID_ARGUMENT instead of NOT_SUPPORTED (vGPU Management SDK guide, 2.1), so that is one too. A structure version
# that the driver does not know, and a function that it has given up, mean that driver and question do not match.
_ORDINARY: dict[int, tuple[Absence, str]] = {
    SUCCESS: (Absence.NOT_FOUND, "there are no samples"),
    2: (Absence.NOT_SUPPORTED, "this device does not take the question"),
    3: (Absence.NOT_SUPPORTED, "this device or its driver has no such thing"),
    4: (Absence.NO_PERMISSION, "the driver answers only privileged users"),
    6: (Absence.NOT_FOUND, "there is none at present"),
    9: (Absence.NO_LIBRARY, "the NVIDIA kernel driver is not loaded"),
    10: (Absence.TIMED_OUT, "the driver did not answer in time"),
    12: (Absence.NO_LIBRARY, "libnvidia-ml.so.1 was not found"),
    13: (Absence.FUNCTION_NOT_FOUND, "the installed driver is older than the question"),
    21: (Absence.NOT_FOUND, "there is no data at present"),
    22: (Absence.NOT_SUPPORTED, "the vGPU has no ECC"),
    24: (Absence.NOT_SUPPORTED, "this device has no such frequency"),
    25: (Absence.FUNCTION_NOT_FOUND, "the driver does not know this version of the question"),
    26: (Absence.FUNCTION_NOT_FOUND, "the driver has given the function up"),
    27: (Absence.NOT_FOUND, "the driver has no value yet"),
}

_TROUBLE: dict[int, str] = {
    GPU_IS_LOST: "the GPU has fallen off the bus, or the driver cannot reach it",
    RESET_REQUIRED: "the GPU needs a reset before it can be used",
    LIB_RM_VERSION_MISMATCH: "the driver's files were exchanged under the kernel module that is loaded",
    GPU_NOT_FOUND: "the GPU is no longer there",
}


class NvmlLike(Protocol):
    """What offers pynvml's functions, structures and constants by their names."""

    def __getattr__(self, name: str) -> Any:
        """Return a function, structure or constant."""


def can_load_nvml() -> bool:
    """Return whether libnvidia-ml is where pynvml looks for it: without it no child needs to ask; nothing is called."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


class CodeAnswered(Exception):
    """A structure holds a return code of its own; readers raise this, and ``ask`` ends it."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class Trouble:
    """A return code that no healthy device gives, and the function that gave it."""

    function: str
    code: int

    @property
    def sentence(self) -> str:
        """Return it as a sentence without a full stop."""
        return f"{self.function} answered {code_name(self.code)} ({self.code}): {_meaning(self.code)}"


def code_name(code: int) -> str:
    """Return a return code's name without its prefix: 15 is "GPU_IS_LOST"."""
    return RETURN_CODES.get(code, "an unknown code")


def absence_of(function: str, code: int) -> Unavailable:
    """Say why there is no value when ``function`` answered ``code``; never raises."""
    absence = _ORDINARY[code][0] if code in _ORDINARY else Absence.FAILED
    return Unavailable(absence, f"{function} answered {code_name(code)} ({code}): {_meaning(code)}")


def ask_named(nvml: NvmlLike, function: str, *arguments: object) -> Maybe[Any]:
    """Call one NVML function by its name, which the installed binding may lack; never raises."""
    return ask_with_code(nvml, function, *arguments)[0]


def ask_with_code(
    nvml: NvmlLike, function: str, *arguments: object, read: Callable[[Any], Any] = lambda value: value
) -> tuple[Maybe[Any], int]:
    """Call one NVML function by its name, and return also which code it answered where it failed; never raises."""
    call = getattr(nvml, function, None)
    if call is None:
        reason = f"the installed nvidia-ml-py is older than {function}"
        return Unavailable(Absence.FUNCTION_NOT_FOUND, reason), SUCCESS
    try:
        return read(call(*arguments)), SUCCESS
    except Exception as error:  # noqa: BLE001 - the edge to a foreign library: whatever it raises is its answer
        code = _code(error)
        if code is None:
            return Unavailable(Absence.FAILED, f"{function} failed with {type(error).__name__}: {error}"), SUCCESS
        return absence_of(function, code), code


def read_text(value: str | bytes) -> str:
    """Read a string of NVML's: most come decoded, some as bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


class DeviceQuestions:
    """All questions that one device is asked: adds its handle, leaves out what cannot apply, remembers trouble.

    Args:
        nvml: the library.
        handle: the device's handle.
        unasked: says for a function's name why it is not worth asking on this device, or None.
    """

    def __init__(
        self, nvml: NvmlLike, handle: object, unasked: Callable[[str], Unavailable | None] = lambda _: None
    ) -> None:
        self.nvml = nvml
        self.handle = handle
        self.trouble: list[Trouble] = []
        self._unasked = unasked

    def ask(self, function: str, *arguments: object, read: Callable[[Any], T]) -> Maybe[T]:
        """Ask this device, and read the answer with ``read``, which may raise what an odd answer makes it raise."""
        absence = self._unasked(function)
        if absence is not None:
            return absence
        return self.ask_of(self.handle, function, *arguments, read=read)

    def ask_of(self, subject: object, function: str, *arguments: object, read: Callable[[Any], T]) -> Maybe[T]:
        """Ask about something else that belongs to this device: a MIG instance, a GPU instance, an event set."""
        return self._ask(function, (subject, *arguments), read)

    def ask_none(self, function: str, *, read: Callable[[Any], T]) -> Maybe[T]:
        """Ask for something that no subject is named for: a new event set, a new sample."""
        return self._ask(function, (), read)

    def _ask(self, function: str, arguments: tuple[object, ...], read: Callable[[Any], T]) -> Maybe[T]:
        value, code = ask_with_code(self.nvml, function, *arguments, read=read)
        if code in _TROUBLE:
            self.trouble.append(Trouble(function, code))
        return value

    @property
    def lost(self) -> str:
        """Return why the device cannot be used, as a sentence without a full stop, or "" where nothing says so."""
        return next((trouble.sentence for trouble in self.trouble), "")


def _code(error: Exception) -> int | None:
    # NVMLError carries its code in ``value``. It is known by its name, not its class, because the fake and the real
    # module may each bring their own; and an unversioned function hides FUNCTION_NOT_FOUND in an error without a code.
    if isinstance(error, CodeAnswered):
        return error.code
    if type(error).__name__ == "NVMLLibraryMismatchError":
        return 13
    if any(kind.__name__ == "NVMLError" for kind in type(error).__mro__):
        code = getattr(error, "value", None)
        return code if isinstance(code, int) else None
    return None


def _meaning(code: int) -> str:
    if code in _TROUBLE:
        return _TROUBLE[code]
    return _ORDINARY[code][1] if code in _ORDINARY else "the driver could not say"

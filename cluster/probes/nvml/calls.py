"""Calls NVML, and turns its return codes, which the binding raises, into values.

No probe raises them, and no absence becomes a zero. The library is always an argument: the ``pynvml`` module (package
nvidia-ml-py), or ``codecfleet.testing.FakeNvml``. Codes: NVML API Reference Manual, "nvmlReturn_t".
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias, TypeVar

from ..report.absence import Absence, Maybe, Unavailable
from ..report.tables import read_tables

T = TypeVar("T")
NvmlLike: TypeAlias = Any
"""An object with pynvml's functions, structures and constants under their names."""

SUCCESS = 0


@dataclass(frozen=True, slots=True)
class ReturnCode:
    """A return code of NVML's."""

    name: str
    absence: str = Absence.FAILED.value
    meaning: str = "the driver gave no answer"
    fix: str = ""  # the user's next step if the library does not start with it
    is_trouble: bool = False  # no healthy device answers this


@cache
def return_codes() -> dict[int, ReturnCode]:
    """Return what is known of each code."""
    return {int(code): ReturnCode(**row) for code, row in read_tables("nvml.toml")["codes"].items()}


_UNKNOWN = ReturnCode("an unknown code")


def can_load_nvml() -> bool:
    """Return whether libnvidia-ml is where pynvml looks for it: without it no child needs to ask. Calls nothing."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


class CodeAnswered(Exception):
    """A structure holds a return code of its own; readers raise this, and ``ask`` catches it."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def absence_of(function: str, code: int) -> Unavailable:
    """Return why there is no value when ``function`` answered ``code``; never raises."""
    found = return_codes().get(code, _UNKNOWN)
    return Unavailable(Absence(found.absence), f"{function} answered {found.name} ({code}): {found.meaning}")


def ask_named(nvml: NvmlLike, function: str, *arguments: object) -> Maybe[Any]:
    """Call one NVML function by its name, which the installed binding may lack; never raises."""
    return ask_with_code(nvml, function, *arguments)[0]


def ask_with_code(
    nvml: NvmlLike, function: str, *arguments: object, read: Callable[[Any], Any] = lambda value: value
) -> tuple[Maybe[Any], int]:
    """Call one NVML function by its name, and return also the code with which it failed; never raises."""
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
    """Read a string of NVML's: most are decoded already, some are bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


class DeviceQuestions:
    """All questions that one device is asked.

    ``unasked`` says why a function is not worth calling on it, or None. ``lost`` says why the device cannot be used, as
    a sentence without a full stop; "" if no answer says so.
    """

    def __init__(
        self, nvml: NvmlLike, handle: object, unasked: Callable[[str], Unavailable | None] = lambda _: None
    ) -> None:
        self.nvml = nvml
        self.handle = handle
        self.lost = ""
        self._unasked = unasked

    def ask(self, function: str, *arguments: object, read: Callable[[Any], T]) -> Maybe[T]:
        """Ask this device, and read the answer with ``read``, which may raise any error for an odd answer."""
        absence = self._unasked(function)
        if absence is not None:
            return absence
        return self.ask_of(self.handle, function, *arguments, read=read)

    def ask_of(self, subject: object, function: str, *arguments: object, read: Callable[[Any], T]) -> Maybe[T]:
        """Ask about something else that belongs to this device: a MIG instance, a GPU instance, an event set."""
        value, code = ask_with_code(self.nvml, function, subject, *arguments, read=read)
        if return_codes().get(code, _UNKNOWN).is_trouble:
            self.lost = self.lost or absence_of(function, code).reason
        return value


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

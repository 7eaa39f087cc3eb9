"""Calls NVML. The binding raises return codes as exceptions, which become values here.

The library is an argument: the ``pynvml`` module of nvidia-ml-py, or
``codecfleet.testing.FakeNvml``. The NVML API Reference Manual, "nvmlReturn_t", lists the codes.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ..report.absence import Absence, Maybe, Unavailable
from ..report.tables import read_tables

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
R = TypeVar("R", bound="DataclassInstance")
NvmlLike: TypeAlias = Any
"""An object with pynvml's functions, structures and constants under their names."""

SUCCESS = 0


@dataclass(frozen=True, slots=True)
class ReturnCode:
    """An NVML return code."""

    name: str
    absence: str = Absence.FAILED.value
    meaning: str = "the driver gave no answer"
    fix: str = ""  # the fix if nvmlInit returns this code
    is_trouble: bool = False  # whether the code means that the device cannot be used


@cache
def return_codes() -> dict[int, ReturnCode]:
    """Return the return codes in ``nvml.toml``, by number."""
    return {int(code): ReturnCode(**row) for code, row in read_tables("nvml.toml")["codes"].items()}


_UNKNOWN = ReturnCode("an unknown code")


def can_load_nvml() -> bool:
    """Return whether libnvidia-ml can be loaded. No function of the library is called."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


class CodeAnswered(Exception):
    """Raised by a reader that finds a return code in a structure; ``ask`` catches it."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def absence_of(function: str, code: int) -> Unavailable:
    """Translate a return code of ``function`` into an absence; never raises."""
    found = return_codes().get(code, _UNKNOWN)
    return Unavailable(Absence(found.absence), f"{function} answered {found.name} ({code}): {found.meaning}")


def ask_named(nvml: NvmlLike, function: str, *arguments: object) -> Maybe[Any]:
    """Call an NVML function by name, because the installed binding may lack the function. Never raises."""
    return ask_with_code(nvml, function, *arguments)[0]


def ask_with_code(
    nvml: NvmlLike, function: str, *arguments: object, read: Callable[[Any], Any] = lambda value: value
) -> tuple[Maybe[Any], int]:
    """Call an NVML function by name; return the answer, and the return code or, without one, SUCCESS. Never raises."""
    call = getattr(nvml, function, None)
    if call is None:
        reason = f"the installed nvidia-ml-py is older than {function}"
        return Unavailable(Absence.FUNCTION_NOT_FOUND, reason), SUCCESS
    try:
        return read(call(*arguments)), SUCCESS
    except Exception as error:  # noqa: BLE001 - any exception of the library becomes the answer
        code = _code(error)
        if code is None:
            return Unavailable(Absence.FAILED, f"{function} failed with {type(error).__name__}: {error}"), SUCCESS
        return absence_of(function, code), code


def read_text(value: str | bytes) -> str:
    """Decode an NVML string, unless the binding has decoded it."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


class DeviceQuestions:
    """Queries one device.

    ``unasked`` returns why a function does not apply to the device; None if it applies. ``lost`` is why the device
    cannot be used, as a sentence without a full stop; "" as long as no answer indicates this.
    """

    def __init__(
        self, nvml: NvmlLike, handle: object, unasked: Callable[[str], Unavailable | None] = lambda _: None
    ) -> None:
        self.nvml = nvml
        self.handle = handle
        self.lost = ""
        self._unasked = unasked

    def ask(self, function: str, *arguments: object, read: Callable[[Any], T]) -> Maybe[T]:
        """Query this device; ``read`` converts the answer, and may raise any error."""
        absence = self._unasked(function)
        if absence is not None:
            return absence
        return self.ask_of(self.handle, function, *arguments, read=read)

    def ask_of(self, subject: object, function: str, *arguments: object, read: Callable[[Any], T]) -> Maybe[T]:
        """Query a part of this device, such as a MIG instance, a GPU instance or an event set."""
        value, code = ask_with_code(self.nvml, function, subject, *arguments, read=read)
        if return_codes().get(code, _UNKNOWN).is_trouble:
            self.lost = self.lost or absence_of(function, code).reason
        return value


def asked(function: str, *arguments: object, read: Callable[[Any], object]) -> Any:
    """Return a dataclass field that ``answers`` fills with the answer of an NVML function."""
    return field(metadata={"nvml": (function, arguments, read)})


def answers(kind: type[R], ask: Callable[..., object], **known: object) -> R:
    """Return an instance of a dataclass: NVML's answers fill the fields made by ``asked``; ``known`` fills the others.

    ``ask`` queries one subject, as ``DeviceQuestions.ask`` does.
    """
    calls = {each.name: each.metadata["nvml"] for each in fields(kind) if "nvml" in each.metadata}
    said = {name: ask(function, *arguments, read=read) for name, (function, arguments, read) in calls.items()}
    return kind(**said, **known)


def _code(error: Exception) -> int | None:
    # Exceptions are recognised by name, because the real module and the fake have different classes.
    # NVMLLibraryMismatchError has no code; functions without a version raise it instead of FUNCTION_NOT_FOUND.
    if isinstance(error, CodeAnswered):
        return error.code
    if type(error).__name__ == "NVMLLibraryMismatchError":
        return 13
    if any(kind.__name__ == "NVMLError" for kind in type(error).__mro__):
        code = getattr(error, "value", None)
        return code if isinstance(code, int) else None
    return None

"""Counts this machine's Deep Learning Accelerators with cuDLA, in a child process.

The calls follow CUDA for Tegra, 5. The presence of libcudla proves nothing: since CUDA 13.4, servers have the library
too, and a Thor has it even without an accelerator.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ....actors.dla.engine import CudaCalls
from ..child.child import ChildEnd, ChildOutcome, run_in_child
from ..report.absence import Absence, Maybe, Unavailable

_HYBRID_MODE = 0
"""cudlaMode CUDLA_CUDA_DLA, which couples an accelerator with the current GPU; cuda-python refuses the standalone
mode."""


@dataclass(frozen=True, slots=True)
class DlaDevice:
    """One accelerator."""

    index: int
    version: Maybe[int]  #: cuDLA's device version attribute
    unified_addressing: Maybe[bool]


@dataclass(frozen=True, slots=True)
class DlaReport:
    """The machine's accelerators."""

    cudla_version: Maybe[int]
    devices: tuple[DlaDevice, ...]  #: empty if cuDLA finds no accelerator


def probe_dla(limit_s: float = 10.0) -> Maybe[DlaReport]:
    """Report this machine's accelerators within ``limit_s``; never raises."""
    return dla_report_of(run_in_child(ask_cudla, {}, limit_s))


def ask_cudla() -> Iterator[Unavailable | tuple[int, int] | DlaDevice]:
    """Yield cuDLA's version and the number of accelerators, then each accelerator; or why cuDLA does not answer."""
    try:
        # Imported late, because the package may be missing, and importing it loads the driver.
        from cuda.bindings import cudla
    except ImportError as error:
        yield _absent(f"cuda-python is not installed: {error}")
        return
    try:
        version, count = int(cudla.get_version()), int(cudla.device_get_count())
    except Exception as error:  # noqa: BLE001 - an exception from a foreign library is the result of this probe
        said = f"{type(error).__name__}: {error}".strip()
        yield _absent(said) if type(error).__name__ == "DynamicLibNotFoundError" else _uncounted(Absence.FAILED, said)
        return
    yield version, count
    refused = _make_context() if count else ""
    for index in range(count):
        yield _unknown(index, refused) if refused else _device(cudla, index)


def _absent(reason: str) -> Unavailable:
    return Unavailable(Absence.NO_LIBRARY, f"cuDLA cannot be queried: {reason}")


def _uncounted(absence: Absence, reason: str) -> Unavailable:
    return Unavailable(absence, f"cuDLA did not report the number of accelerators: {reason}")


def _unknown(index: int, reason: str) -> DlaDevice:
    absence = Unavailable(Absence.FAILED, reason)
    return DlaDevice(index, absence, absence)


def _make_context() -> str:
    """Make the integrated GPU's context current, which accelerators need; return "", or why that failed."""
    # A Ray task without a GPU sees no GPU, but the context requires a GPU.
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    try:
        from cuda.bindings import driver

        CudaCalls(driver).enter()
    except Exception as error:  # noqa: BLE001 - the accelerators are counted without a context
        return f"{type(error).__name__}: {error}"
    return ""


def _device(cudla: Any, index: int) -> DlaDevice:
    try:
        handle = cudla.create_device(index, _HYBRID_MODE)
        try:
            version = cudla.device_get_attribute(handle, cudla.DevAttributeType.DEVICE_VERSION)
            addressing = cudla.device_get_attribute(handle, cudla.DevAttributeType.UNIFIED_ADDRESSING)
            return DlaDevice(index, int(version.device_version), bool(addressing.unified_addressing_supported))
        finally:
            cudla.destroy_device(handle)
    except Exception as error:  # noqa: BLE001 - the failure of one accelerator must not hide the others
        return _unknown(index, f"{type(error).__name__}: {error}")


def dla_report_of(outcome: ChildOutcome) -> Maybe[DlaReport]:
    """Return the report, built from the child process's answers, even if the process failed."""
    if not outcome.values:
        absence = Absence.TIMED_OUT if outcome.end is ChildEnd.TIMED_OUT else Absence.FAILED
        return _uncounted(absence, outcome.detail or "it printed nothing")
    first, *devices = outcome.values
    if isinstance(first, Unavailable):
        return first
    version, count = first
    reason = outcome.detail or "the accelerator was not queried"
    return DlaReport(version, (*devices, *(_unknown(index, reason) for index in range(len(devices), count))))

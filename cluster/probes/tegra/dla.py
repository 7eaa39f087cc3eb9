"""Counts this machine's Deep Learning Accelerators with cuDLA, in a child process.

The calls follow CUDA for Tegra, chapter 5. The presence of libcudla proves nothing: since CUDA 13.4, servers have the
library too, and a Thor has it even without an accelerator.
"""

from dataclasses import dataclass

from ..child.child import ChildEnd, ChildOutcome, run_in_child
from ..report.absence import Absence, Maybe, Unavailable


@dataclass(frozen=True, slots=True)
class DlaReport:
    """The machine's accelerators."""

    cudla_version: int
    count: int  #: 0 if cuDLA finds no accelerator


def probe_dla(limit_s: float = 10.0) -> Maybe[DlaReport]:
    """Report this machine's accelerators within ``limit_s``; never raises."""
    return dla_report_of(run_in_child(ask_cudla, {}, limit_s))


def ask_cudla() -> Maybe[DlaReport]:
    """Return cuDLA's version and the number of accelerators, or why cuDLA does not answer."""
    try:
        # Imported late, because the package may be missing, and importing it loads the driver.
        from cuda.bindings import cudla
    except ImportError as error:
        return _absent(f"cuda-python is not installed: {error}")
    try:
        return DlaReport(int(cudla.get_version()), int(cudla.device_get_count()))
    except Exception as error:  # noqa: BLE001 - an exception from a foreign library is the result of this probe
        said = f"{type(error).__name__}: {error}".strip()
        return _absent(said) if type(error).__name__ == "DynamicLibNotFoundError" else _uncounted(Absence.FAILED, said)


def _absent(reason: str) -> Unavailable:
    return Unavailable(Absence.NO_LIBRARY, f"cuDLA cannot be queried: {reason}")


def _uncounted(absence: Absence, reason: str) -> Unavailable:
    return Unavailable(absence, f"cuDLA did not report the number of accelerators: {reason}")


def dla_report_of(outcome: ChildOutcome) -> Maybe[DlaReport]:
    """Return the answer of the child process, or why there is none."""
    if outcome.values:
        found: Maybe[DlaReport] = outcome.values[0]
        return found
    absence = Absence.TIMED_OUT if outcome.end is ChildEnd.TIMED_OUT else Absence.FAILED
    return _uncounted(absence, outcome.detail or "it printed nothing")

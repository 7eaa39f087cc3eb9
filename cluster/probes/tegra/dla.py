"""Whether this machine has Deep Learning Accelerators, asked of cuDLA in a child process.

From CUDA for Tegra, 5 (cudlaDeviceGetCount, cudlaGetVersion, device attributes). That libcudla is there proves nothing:
from CUDA 13.4 on it ships for servers too, and a Thor has the library and no accelerator.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ....actors.dla.engine import CudaCalls
from ..child.child import ChildEnd, ChildOutcome, run_in_child
from ..report.absence import Absence, Maybe, Unavailable

HYBRID_MODE = 0
"""cudlaMode CUDLA_CUDA_DLA: an accelerator coupled with the current GPU. cuda-python refuses the standalone mode."""


@dataclass(frozen=True, slots=True)
class DlaDevice:
    """One accelerator. ``version`` is cuDLA's device version attribute."""

    index: int
    version: Maybe[int]
    unified_addressing: Maybe[bool]


@dataclass(frozen=True, slots=True)
class DlaReport:
    """What cuDLA says. ``devices`` is as long as the count, which may be 0; ``cudla_version`` is the library's own."""

    cudla_version: Maybe[int]
    devices: tuple[DlaDevice, ...]


def probe_dla(limit_s: float = 10.0, environment: Mapping[str, str] | None = None) -> Maybe[DlaReport]:
    """Ask cuDLA which accelerators there are; never raises. After ``limit_s`` the asking process is killed."""
    return dla_report_of(run_in_child(ask_cudla, {}, limit_s, environment))


def ask_cudla() -> Iterator[tuple[str, Any]]:
    """Yield what cuDLA answers, a pair of name and value at a time; for a child process."""
    try:
        # Imported here: the package may be missing, and touches the driver.
        from cuda.bindings import cudla  # noqa: PLC0415
    except ImportError as error:
        yield "absent", f"cuda-python is not installed: {error}"
        return
    try:
        yield "version", int(cudla.get_version())
        count = int(cudla.device_get_count())
    except Exception as error:  # noqa: BLE001 - an exception from a foreign library is this probe's answer
        kind = type(error).__name__
        yield ("absent" if kind == "DynamicLibNotFoundError" else "failed"), f"{kind}: {error}".strip()
        return
    yield "count", count
    if count:
        yield from _ask_devices(cudla, count)


def _ask_devices(cudla: Any, count: int) -> Iterator[tuple[str, Any]]:
    try:
        _make_context()
    except Exception as error:  # noqa: BLE001 - the count counts all the same
        yield "attributes", f"{type(error).__name__}: {error}"
        return
    for index in range(count):
        try:
            handle = cudla.create_device(index, HYBRID_MODE)
            try:
                version = cudla.device_get_attribute(handle, cudla.DevAttributeType.DEVICE_VERSION)
                addressing = cudla.device_get_attribute(handle, cudla.DevAttributeType.UNIFIED_ADDRESSING)
                yield "device", [index, int(version.device_version), bool(addressing.unified_addressing_supported)]
            finally:
                cudla.destroy_device(handle)
        except Exception as error:  # noqa: BLE001 - one accelerator that does not answer hides no other
            yield "silent", [index, f"{type(error).__name__}: {error}"]


def _make_context() -> None:
    """Make the integrated GPU's primary context current: an accelerator is coupled with the current GPU."""
    # A Ray task without a GPU sees none of them; this only asks, so it may look all the same.
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    from cuda.bindings import driver  # noqa: PLC0415 - as above

    CudaCalls(driver).enter()


def dla_report_of(outcome: ChildOutcome) -> Maybe[DlaReport]:
    """Make a report of what the asking process had said, however it ended."""
    said = [(str(name), value) for name, value in outcome.values]
    answers = dict(said)
    if "absent" in answers:
        return Unavailable(Absence.NO_LIBRARY, f"cuDLA cannot be asked: {answers['absent']}")
    if "count" not in answers:
        reason = answers.get("failed") or outcome.detail or "it said nothing"
        absence = Absence.TIMED_OUT if outcome.end is ChildEnd.TIMED_OUT else Absence.FAILED
        return Unavailable(absence, f"cuDLA did not say how many accelerators there are: {reason}")
    why = str(answers.get("attributes") or outcome.detail or "the accelerator was not asked")
    devices = {index: DlaDevice(index, version, unified) for index, version, unified in _all(said, "device")}
    silent = {index: _unknown(index, reason) for index, reason in _all(said, "silent")}
    unasked = {index: _unknown(index, why) for index in range(int(answers["count"]))}
    found = {**unasked, **silent, **devices}
    version = answers.get("version", Unavailable(Absence.FAILED, "cuDLA did not say its version"))
    return DlaReport(version, tuple(found[index] for index in sorted(found)))


def _all(said: list[tuple[str, Any]], name: str) -> list[Any]:
    return [value for found, value in said if found == name]


def _unknown(index: int, reason: str) -> DlaDevice:
    absence = Unavailable(Absence.FAILED, reason)
    return DlaDevice(index, absence, absence)

"""A device's condition as JSON values. An unknown value is None, and the table ``unknown`` gives the reason."""

from typing import TYPE_CHECKING, Any, TypeVar

from .probes.report.absence import Absence, Maybe, Unavailable
from .probes.report.device_report import DeviceReport, Health, why_unplaceable
from .probes.report.verdict import Diagnosis, Stops, why_no_cuda, why_stopped
from .probes.vgpu.licence import Licence, licence_of

if TYPE_CHECKING:
    from .probes.node.report import NodeReport

T = TypeVar("T")
_NOT_ASKED = Unavailable(Absence.NOT_FOUND, "it was not queried")


class Absences:
    """Turns absent values into None, and records in ``unknown`` why each of them is absent."""

    def __init__(self) -> None:
        self.unknown: dict[str, str] = {}

    def value(self, name: str, value: Maybe[T]) -> T | None:
        """Return a value; if it is absent, return None and record the reason under ``name``."""
        if isinstance(value, Unavailable):
            self.unknown[name] = value.reason
            return None
        return value


def health_values(absences: Absences, health: Health, xids: tuple[int, ...]) -> dict[str, Any]:
    """Return a device's health as JSON values; ``xids`` are the Xid errors that count against the device."""
    return {
        "lost": health.lost,
        "recovery_action": absences.value("recovery_action", health.recovery_action),
        "ecc_uncorrected": absences.value("ecc_uncorrected", health.ecc_uncorrected),
        "retirement_pending": absences.value("retirement_pending", health.retirement_pending),
        "remapped_rows_pending": absences.value("remapped_rows_pending", health.remapped_rows_pending),
        "xids": list(xids),
    }


def licence_values(absences: Absences, licence: Maybe[Licence]) -> dict[str, Any]:
    """Return a vGPU's licence as text, and whether it is valid; both are None if the licence is unknown."""
    known = absences.value("licence", licence)
    return {
        "licence": None if known is None else known.sentence,
        "is_licensed": None if known is None else known.is_valid,
    }


def device_condition(
    gpu: DeviceReport, report: "NodeReport", judged: tuple[Diagnosis, ...], uuid: str
) -> dict[str, Any]:
    """Return the condition of a GPU at the time of its machine's probe.

    ``unplaceable`` says why the GPU may get no work; "" if it may. ``no_kernels`` says why the GPU cannot scale and
    convert pictures; "" if it can. The use of NVDEC and NVENC counts all programs together. ``judged`` has the verdicts
    about the machine's devices; ``uuid`` identifies the GPU or the slice.
    """
    absences = Absences()
    memory = absences.value("memory", gpu.memory)
    return {
        "unplaceable": why_unplaceable(gpu.health) or why_no_cuda(judged, uuid),
        "no_kernels": why_stopped(judged, Stops.KERNELS, uuid),
        "nvdec_percent": absences.value("nvdec_percent", gpu.use.decoder_percent),
        "nvenc_percent": absences.value("nvenc_percent", gpu.use.encoder_percent),
        "encoder_sessions": absences.value("encoder_sessions", gpu.use.encoder_sessions_open),
        "memory": None if memory is None else {"total_bytes": memory.total_bytes, "used_bytes": memory.used_bytes},
        "throttle": absences.value("throttle", gpu.facts.get("clocks_event_reasons", _NOT_ASKED)),
        "health": health_values(absences, gpu.health, gpu.health.xids),
        **licence_values(absences, licence_of(gpu.licences, report.taken_utc)),
        "unknown": absences.unknown,
    }

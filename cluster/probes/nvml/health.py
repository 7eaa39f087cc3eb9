"""Whether a device can be trusted: ECC, retired pages, remapped rows, the driver's own advice, lost or not.

Xid errors come as events (``events.py``) and are added by the watch. NVML API Reference Manual, "Device
Queries" and "Field Value Queries".
"""

from typing import Any

from ..report.absence import Maybe, Unavailable
from ..report.device_report import Health
from .calls import SUCCESS, CodeAnswered, DeviceQuestions

UNCORRECTED = 1  # NVML_MEMORY_ERROR_TYPE_UNCORRECTED
SINCE_LOAD = 0  # NVML_VOLATILE_ECC: counted since the driver was loaded
RETIREMENT_CAUSES = (0, 1)  # many single-bit errors, a double-bit error
RECOVERY_ACTION_FIELD = 230  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION

RECOVERY_ACTIONS: dict[int, str] = {
    0: "none",
    1: "reset",
    2: "reboot",
    3: "drain",
    4: "drain and reset",
    5: "recover IMEX domain",
    6: "bus reset",
    7: "reboot",
}
"""NVML_GPU_RECOVERY_ACTION_*: what the driver itself advises."""

_VALUE_FIELDS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}


def probe_health(questions: DeviceQuestions, xids: tuple[int, ...], xids_refused: Unavailable | None = None) -> Health:
    """Ask whether a device can be trusted; to be asked last, so that ``lost`` knows all answers. Never raises."""
    ecc_enabled: Maybe[bool] = questions.ask("nvmlDeviceGetEccMode", read=lambda modes: modes[0] == 1)
    uncorrected: Maybe[int] = questions.ask("nvmlDeviceGetTotalEccErrors", UNCORRECTED, SINCE_LOAD, read=int)
    pending: Maybe[bool] = questions.ask("nvmlDeviceGetRetiredPagesPendingStatus", read=lambda state: state == 1)
    remapping: Maybe[bool] = questions.ask("nvmlDeviceGetRemappedRows", read=lambda rows: rows[2] != 0)
    action: Maybe[float] = questions.ask("nvmlDeviceGetFieldValues", [RECOVERY_ACTION_FIELD], read=read_field)
    return Health(
        ecc_enabled=ecc_enabled,
        ecc_uncorrected=uncorrected,
        retired_pages=_retired_pages(questions),
        retirement_pending=pending,
        remapped_rows_pending=remapping,
        recovery_action=action
        if isinstance(action, Unavailable)
        else RECOVERY_ACTIONS.get(int(action), f"action {int(action)}"),
        xids=xids,
        lost=questions.lost,
        xids_refused=xids_refused,
    )


def read_field(values: Any) -> float | int:
    """Read the one field that was asked for.

    Raises:
        CodeAnswered: the field has a return code of its own, and it is not success.
    """
    value = values[0]
    if int(value.nvmlReturn) != SUCCESS:
        raise CodeAnswered(int(value.nvmlReturn))
    number: float | int = getattr(value.value, _VALUE_FIELDS[int(value.valueType)])
    return number


def _retired_pages(questions: DeviceQuestions) -> Maybe[int]:
    pages = 0
    for cause in RETIREMENT_CAUSES:
        count: Maybe[int] = questions.ask("nvmlDeviceGetRetiredPages", cause, read=len)
        if isinstance(count, Unavailable):
            return count
        pages += count
    return pages

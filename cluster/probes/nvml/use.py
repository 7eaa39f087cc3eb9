"""Queries the utilisation, encoder sessions, processes and health of a device.

A GPU in MIG mode has no utilisation rates (NVML API Reference Manual, "Device Queries"); ``gpm.py`` measures its
slices.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ..report.absence import Absence, Maybe, Unavailable
from ..report.device_report import CodecSession, DeviceProcess, DeviceUse, Health
from .calls import SUCCESS, CodeAnswered, DeviceQuestions
from .facts import WORDS

FULL_PERCENT = 100

_CODECS = {0: "h264", 1: "hevc", 2: "av1"}
# With an old driver, the binding raises NVMLLibraryMismatchError for the names without a version.
_PROCESS_LISTS = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3")

UNCORRECTED = 1  # NVML_MEMORY_ERROR_TYPE_UNCORRECTED
SINCE_LOAD = 0  # NVML_VOLATILE_ECC: errors since the driver was loaded
RECOVERY_ACTION_FIELD = 230  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
RECOVERY_ACTIONS = dict(enumerate(WORDS["recovery_action"]))

_VALUE_FIELDS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}


def probe_use(questions: DeviceQuestions, since_us: int = 0) -> DeviceUse:
    """Query how busy a device is; never raises.

    The driver keeps samples of processes that have long been idle. Samples before ``since_us``, on the driver's clock,
    are left out.
    """
    ask = questions.ask
    return DeviceUse(
        gpu_percent=ask("nvmlDeviceGetUtilizationRates", read=lambda rates: int(rates.gpu)),
        memory_percent=ask("nvmlDeviceGetUtilizationRates", read=lambda rates: int(rates.memory)),
        encoder_percent=ask("nvmlDeviceGetEncoderUtilization", read=_first),
        decoder_percent=ask("nvmlDeviceGetDecoderUtilization", read=_first),
        encoder_sessions_open=ask("nvmlDeviceGetEncoderStats", read=_first),
        encoder_sessions=ask("nvmlDeviceGetEncoderSessions", read=read_sessions),
        processes=_processes(questions, since_us),
    )


def _first(values: Any) -> int:
    return int(values[0])


def read_sessions(sessions: Iterable[Any]) -> tuple[CodecSession, ...]:
    """Read ``nvmlEncoderSessionInfo_t``, one for each session."""
    return tuple(
        CodecSession(
            session=int(session.sessionId),
            pid=int(session.pid),
            codec=_CODECS.get(int(session.codecType), f"codec {int(session.codecType)}"),
            width=int(session.hResolution),
            height=int(session.vResolution),
            fps=int(session.averageFps),
            latency_us=int(session.encodeLatency),
        )
        for session in sessions
    )


def _processes(questions: DeviceQuestions, since_us: int) -> Maybe[tuple[DeviceProcess, ...]]:
    """Join the lists of processes that hold memory on the device with the samples of engine use."""
    lists: list[Maybe[tuple[DeviceProcess, ...]]]
    lists = [questions.ask(function, read=_running) for function in _PROCESS_LISTS]
    refusals = [listed for listed in lists if isinstance(listed, Unavailable)]
    for refused in refusals:
        # Some devices have no list of processes. But a list that could not be read must not count as empty.
        if refused.absence not in {Absence.NOT_SUPPORTED, Absence.FUNCTION_NOT_FOUND}:
            return refused
    samples = questions.ask("nvmlDeviceGetProcessUtilization", since_us, read=read_samples)
    if isinstance(samples, Unavailable):
        if len(refusals) == len(lists):
            return refusals[0]
        samples = {}  # the processes are known, but their use of engines is not
    joined = {process.pid: process for listed in lists if not isinstance(listed, Unavailable) for process in listed}
    for pid, sample in samples.items():
        joined[pid] = replace(sample, memory_bytes=joined[pid].memory_bytes if pid in joined else None)
    return tuple(joined[pid] for pid in sorted(joined))


def _running(processes: Iterable[Any]) -> tuple[DeviceProcess, ...]:
    return tuple(
        DeviceProcess(int(process.pid), None if process.usedGpuMemory is None else int(process.usedGpuMemory))
        for process in processes
    )


def read_samples(samples: Iterable[Any]) -> dict[int, DeviceProcess]:
    """Return the newest sample of each process; samples without a time are empty, and are left out."""
    timed = sorted((each for each in samples if int(each.timeStamp)), key=lambda each: int(each.timeStamp))
    return {
        int(sample.pid): DeviceProcess(
            pid=int(sample.pid),
            sm_percent=_percent(sample.smUtil),
            encoder_percent=_percent(sample.encUtil),
            decoder_percent=_percent(sample.decUtil),
        )
        for sample in timed
    }


def _percent(value: int) -> int | None:
    # The driver returns more than 100 if it has no sample.
    return int(value) if int(value) <= FULL_PERCENT else None


def probe_health(questions: DeviceQuestions, xids: tuple[int, ...] = ()) -> Health:
    """Query a device's health; never raises. Call this last, because earlier queries may have found the device lost."""
    ask = questions.ask
    return Health(
        ecc_uncorrected=ask("nvmlDeviceGetTotalEccErrors", UNCORRECTED, SINCE_LOAD, read=int),
        retirement_pending=ask("nvmlDeviceGetRetiredPagesPendingStatus", read=lambda state: bool(state == 1)),
        remapped_rows_pending=ask("nvmlDeviceGetRemappedRows", read=lambda rows: bool(rows[2] != 0)),
        recovery_action=ask("nvmlDeviceGetFieldValues", [RECOVERY_ACTION_FIELD], read=_read_action),
        xids=xids,
        lost=questions.lost,
    )


def _read_action(values: Any) -> str:
    action = int(read_field(values))
    return RECOVERY_ACTIONS.get(action, f"action {action}")


def read_field(values: Any) -> float | int:
    """Return the value of the first field. Raises ``CodeAnswered`` if the field's return code is not success."""
    value = values[0]
    if int(value.nvmlReturn) != SUCCESS:
        raise CodeAnswered(int(value.nvmlReturn))
    number: float | int = getattr(value.value, _VALUE_FIELDS[int(value.valueType)])
    return number

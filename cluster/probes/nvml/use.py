"""What a device is doing: utilisation, encoder sessions, processes.

All of it holds on a vGPU guest too. On a GPU in MIG mode the utilisation rates do not exist (NVML API Reference
Manual, "Device Queries"); ``gpm.py`` says per slice what they cannot.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ..report.absence import Absence, Maybe, Unavailable
from ..report.device_report import CodecSession, DeviceProcess, DeviceUse
from .calls import DeviceQuestions

FULL_PERCENT = 100

_CODECS = ((0, "h264"), (1, "hevc"), (2, "av1"))
_PROCESS_LISTS = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses")


def probe_use(questions: DeviceQuestions, gpm_percent: Maybe[dict[str, float]], since_us: int = 0) -> DeviceUse:
    """Ask how busy a device is, and with what; ``gpm_percent`` was measured beside it. Never raises.

    Samples of processes that are older than ``since_us``, of NVML's clock, are left out: the driver keeps those of
    processes that have long been idle.
    """
    stats = questions.ask("nvmlDeviceGetEncoderStats", read=lambda three: tuple(map(int, three)))
    return DeviceUse(
        gpu_percent=questions.ask("nvmlDeviceGetUtilizationRates", read=lambda rates: int(rates.gpu)),
        memory_percent=questions.ask("nvmlDeviceGetUtilizationRates", read=lambda rates: int(rates.memory)),
        encoder_percent=questions.ask("nvmlDeviceGetEncoderUtilization", read=_first),
        decoder_percent=questions.ask("nvmlDeviceGetDecoderUtilization", read=_first),
        jpeg_percent=questions.ask("nvmlDeviceGetJpgUtilization", read=_first),
        ofa_percent=questions.ask("nvmlDeviceGetOfaUtilization", read=_first),
        encoder_capacity_percent={
            name: questions.ask("nvmlDeviceGetEncoderCapacity", query, read=int) for query, name in _CODECS
        },
        encoder_sessions_open=_item(stats, 0),
        encoder_fps=_item(stats, 1),
        encoder_latency_us=_item(stats, 2),
        encoder_sessions=questions.ask("nvmlDeviceGetEncoderSessions", read=read_sessions),
        processes=_processes(questions, since_us),
        gpm_percent=gpm_percent,
    )


def latest_samples(samples: Iterable[DeviceProcess | None]) -> dict[int, DeviceProcess]:
    """Keep the last sample of each process, in the order given; None stands for a sample that says nothing."""
    return {sample.pid: sample for sample in samples if sample is not None}


def _first(pair: Any) -> int:
    return int(pair[0])


def _item(stats: Maybe[tuple[int, ...]], position: int) -> Maybe[int]:
    return stats if isinstance(stats, Unavailable) else stats[position]


def read_sessions(sessions: Iterable[Any]) -> tuple[CodecSession, ...]:
    """Read ``nvmlEncoderSessionInfo_t``, one per session."""
    names = dict(_CODECS)
    return tuple(
        CodecSession(
            session=int(session.sessionId),
            pid=int(session.pid),
            codec=names.get(int(session.codecType), f"codec {int(session.codecType)}"),
            width=int(session.hResolution),
            height=int(session.vResolution),
            fps=int(session.averageFps),
            latency_us=int(session.encodeLatency),
        )
        for session in sessions
    )


def _processes(questions: DeviceQuestions, since_us: int) -> Maybe[tuple[DeviceProcess, ...]]:
    """Join the processes that hold memory on the device with those that used its engines."""
    lists = [_process_list(questions, function) for function in _PROCESS_LISTS]
    refusals = [listed for listed in lists if isinstance(listed, Unavailable)]
    for refused in refusals:
        # A device may have no list of one kind; a list that could not be read would pass for the whole one.
        if refused.absence not in {Absence.NOT_SUPPORTED, Absence.FUNCTION_NOT_FOUND}:
            return refused
    samples: Maybe[tuple[DeviceProcess | None, ...]] = questions.ask(
        "nvmlDeviceGetProcessUtilization",
        since_us,
        read=lambda found: tuple(map(_sample, sorted(found, key=lambda sample: int(sample.timeStamp)))),
    )
    if isinstance(samples, Unavailable):
        if len(refusals) == len(lists):
            return refusals[0]
        samples = ()  # the processes are known, what they use is not
    running = [process for listed in lists if not isinstance(listed, Unavailable) for process in listed]
    joined = {process.pid: process for process in running}
    for pid, sample in latest_samples(samples).items():
        memory_bytes = joined[pid].memory_bytes if pid in joined else None
        joined[pid] = replace(sample, memory_bytes=memory_bytes)
    return tuple(joined[pid] for pid in sorted(joined))


def _process_list(questions: DeviceQuestions, function: str) -> Maybe[tuple[DeviceProcess, ...]]:
    # Version 3 by name: the unversioned function is the same, and hides an old driver behind another error.
    answer: Maybe[tuple[DeviceProcess, ...]] = questions.ask(f"{function}_v3", read=_running)
    if isinstance(answer, Unavailable) and answer.absence is Absence.FUNCTION_NOT_FOUND:
        return questions.ask(f"{function}_v2", read=_running)
    return answer


def _running(processes: Iterable[Any]) -> tuple[DeviceProcess, ...]:
    return tuple(
        DeviceProcess(int(process.pid), None if process.usedGpuMemory is None else int(process.usedGpuMemory))
        for process in processes
    )


def _sample(sample: Any) -> DeviceProcess | None:
    # The driver may fill only part of the buffer that it asked for; what is left has no time.
    if int(sample.timeStamp) == 0:
        return None
    return DeviceProcess(
        pid=int(sample.pid),
        sm_percent=_percent(sample.smUtil),
        encoder_percent=_percent(sample.encUtil),
        decoder_percent=_percent(sample.decUtil),
    )


def _percent(value: int) -> int | None:
    # A share over 100 is how the driver says that it has none.
    return int(value) if int(value) <= FULL_PERCENT else None

"""Where and when a benchmark ran, and with which versions."""

import os
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import codecfleet
from codecfleet.cluster import machine

from .ffmpeg import ffmpeg_version

__all__ = ["describe_gpus", "describe_run", "described_lines"]

_PACKAGES = ("ray", "av", "imageio-ffmpeg", "PyNvVideoCodec", "cuda-bindings")


def describe_gpus() -> dict[str, Any]:
    """Return this machine's GPUs and their driver as NVML names them; empty if there is no driver."""
    import pynvml  # noqa: PLC0415 - programs without a GPU do not need it

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return {}
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    return {
        "gpus": [pynvml.nvmlDeviceGetName(handle) for handle in handles],
        "driver": pynvml.nvmlSystemGetDriverVersion(),
    }


def describe_run(ffmpeg: str | None) -> dict[str, Any]:
    """Return the machine, the versions, the date, the load at the start, and the command line.

    ``ffmpeg`` is None if FFmpeg is not compared.
    """
    peer = {} if ffmpeg is None else {"ffmpeg": ffmpeg_version(ffmpeg)}
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "machine": {
            "cpu": _cpu_model(),
            "cores": machine.cores(),
            "cores_of_host": os.cpu_count(),
            "memory_bytes": machine.memory_bytes(),
            "kernel": platform.release(),
            "load_1min": round(os.getloadavg()[0], 2),
        },
        "versions": {
            "python": platform.python_version(),
            "codecfleet": codecfleet.__version__,
            **{name: number for name in _PACKAGES if (number := _version(name))},
            **peer,
        },
    }


def described_lines(described: dict[str, Any]) -> list[str]:
    """Return the result of ``describe_run`` as text, one fact per line."""
    here = described["machine"]
    memory_gib = here["memory_bytes"] / 2**30
    gpus = (
        [f"{' '.join(dict.fromkeys(described['gpus']))} x{len(described['gpus'])}, driver {described['driver']}"]
        if (described.get("gpus"))
        else []
    )
    return [
        f"{described['date']}  {' '.join(described['command'])}",
        f"{here['cpu']}, {here['cores']} cores, {memory_gib:.1f} GiB, Linux {here['kernel']}, load {here['load_1min']}",
        *gpus,
        ", ".join(f"{name} {number}" for name, number in described["versions"].items()),
    ]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.lower().startswith(("model name", "hardware")):
            return line.partition(":")[2].strip()
    return platform.machine()

"""Estimates how much memory the GPU of a Tegra can allocate (CUDA for Tegra, section 2.2).

Processor and GPU share one DRAM, and swap space is part of the estimate. No estimate was compared with a measurement,
because no Tegra was available.
"""

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from ..report.absence import Absence, Maybe, Unavailable

_MEMINFO = "proc/meminfo"
_NVMAP_CLIENTS = "sys/kernel/debug/nvmap/iovmm/clients"

_MEMINFO_LINE = re.compile(r"^(\w+(?:\(\w+\))?):\s+([0-9]{1,18})(?:\s+(kB))?\s*$")
_CLIENTS_TOTAL = re.compile(r"^\s*total\s+([0-9]{1,18})([KMG]?)\s*$")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def allocatable_bytes(total_bytes: int, free_bytes: int, *, swap_free_bytes: int, device_allocated_bytes: int) -> int:
    """Return how many bytes the GPU could allocate, from 0 to ``total_bytes``, by the formula in section 2.2.

    If the processor's pages fit into swap space, all memory except the GPU's can be allocated; otherwise, all memory
    except the pages that do not fit. The document leaves open what happens if swap space is exactly full; here the
    second rule applies.
    """
    # the pages that do not fit into swap space
    left = total_bytes - free_bytes - device_allocated_bytes - swap_free_bytes
    found = total_bytes - (device_allocated_bytes if left < 0 else left)
    # The counters are read at different times, so the difference may be out of range.
    return max(0, min(found, total_bytes))


class MemorySource(Enum):
    """The source of the amount of memory that can be allocated, the best source first."""

    MEMINFO = "/proc/meminfo"  #: the formula, with NvMapMemUsed
    NVMAP = "nvmap clients"  #: the formula, with the total of nvmap's clients
    CUDA = "cudaMemGetInfo"  #: the driver's free memory, which may be too low, because swap space is not included


@dataclass(frozen=True, slots=True)
class Allocatable:
    """How many bytes the GPU could allocate, and the source of the number."""

    allocatable_bytes: int
    source: MemorySource


def read_meminfo(text: str) -> dict[str, int]:
    """Return the fields of /proc/meminfo in bytes; lines in another form are ignored."""
    fields = (match.groups() for line in text.splitlines() if (match := _MEMINFO_LINE.match(line)))
    return {name: int(number) * (1024 if unit else 1) for name, number, unit in fields}


def device_allocated_from_clients(text: str) -> int | None:
    """Return the total of the clients in bytes; None if there is no total, or if it is 0, as always on Thor."""
    totals = [_CLIENTS_TOTAL.match(line) for line in text.splitlines()]
    sizes = [int(match[1]) * _UNITS[match[2]] for match in totals if match]
    return sizes[-1] if sizes and sizes[-1] > 0 else None


def allocatable_memory(root: Path, cuda_free_bytes: Maybe[int], *, qnx: bool = False) -> Maybe[Allocatable]:
    """Return how much memory the GPU could allocate, from the files under ``root``; never raises.

    ``cuda_free_bytes``, from cudaMemGetInfo, is used on QNX, or if no file states how much the GPU has allocated, as on
    Thor.
    """
    fields = {} if qnx else read_meminfo(read_file(root / _MEMINFO))
    device, source = fields.get("NvMapMemUsed"), MemorySource.MEMINFO
    if device is None and not qnx:
        device, source = device_allocated_from_clients(read_file(root / _NVMAP_CLIENTS)), MemorySource.NVMAP
    if device is not None and {"MemTotal", "MemFree"} <= fields.keys():
        swap = fields.get("SwapFree", 0)
        found = allocatable_bytes(
            fields["MemTotal"], fields["MemFree"], swap_free_bytes=swap, device_allocated_bytes=device
        )
        return Allocatable(found, source)
    if isinstance(cuda_free_bytes, Unavailable):
        reason = "no file states how much memory the GPU has allocated, and CUDA did not report how much is free"
        return Unavailable(Absence.NOT_FOUND, f"{reason}: {cuda_free_bytes.reason}")
    return Allocatable(cuda_free_bytes, MemorySource.CUDA)


def read_file(path: Path) -> str:
    """Return the content of a text file; "" if the file cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""

"""Facts about a GPU that are only displayed, as listed in ``configs/nvml.toml``.

Every device query in 3.3.2 of the vGPU Management SDK guide is in that file or in ``use.py``. Some functions have new
names in newer drivers (reasons for lower clocks, temperature). Both names are tried, because a driver may lack either
of them.
"""

from collections.abc import Callable
from typing import Any

from ..report.absence import Maybe
from ..report.tables import read_tables
from .calls import CodeAnswered, DeviceQuestions, read_text

FactValue = str | int | float | bool

NOT_SUPPORTED = 3
WORDS: dict[str, list[str]] = read_tables("nvml.toml")["words"]
BRANDS = dict(enumerate(WORDS["brand"]))
"""The brand of each nvmlBrandType_t, as spelt in NVIDIA_REQUIRE_CUDA."""
CLOCK_REASONS = {1 << bit: name for bit, name in enumerate(WORDS["clock_reasons"])}


def ask_virtualization(questions: DeviceQuestions) -> Maybe[str]:
    """Query a device's virtualization mode: "none", "passthrough", "vgpu", "host vgpu", "host vsga"."""
    modes = dict(enumerate(WORDS["virtualization"]))
    return questions.ask("nvmlDeviceGetVirtualizationMode", read=lambda mode: modes.get(int(mode), f"mode {int(mode)}"))


def probe_facts(questions: DeviceQuestions) -> dict[str, Maybe[FactValue]]:
    """Query every displayed fact about a device; never raises."""
    return {name: questions.ask(function, *arguments, read=read) for name, (function, read, arguments) in FACTS.items()}


def read_reasons(mask: int) -> str:
    """Return the names of the bits in a mask of clock reasons; "none" if no bit is set."""
    named = [name for bit, name in CLOCK_REASONS.items() if int(mask) & bit]
    rest = int(mask) & ~sum(CLOCK_REASONS)
    return ", ".join([*named, *([f"0x{rest:x}"] if rest else [])]) or "none"


def _bridge(hierarchy: Any, member: str) -> int:
    if int(hierarchy.bridgeCount) == 0:
        raise CodeAnswered(NOT_SUPPORTED)  # without this, the empty entry would mean bridge type 0
    return int(getattr(hierarchy.bridgeChipInfo[0], member))


_READERS: dict[str, Callable[[Any], FactValue]] = {
    "text": read_text,
    "int": int,
    "bool": bool,
    "length": len,
    "enabled": lambda value: int(value) == 1,
    "thousandths": lambda value: int(value) / 1000,
    "reasons": read_reasons,
    "bridge type": lambda hierarchy: _bridge(hierarchy, "type"),
    "bridge fwVersion": lambda hierarchy: _bridge(hierarchy, "fwVersion"),
}


def _reader(how: str, item: int | None) -> Callable[[Any], FactValue]:
    words = dict(enumerate(WORDS.get(how, ())))
    read = _READERS.get(how, lambda value: words.get(int(value), f"unknown ({int(value)})"))
    return read if item is None else lambda values: read(values[item])


def read_structure(name: str, found: Any) -> dict[str, FactValue]:
    """Read an NVML structure by means of the table of the same name."""
    rows = read_tables("nvml.toml")["structures"][name]
    return {key: _reader(how, None)(getattr(found, member)) for key, (member, how) in rows.items()}


FACTS = {
    name: (f"nvmlDeviceGet{row['ask']}", _reader(row["read"], row.get("item")), tuple(row.get("with", ())))
    for name, row in read_tables("nvml.toml")["facts"].items()
}
"""For each fact: the NVML function to call, the function that reads its answer, and the arguments after the handle."""

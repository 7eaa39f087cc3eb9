"""Facts about a GPU for display, unused by placement: ``configs/nvml.toml`` lists them.

Every device query of the vGPU Management SDK guide's 3.3.2 is there or in ``use.py``. Functions that newer drivers have
renamed are asked under both names (throttle and event reasons, temperature): one of the two may be gone.
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
"""nvmlBrandType_t, by the names that images use in NVIDIA_REQUIRE_CUDA."""
CLOCK_REASONS = {1 << bit: name for bit, name in enumerate(WORDS["clock_reasons"])}


def ask_virtualization(questions: DeviceQuestions) -> Maybe[str]:
    """Ask for a device's virtualization: "none", "passthrough", "vgpu", "host vgpu", "host vsga"."""
    modes = dict(enumerate(WORDS["virtualization"]))
    return questions.ask("nvmlDeviceGetVirtualizationMode", read=lambda mode: modes.get(int(mode), f"mode {int(mode)}"))


def probe_facts(questions: DeviceQuestions) -> dict[str, Maybe[FactValue]]:
    """Ask a device for every fact; never raises."""
    return {name: questions.ask(function, *arguments, read=read) for name, (function, read, arguments) in FACTS.items()}


def read_reasons(mask: int) -> str:
    """Name the bits of a mask of clock reasons; "none" for no bit."""
    named = [name for bit, name in CLOCK_REASONS.items() if int(mask) & bit]
    rest = int(mask) & ~sum(CLOCK_REASONS)
    return ", ".join([*named, *([f"0x{rest:x}"] if rest else [])]) or "none"


def _bridge(hierarchy: Any, member: str) -> int:
    if int(hierarchy.bridgeCount) == 0:
        raise CodeAnswered(NOT_SUPPORTED)  # a board without a bridge has no bridge type, which would read as type 0
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
    """Read one of NVML's structures, by the table of that name."""
    rows = read_tables("nvml.toml")["structures"][name]
    return {key: _reader(how, None)(getattr(found, member)) for key, (member, how) in rows.items()}


FACTS = {
    name: (f"nvmlDeviceGet{row['ask']}", _reader(row["read"], row.get("item")), tuple(row.get("with", ())))
    for name, row in read_tables("nvml.toml")["facts"].items()
}
"""By a fact's name: the function, how to read the answer, and the arguments after the handle."""

"""Reads a line of tegrastats, the source of utilization on a Tegra without NVML (CUDA for Tegra, section 3.6).

The format differs between releases. The formats of Orin and of Thor (R38) are known; unknown words are kept in ``raw``.
"""

import re
import select
import socket
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ....actors.process.running import Prints, start_command
from ..report.absence import Absence, Maybe, Unavailable
from ..report.engines import Engine, EngineCount, How

_LINE_BYTES_MAX = 65536

_UNITS = {"k": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_NUMBER = r"[0-9]{1,12}"
_END = r"(?=\s|$)"
_WHEN = re.compile(rf"\A\d{{2}}-\d{{2}}-\d{{4}} \d{{2}}:\d{{2}}:\d{{2}}{_END}", re.ASCII)
_MEMORY = re.compile(
    rf"(?P<name>RAM|SWAP|IRAM) (?P<used>{_NUMBER})/(?P<total>{_NUMBER})(?P<unit>[kMG])B"
    rf"(?: ?\((?:lfb (?P<block>[^)]*)|cached (?P<cached>{_NUMBER})(?P<cached_unit>[kMG])B)\))?{_END}"
)
_CORES = re.compile(r"CPU \[(?P<cores>[^\]]*)\]" + _END)
_CORE = re.compile(rf"(?P<percent>{_NUMBER})%(?:@(?P<mhz>{_NUMBER}))?$")
_TEMPERATURE = re.compile(rf"(?P<name>[A-Za-z][\w.-]*)@(?P<celsius>-?{_NUMBER}(?:\.[0-9]{{1,6}})?)C{_END}", re.ASCII)
_POWER = re.compile(rf"(?P<name>[A-Za-z][\w.]*) (?P<now>{_NUMBER})mW(?:/(?P<average>{_NUMBER})mW)?{_END}", re.ASCII)
_POWER_BARE = re.compile(
    rf"(?P<name>(?:VDD|VIN|POM|NC)[\w.]*) (?P<now>{_NUMBER})/(?P<average>{_NUMBER}){_END}", re.ASCII
)
_ENGINE = re.compile(
    rf"(?P<name>[A-Z][A-Z0-9_]*) (?:(?P<off>off)|(?P<percent>{_NUMBER})%(?:@(?P<at>{_NUMBER}|\[[0-9,]{{1,64}}\]))?"
    rf"|@(?P<only_at>{_NUMBER}|\[[0-9,]{{1,64}}\])|(?P<bare>{_NUMBER})){_END}"
)
_TOKEN = re.compile(r"\S+")
_FREQUENCY = re.compile(_NUMBER)
_ENGINES = {
    "NVDEC": Engine.NVDEC,
    "NVENC": Engine.NVENC,
    "NVJPG": Engine.NVJPG,
    "OFA": Engine.OFA,
    "NVDLA": Engine.DLA,
}


@dataclass(frozen=True, slots=True)
class CoreUse:
    """One processor core."""

    percent: int | None  #: the core's use; None if the core is off
    mhz: int | None  #: the core's clock; None if the core is off or no clock is printed


@dataclass(frozen=True, slots=True)
class EngineState:
    """An engine, a bus or a memory controller."""

    is_on: bool
    percent: int | None = None
    mhz: tuple[int, ...] = ()  #: the clock of each cluster, if clocks are printed


@dataclass(frozen=True, slots=True)
class Power:
    """One power rail."""

    now_mw: int
    average_mw: int | None  #: the average power; None if tegrastats does not print it


@dataclass(frozen=True, slots=True, kw_only=True)
class TegraStats:
    """The values in one line of tegrastats, under the names in the line, but without "_FREQ"."""

    when: str = ""
    ram_used_bytes: int | None = None
    ram_total_bytes: int | None = None
    largest_free_blocks: str = ""
    swap_used_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_cached_bytes: int | None = None
    cores: tuple[CoreUse, ...] = ()
    engines: dict[str, EngineState] = field(default_factory=dict)
    celsius: dict[str, float] = field(default_factory=dict)
    power: dict[str, Power] = field(default_factory=dict)
    raw: tuple[str, ...] = ()  #: unknown words


Found: TypeAlias = dict[str, Any]
"""Fields of ``TegraStats`` by name."""


def parse_tegrastats(line: str) -> TegraStats:
    """Parse one line of tegrastats; never raises."""
    found: Found = {"engines": {}, "celsius": {}, "power": {}, "raw": []}
    at = 0
    while (token := _TOKEN.search(line, at)) is not None:
        matches = ((pattern.match(line, token.start()), keep) for pattern, keep in _PIECES)
        match, keep = next(((match, keep) for match, keep in matches if match), (token, _raw))
        keep(found, match)
        at = match.end()
    return TegraStats(**found | {"raw": tuple(found["raw"])})


def _raw(found: Found, match: re.Match[str]) -> None:
    found["raw"].append(match[0])


def _when(found: Found, match: re.Match[str]) -> None:
    found["when"] = match[0]


def _memory(found: Found, match: re.Match[str]) -> None:
    unit, name = _UNITS[match["unit"]], match["name"].lower()
    if name == "iram":  # scratch memory of old Tegras, which codecfleet does not use
        _raw(found, match)
        return
    found[f"{name}_used_bytes"] = int(match["used"]) * unit
    found[f"{name}_total_bytes"] = int(match["total"]) * unit
    if name == "ram" and match["block"] is not None:
        found["largest_free_blocks"] = match["block"]
    if name == "swap" and match["cached"] is not None:
        found["swap_cached_bytes"] = int(match["cached"]) * _UNITS[match["cached_unit"]]


def _cores(found: Found, match: re.Match[str]) -> None:
    cores = (_CORE.match(text.strip()) for text in match["cores"].split(","))
    found["cores"] = tuple(CoreUse(_number(core and core["percent"]), _number(core and core["mhz"])) for core in cores)


def _power(found: Found, match: re.Match[str]) -> None:
    found["power"][match["name"]] = Power(int(match["now"]), _number(match["average"]))


def _temperature(found: Found, match: re.Match[str]) -> None:
    found["celsius"][match["name"]] = float(match["celsius"])


def _engine(found: Found, match: re.Match[str]) -> None:
    state = EngineState(is_on=False)
    if not match["off"]:
        clocks = _FREQUENCY.findall(match["at"] or match["only_at"] or match["bare"] or "")
        state = EngineState(is_on=True, percent=_number(match["percent"]), mhz=tuple(map(int, clocks)))
    found["engines"][match["name"].removesuffix("_FREQ")] = state


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


_PIECES = (
    (_WHEN, _when),
    (_MEMORY, _memory),
    (_CORES, _cores),
    (_POWER, _power),
    (_POWER_BARE, _power),
    (_TEMPERATURE, _temperature),
    (_ENGINE, _engine),
)


def engine_counts(stats: TegraStats) -> tuple[EngineCount, ...]:
    """Return how many engines of each kind the line lists, including engines that are off."""
    kinds = Counter(_ENGINES.get(name.rstrip("0123456789")) for name in stats.engines)
    return tuple(EngineCount(engine, kinds[engine], How.ASKED) for engine in _ENGINES.values() if kinds[engine])


def read_tegrastats(limit_s: float, command: Sequence[str] = ("tegrastats", "--interval", "100")) -> Maybe[TegraStats]:
    """Run tegrastats until it has printed one line, but not much longer than ``limit_s``; never raises."""
    try:
        process = start_command(command, prints=Prints.SENT)
    except OSError as error:
        return Unavailable(Absence.NO_LIBRARY, f"tegrastats did not start: {error}")
    with process.end as end:
        try:
            line = _first_line(end, limit_s)
        finally:
            process.kill_group()
            process.ended()
    if line is None:
        return Unavailable(Absence.TIMED_OUT, f"tegrastats wrote no line within {limit_s:g} s")
    return parse_tegrastats(line)


def _first_line(end: socket.socket, limit_s: float) -> str | None:
    ends_s = time.monotonic() + limit_s
    said = b""
    end.shutdown(socket.SHUT_WR)
    while b"\n" not in said and len(said) < _LINE_BYTES_MAX:
        ready, _, _ = select.select([end], [], [], max(0.0, ends_s - time.monotonic()))
        piece = end.recv(_LINE_BYTES_MAX) if ready else b""
        if not piece:
            return None
        said += piece
    return said.decode(errors="replace").splitlines()[0] if said.strip() else None

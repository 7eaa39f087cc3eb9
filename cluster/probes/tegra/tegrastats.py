"""tegrastats: what reports use on a Tegra where NVML does not, one line of text at a time.

The line is for people and changes with every release, so whatever is not recognised is kept as it stands. Known are
the lines of Jetson Linux on Orin and on Thor (R38). CUDA for Tegra, 3.6, names tegrastats as the alternative to NVML.
"""

import re
import select
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...process.running import Prints, start_command
from ..report.absence import Absence, Maybe, Unavailable
from ..report.engines import Engine, EngineCount, How

LINE_BYTES_MAX = 65536

_UNITS = {"k": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_NUMBER = r"[0-9]{1,12}"
_END = r"(?=\s|$)"
_WHEN = re.compile(r"\d{2}-\d{2}-\d{4} \d{2}:\d{2}:\d{2}(?=\s|$)", re.ASCII)
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
    Engine.NVDEC: "NVDEC",
    Engine.NVENC: "NVENC",
    Engine.NVJPG: "NVJPG",
    Engine.OFA: "OFA",
    Engine.DLA: "NVDLA",
}


@dataclass(frozen=True, slots=True)
class CoreUse:
    """One processor core; both None where it is switched off, ``mhz`` None where the line does not say."""

    percent: int | None
    mhz: int | None


@dataclass(frozen=True, slots=True)
class EngineState:
    """One engine, bus or memory controller. ``mhz`` holds a clock per cluster, none where the line does not say."""

    is_on: bool
    percent: int | None = None
    mhz: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Power:
    """One power rail in milliwatts; ``average_mw`` None where the line does not say."""

    now_mw: int
    average_mw: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TegraStats:
    """One line of tegrastats. Names are the line's own, without "_FREQ"; ``raw`` keeps what was not understood."""

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
    raw: tuple[str, ...] = ()


def parse_tegrastats(line: str) -> TegraStats:
    """Read one line of tegrastats; never raises, whatever the line is."""
    found = _Line()
    at = 0
    while (token := _TOKEN.search(line, at)) is not None:
        at = found.take(line, token)
    return found.stats()


class _Line:
    """What has been understood of a line so far."""

    def __init__(self) -> None:
        self._scalars: dict[str, int | str] = {}
        self._cores: tuple[CoreUse, ...] = ()
        self._engines: dict[str, EngineState] = {}
        self._celsius: dict[str, float] = {}
        self._power: dict[str, Power] = {}
        self._raw: list[str] = []

    def stats(self) -> TegraStats:
        return TegraStats(
            cores=self._cores,
            engines=self._engines,
            celsius=self._celsius,
            power=self._power,
            raw=tuple(self._raw),
            **self._scalars,  # type: ignore[arg-type] # each key is put in with its field's type, in take and _memory
        )

    def take(self, line: str, token: re.Match[str]) -> int:
        """Understand what begins at ``token``, and return where it ends."""
        at = token.start()
        if at == 0 and (match := _WHEN.match(line)):
            self._scalars["when"] = match[0]
            return match.end()
        for pattern, keep in (
            (_MEMORY, self._memory),
            (_CORES, self._cores_of),
            (_POWER, self._power_of),
            (_POWER_BARE, self._power_of),
            (_TEMPERATURE, self._temperature),
            (_ENGINE, self._engine),
        ):
            if match := pattern.match(line, at):
                keep(match)
                return match.end()
        self._raw.append(token[0])
        return token.end()

    def _memory(self, match: re.Match[str]) -> None:
        unit = _UNITS[match["unit"]]
        name = match["name"].lower()
        if name == "iram":  # the old Tegras' scratch memory: nothing of ours uses it
            self._raw.append(match[0])
            return
        self._scalars[f"{name}_used_bytes"] = int(match["used"]) * unit
        self._scalars[f"{name}_total_bytes"] = int(match["total"]) * unit
        if name == "ram" and match["block"] is not None:
            self._scalars["largest_free_blocks"] = match["block"]
        if name == "swap" and match["cached"] is not None:
            self._scalars["swap_cached_bytes"] = int(match["cached"]) * _UNITS[match["cached_unit"]]

    def _cores_of(self, match: re.Match[str]) -> None:
        found = (_CORE.match(text.strip()) for text in match["cores"].split(","))
        self._cores = tuple(CoreUse(_number(core and core["percent"]), _number(core and core["mhz"])) for core in found)

    def _power_of(self, match: re.Match[str]) -> None:
        self._power[match["name"]] = Power(int(match["now"]), _number(match["average"]))

    def _temperature(self, match: re.Match[str]) -> None:
        self._celsius[match["name"]] = float(match["celsius"])

    def _engine(self, match: re.Match[str]) -> None:
        name = match["name"].removesuffix("_FREQ")
        if match["off"]:
            self._engines[name] = EngineState(is_on=False)
            return
        clocks = match["at"] or match["only_at"] or match["bare"] or ""
        mhz = tuple(int(clock) for clock in _FREQUENCY.findall(clocks))
        self._engines[name] = EngineState(is_on=True, percent=_number(match["percent"]), mhz=mhz)


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def engine_counts(stats: TegraStats) -> tuple[EngineCount, ...]:
    """Return how many engines of each kind the line names, switched off ones included."""
    counts = (
        (engine, sum(1 for name in stats.engines if re.fullmatch(rf"{prefix}[0-9]*", name)))
        for engine, prefix in _ENGINES.items()
    )
    return tuple(EngineCount(engine, count, How.ASKED) for engine, count in counts if count)


def read_tegrastats(limit_s: float, command: Sequence[str] = ("tegrastats", "--interval", "100")) -> Maybe[TegraStats]:
    """Run tegrastats, or another endless ``command``, for one line within about ``limit_s``; never raises."""
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
    """Return the first line that comes from a process, None where there is none in time."""
    ends_s = time.monotonic() + limit_s
    said = b""
    end.shutdown(socket.SHUT_WR)
    while b"\n" not in said and len(said) < LINE_BYTES_MAX:
        ready, _, _ = select.select([end], [], [], max(0.0, ends_s - time.monotonic()))
        piece = end.recv(LINE_BYTES_MAX) if ready else b""
        if not piece:
            return None
        said += piece
    return said.decode(errors="replace").splitlines()[0] if said.strip() else None

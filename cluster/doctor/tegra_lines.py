"""Prints a Tegra as text: accelerators, video engines, coherency, and a line of tegrastats."""

from collections.abc import Iterator

from ..probes.report.absence import Maybe, Unavailable, known
from ..probes.tegra.dla import DlaReport
from ..probes.tegra.module import CodecInterface, Monitor, TegraReport
from ..probes.tegra.tegrastats import EngineState, TegraStats
from ..text_lines import gigabytes, wrapped


def tegra_lines(found: TegraReport) -> Iterator[str]:
    """Yield the lines of ``codecfleet doctor`` about a Tegra, except those about its GPU."""
    l4t = found.identity.l4t
    release = "" if isinstance(l4t, Unavailable) else f", Jetson Linux R{l4t.major} {l4t.revision}"
    yield from wrapped(f"Tegra {found.identity.soc.name}: {found.identity.model}{release}", "  ")
    for text in _facts(found):
        yield from wrapped(text, "    ")


def _facts(found: TegraReport) -> Iterator[str]:
    yield f"DLA: {_dlas(found.dla)}"
    yield f"video engines: {_video(found)}"
    for rule in (found.io_coherent, found.host_register):
        if not isinstance(rule, Unavailable):
            yield f"memory: {rule.reason}"
    if not isinstance(found.allocatable, Unavailable):
        yield f"allocatable by the GPU: {gigabytes(found.allocatable.allocatable_bytes)}"
    yield f"use is reported by {found.monitor.value}"
    if not isinstance(found.stats, Unavailable):
        yield f"tegrastats: {', '.join(_stats(found.stats)) or 'nothing recognized'}"
    elif found.monitor is Monitor.TEGRASTATS:  # other monitors do not need tegrastats
        yield f"tegrastats: {found.stats.reason}"
    for feature, why in known(found.unsupported, {}).items():
        yield f"not supported: {feature}: {why}"
    if found.undecided:
        yield f"depends on the CUDA version, which is unknown: {', '.join(found.undecided)}"


def _dlas(dla: Maybe[DlaReport]) -> str:
    if isinstance(dla, Unavailable):
        return f"not known: {dla.reason}"
    major, rest = divmod(dla.cudla_version, 1_000_000)
    minor, patch = divmod(rest, 1_000)
    return f"{dla.count or 'none'}, cuDLA {major}.{minor}.{patch}"


def _video(found: TegraReport) -> str:
    counts = ", ".join(f"{entry.count} {entry.engine.name}" for entry in found.engines)
    counted = f"{counts} by tegrastats; " if counts else ""
    if isinstance(found.codecs, Unavailable):
        return f"{counted}{found.codecs.reason}"
    used = "" if found.codecs is CodecInterface.VIDEO_CODEC_SDK else ", which codecfleet does not use: software encodes"
    return f"{counted}reached through {found.codecs.value}{used}"


def _stats(stats: TegraStats) -> Iterator[str]:
    if stats.ram_used_bytes is not None and stats.ram_total_bytes is not None:
        yield f"RAM {gigabytes(stats.ram_used_bytes)} of {gigabytes(stats.ram_total_bytes)}"
    if stats.swap_used_bytes and stats.swap_total_bytes:
        yield f"swap {gigabytes(stats.swap_used_bytes)} of {gigabytes(stats.swap_total_bytes)}"
    if busy := [core.percent for core in stats.cores if core.percent is not None]:
        yield f"CPU {sum(busy) / len(busy):.0f} % of {len(busy)} cores"
    yield from (f"{name} {_state(state)}" for name, state in stats.engines.items())
    if stats.celsius:
        hottest = max(stats.celsius, key=lambda name: stats.celsius[name])
        yield f"{hottest} {stats.celsius[hottest]:.1f} C"
    yield from (f"{name} {power.now_mw / 1000:.1f} W" for name, power in stats.power.items())


def _state(state: EngineState) -> str:
    if not state.is_on:
        return "off"
    clocks = "/".join(str(clock) for clock in dict.fromkeys(state.mhz))
    at = f"{clocks} MHz" if clocks else "on"
    return at if state.percent is None else f"{state.percent} %" + (f" at {clocks} MHz" if clocks else "")

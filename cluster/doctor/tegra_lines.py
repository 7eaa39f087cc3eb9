"""A Tegra as a person reads it: its accelerators, video engines, coherency, and what tegrastats says."""

from collections.abc import Iterator
from typing import Final

from ..probes.report.absence import Maybe, Unavailable, known
from ..probes.tegra.dla import DlaReport
from ..probes.tegra.module import CodecInterface, Monitor, TegraReport
from ..probes.tegra.tegrastats import EngineState, TegraStats
from ..text_lines import gigabytes, wrapped

_INDENT: Final = "    "


def tegra_lines(found: TegraReport) -> Iterator[str]:
    """Yield what doctor says of a Tegra besides its GPU."""
    l4t = found.identity.l4t
    release = "" if isinstance(l4t, Unavailable) else f", Jetson Linux R{l4t.major} {l4t.revision}"
    yield from wrapped(f"Tegra {found.identity.soc.name}: {found.identity.model}{release}", "  ")
    yield from wrapped(f"DLA: {_dlas(found.dla)}", _INDENT)
    yield from wrapped(f"video engines: {_video(found)}", _INDENT)
    for rule in (found.io_coherent, found.host_register):
        if not isinstance(rule, Unavailable):
            yield from wrapped(f"memory: {rule.reason}", _INDENT)
    if not isinstance(found.allocatable, Unavailable):
        yield f"{_INDENT}allocatable by the GPU: {gigabytes(found.allocatable.allocatable_bytes)}"
    yield from wrapped(f"use is reported by {found.monitor.value}", _INDENT)
    if isinstance(found.stats, Unavailable):
        # Where NVML reports use, tegrastats is not needed.
        if found.monitor is Monitor.TEGRASTATS:
            yield from wrapped(f"tegrastats: {found.stats.reason}", _INDENT)
    else:
        yield from wrapped(f"tegrastats: {_stats(found.stats)}", _INDENT)
    for feature, why in known(found.unsupported, {}).items():
        yield from wrapped(f"not supported: {feature}: {why}", _INDENT)
    if found.undecided:
        yield from wrapped(f"depends on the CUDA version, which is not known: {', '.join(found.undecided)}", _INDENT)


def _dlas(dla: Maybe[DlaReport]) -> str:
    if isinstance(dla, Unavailable):
        return f"not known: {dla.reason}"
    count = str(len(dla.devices) or "none")
    if isinstance(dla.cudla_version, Unavailable):
        return count
    major, rest = divmod(dla.cudla_version, 1_000_000)
    minor, patch = divmod(rest, 1_000)
    return f"{count}, cuDLA {major}.{minor}.{patch}"


def _video(found: TegraReport) -> str:
    counts = ", ".join(f"{entry.count} {entry.engine.name}" for entry in found.engines)
    counted = f"{counts} by tegrastats; " if counts else ""
    if isinstance(found.codecs, Unavailable):
        return f"{counted}{found.codecs.reason}"
    used = "" if found.codecs is CodecInterface.VIDEO_CODEC_SDK else ", which codecfleet does not use: software encodes"
    return f"{counted}reached through {found.codecs.value}{used}"


def _stats(stats: TegraStats) -> str:
    parts = []
    if stats.ram_used_bytes is not None and stats.ram_total_bytes is not None:
        parts.append(f"RAM {gigabytes(stats.ram_used_bytes)} of {gigabytes(stats.ram_total_bytes)}")
    if stats.swap_used_bytes and stats.swap_total_bytes:
        parts.append(f"swap {gigabytes(stats.swap_used_bytes)} of {gigabytes(stats.swap_total_bytes)}")
    busy = [core.percent for core in stats.cores if core.percent is not None]
    if busy:
        parts.append(f"CPU {sum(busy) / len(busy):.0f} % of {len(busy)} cores")
    parts += [f"{name} {_state(state)}" for name, state in stats.engines.items()]
    if stats.celsius:
        hottest = max(stats.celsius, key=lambda name: stats.celsius[name])
        parts.append(f"{hottest} {stats.celsius[hottest]:.1f} C")
    parts += [f"{name} {power.now_mw / 1000:.1f} W" for name, power in stats.power.items()]
    return ", ".join(parts) or "nothing that is known"


def _state(state: EngineState) -> str:
    if not state.is_on:
        return "off"
    clocks = "/".join(str(clock) for clock in dict.fromkeys(state.mhz))
    at = f"{clocks} MHz" if clocks else "on"
    return at if state.percent is None else f"{state.percent} %" + (f" at {clocks} MHz" if clocks else "")

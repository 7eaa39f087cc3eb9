import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.probes.report.absence import Absence, Unavailable
from codecfleet.cluster.probes.report.engines import Engine, EngineCount, How
from codecfleet.cluster.probes.tegra.tegrastats import (
    CoreUse,
    EngineState,
    Power,
    TegraStats,
    engine_counts,
    parse_tegrastats,
    read_tegrastats,
)

from ...maybe import missing

MIB = 1 << 20
ORIN = (
    "RAM 4011/8138MB (lfb 8x4MB) SWAP 12/4068MB (cached 3MB) CPU [12%@1190,0%@1190,off,off] EMC_FREQ 0% "
    "GR3D_FREQ 35% NVDEC off NVENC off NVDLA0 off NVDLA1 off MTS fg 0% AO@47C GPU@46.5C VDD_GPU_SOC 1234mW"
)
THOR = (
    "04-21-2026 15:50:52 RAM 105265/125772MB (lfb 34x4MB) CPU [0%@972,5%@972] EMC_FREQ 0%@2750 "
    "GR3D_FREQ @[314,314,314] NVENC0_FREQ @314 NVENC1_FREQ @314 NVDEC0_FREQ @314 NVDEC1_FREQ @314 NVJPG0_FREQ @314 "
    "VIC off OFA_FREQ @315 PVA0_FREQ off APE 300 cpu@37.343C tj@-256C VDD_GPU 1962mW/1960mW VIN 19780mW/19780mW"
)


def test_orins_line() -> None:
    """All of Orin's line is read; unknown words are kept unchanged."""
    stats = parse_tegrastats(ORIN)
    assert (stats.ram_used_bytes, stats.ram_total_bytes) == (4011 * MIB, 8138 * MIB)
    assert stats.largest_free_blocks == "8x4MB"
    assert (stats.swap_used_bytes, stats.swap_total_bytes, stats.swap_cached_bytes) == (12 * MIB, 4068 * MIB, 3 * MIB)
    assert stats.cores == (CoreUse(12, 1190), CoreUse(0, 1190), CoreUse(None, None), CoreUse(None, None))
    assert stats.engines["GR3D"] == EngineState(is_on=True, percent=35)
    assert stats.engines["NVDEC"] == EngineState(is_on=False)
    assert stats.celsius == {"AO": 47.0, "GPU": 46.5}
    assert stats.power == {"VDD_GPU_SOC": Power(1234, None)}
    assert stats.raw == ("MTS", "fg", "0%")
    assert stats.when == ""


def test_thors_line() -> None:
    """Thor's line has a time, clocks without use, clocks for each cluster, and averages; every word is read."""
    stats = parse_tegrastats(THOR)
    assert stats.when == "04-21-2026 15:50:52"
    assert stats.engines["EMC"] == EngineState(is_on=True, percent=0, mhz=(2750,))
    assert stats.engines["GR3D"] == EngineState(is_on=True, percent=None, mhz=(314, 314, 314))
    assert stats.engines["NVENC1"] == EngineState(is_on=True, mhz=(314,))
    assert stats.engines["APE"] == EngineState(is_on=True, mhz=(300,))
    assert stats.engines["PVA0"] == EngineState(is_on=False)
    assert stats.celsius == {"cpu": 37.343, "tj": -256.0}
    assert stats.power["VDD_GPU"] == Power(1962, 1960)
    assert stats.swap_total_bytes is None
    assert stats.raw == ()


def test_engines_are_counted_by_name() -> None:
    """The lines give the number of video engines: two NVDECs and NVENCs on Thor, two accelerators on Orin."""
    thor = {count.engine: count.count for count in engine_counts(parse_tegrastats(THOR))}
    assert thor == {Engine.NVDEC: 2, Engine.NVENC: 2, Engine.NVJPG: 1, Engine.OFA: 1}
    assert EngineCount(Engine.DLA, 2, How.ASKED) in engine_counts(parse_tegrastats(ORIN))


@pytest.mark.parametrize(
    "line", ["", "CPU [", "RAM 1/2", "NVDEC", "GR3D_FREQ @[", "VIN mW", "RAM " + "9" * 5000 + "/1MB"]
)
def test_broken_lines_are_kept_raw(line: str) -> None:
    """Truncated or absurd words are kept unchanged, not read as values."""
    stats = parse_tegrastats(line)
    assert stats == TegraStats(raw=tuple(line.split()))


WORDS = st.sampled_from(
    [*ORIN.split(), *THOR.split(), "RAM", "CPU", "[", "]", "@", "%", "/", "off", "(lfb", "mW", "1/2MB", "NVDEC0_FREQ"]
)


@given(st.one_of(st.text(), st.lists(WORDS | st.text(max_size=8), max_size=30).map(" ".join)))
def test_no_line_makes_the_parser_raise(line: str) -> None:
    """Any text gives a result, and each word that is kept raw is a word of the line."""
    stats = parse_tegrastats(line)
    assert all(piece in line for piece in stats.raw)


def test_first_line_of_a_running_program_is_read_and_the_program_ended() -> None:
    """The program never ends by itself; its first line counts, whatever follows."""
    writes_forever = f"import signal\nprint({THOR!r}, flush=True)\nprint('more', flush=True)\nsignal.pause()"
    assert read_tegrastats(60.0, (sys.executable, "-c", writes_forever)) == parse_tegrastats(THOR)


def test_program_that_is_missing_or_silent_has_a_reason() -> None:
    """If tegrastats is missing or prints nothing, there is a reason and no exception."""
    absent = missing(read_tegrastats(60.0, ("/no/such/tegrastats",)))
    silent = read_tegrastats(60.0, (sys.executable, "-c", ""))
    hanging = missing(read_tegrastats(0.0, (sys.executable, "-c", "import signal; signal.pause()")))
    assert absent.absence is Absence.NO_LIBRARY
    assert isinstance(silent, Unavailable)
    assert hanging.absence is Absence.TIMED_OUT

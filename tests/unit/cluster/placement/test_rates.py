"""The speeds of engines, and how measurements change them."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.placement.model.inventory import Device
from codecfleet.cluster.placement.rates import (
    Measurement,
    Rates,
    Stage,
    curve_of,
    record_measurement,
    software_fps,
    start_rates,
)
from codecfleet.cluster.probes.report.engines import CodecCase, Direction, Engine, MediaCodec

from .worlds import gpu, node

START = start_rates()
DECODE = Stage(CodecCase(MediaCodec.H264, Direction.DECODE), 1920, 1080, Engine.NVDEC, "nvdec")
ENCODE = Stage(CodecCase(MediaCodec.HEVC, Direction.ENCODE), 1920, 1080, Engine.NVENC, "nvenc")
SOFTWARE = Stage(CodecCase(MediaCodec.HEVC, Direction.ENCODE), 1920, 1080, Engine.CPU, "libx265")


def _measured(rates: Rates, device: Device, *points: tuple[int, float]) -> Rates:
    for sessions, fps in points:
        rates = record_measurement(rates, Measurement(device=device, stage=DECODE, sessions=sessions, fps=fps))
    return rates


def test_documented_rates_are_scaled_by_engines_clock_and_pixels() -> None:
    """Two sessions on one Ada NVDEC give the documented 903 fps; twice the clock doubles this, 4K gives a quarter."""
    ada = gpu("RTX 4090", "n")
    assert curve_of(START, ada, DECODE)[-1] == (2, pytest.approx(903))
    fast = gpu("RTX 4090", "n", max_video_clock_mhz=2 * 2160)
    assert curve_of(START, fast, DECODE)[-1][1] == pytest.approx(2 * 903)
    large = Stage(DECODE.case, 3840, 2160, Engine.NVDEC, "nvdec")
    assert curve_of(START, ada, large)[-1][1] == pytest.approx(903 / 4)
    assert curve_of(START, gpu("L40S", "n"), DECODE)[-1] == (8, pytest.approx(3 * 903 * 1.018))


@pytest.mark.parametrize("busy", [0.05, 0.3, 0.5, 0.8, 0.95, 1.0])
def test_others_use_shortens_the_curve(busy: float) -> None:
    """If other programs use an engine, its curve starts as usual and ends at what they leave, at least a tenth."""
    alone = curve_of(START, gpu("H200", "n"), DECODE)
    beside = curve_of(START, gpu("H200", "n", busy={Engine.NVDEC: busy}), DECODE)
    assert beside[-1][1] == pytest.approx(alone[-1][1] * max(1 - busy, 0.1))
    assert 1 <= beside[-1][0] <= alone[-1][0]
    assert all(point in alone for point in beside[:-1])
    assert curve_of(START, gpu("H200", "n", busy={Engine.NVENC: busy}), DECODE) == alone


def test_a_driver_s_limit_ends_the_curve() -> None:
    """A vGPU without a licence gives 3 frames a second with one session, however many engines it has."""
    assert curve_of(START, gpu("H200", "n", fps_max=3.0), DECODE) == ((1, 3.0),)


def test_a_measurement_replaces_the_start_value() -> None:
    """A measured speed counts for that number of sessions and, scaled, for larger numbers."""
    device = gpu("L40S", "n")
    rates = _measured(START, device, (1, 500.0), (3, 1500.0))
    curve = curve_of(rates, device, DECODE)
    assert curve[:2] == ((1, 500.0), (3, 1500.0))
    assert curve[-1][0] == 8
    assert curve_of(rates, gpu("L4", "n"), DECODE) == curve_of(START, gpu("L4", "n"), DECODE)


def test_a_later_measurement_counts_by_a_third() -> None:
    """One slow measurement changes the rates only in part."""
    device = gpu("L40S", "n")
    rates = _measured(START, device, (1, 500.0), (1, 400.0))
    assert curve_of(rates, device, DECODE)[0][1] == pytest.approx(470)


def test_a_curve_ends_where_measurements_are_flat() -> None:
    """If four or eight sessions are no faster than one, the curve ends at one session."""
    device = gpu("L40S", "n")
    rates = _measured(START, device, (1, 330.0), (4, 330.5), (8, 330.0))
    assert curve_of(rates, device, DECODE) == ((1, 330.0),)


def test_software_rates_are_those_of_a_core() -> None:
    """A core of half the speed gives half the frames, 10 bits give fewer than 8, and measured processors count."""
    fps = software_fps(START, "processor", 1.0, SOFTWARE)
    assert software_fps(START, "processor", 0.5, SOFTWARE) == pytest.approx(fps / 2)
    deep = Stage(CodecCase(MediaCodec.HEVC, Direction.ENCODE, bit_depth=10), 1920, 1080, Engine.CPU, "libx265")
    assert software_fps(START, "processor", 1.0, deep) < fps
    processor = node("n", cores=8).devices[-1]
    rates = record_measurement(START, Measurement(device=processor, stage=SOFTWARE, sessions=8, fps=80.0))
    assert software_fps(rates, "processor", 1.0, SOFTWARE) == pytest.approx(10)


def test_a_preset_without_a_figure_is_between_its_neighbours() -> None:
    """NVENC's preset 4 has no figure of its own, so it is between presets 3 and 5."""
    fps = [
        curve_of(START, gpu("L40S", "n"), Stage(ENCODE.case, 1920, 1080, Engine.NVENC, "nvenc", preset))[0][1]
        for preset in range(1, 8)
    ]
    assert fps == sorted(fps, reverse=True)


@given(
    st.lists(st.tuples(st.integers(1, 40), st.just(0.0) | st.floats(0.1, 1e5)), max_size=12),
    st.sampled_from(["H200", "L40S", "L4", "T4"]),
    st.sampled_from([1.0, 0.5, 0.1]),
)
def test_a_curve_always_rises(points: list[tuple[int, float]], model: str, share: float) -> None:
    """Whatever was measured, a curve starts at one session, and each point has more sessions and more speed."""
    device = gpu(model, "n", share=share)
    curve = curve_of(_measured(START, device, *points), device, DECODE)
    assert curve[0][0] == 1
    assert all(fps > 0 for _, fps in curve)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(curve))


@pytest.mark.parametrize(("sessions", "fps"), [(0, 100.0), (1, 0.0), (1, -1.0)])
def test_an_empty_measurement_changes_nothing(sessions: int, fps: float) -> None:
    """A measurement without sessions or frames is ignored."""
    assert _measured(START, gpu("L4", "n"), (sessions, fps)) == START

"""What the measured speed of GPU sessions changes in placements."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.placement.assign.assignment import place
from codecfleet.cluster.placement.measurements import core_fps_beside, measurement_of
from codecfleet.cluster.placement.model.demand import Demand, EncoderChoice, EncoderKind
from codecfleet.cluster.placement.model.placement import Placement
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.placement.rates import (
    Rates,
    Stage,
    curve_of,
    read_curve,
    record_measurement,
    software_fps,
    start_rates,
)
from codecfleet.cluster.probes.report.device_kinds import Route
from codecfleet.cluster.probes.report.engines import CodecCase, Direction, Engine, MediaCodec

from .worlds import demand, gpu, inventory, node, rendition

START = start_rates()
MACHINE = node("n", "H200", cores=16)
H200, PROCESSOR = MACHINE.devices
SOFTWARE = demand(segments=100, encoder=EncoderChoice.SOFTWARE)
X265 = (EncoderKind("libx265"),)
NVENC = (EncoderKind("nvenc", "ada", "580"),)
ENCODE = Stage(SOFTWARE.renditions[0].case, 1920, 1080, Engine.CPU, "libx265")
DECODE = Stage(CodecCase(MediaCodec.H264, Direction.DECODE), 1920, 1080, Engine.NVDEC, "nvdec")


def placed(rates: Rates, wanted: Demand = SOFTWARE) -> Placement:
    """Place a job on a machine with an H200 and 16 cores."""
    return place([wanted], inventory(MACHINE), rates, Policy(hybrid_gain=0.01))


def hybrid(rates: Rates, sessions: int, fps: float) -> Rates:
    """Return the rates after the H200 decoded for sessions at this speed."""
    found = measurement_of(rates, SOFTWARE, H200, PROCESSOR, kinds=X265, sessions=sessions, fps=fps)
    return rates if found is None else record_measurement(rates, found)


def software(rates: Rates, sessions: int, fps: float) -> Rates:
    """Return the rates after the processor decoded for sessions at this speed."""
    found = measurement_of(rates, SOFTWARE, PROCESSOR, PROCESSOR, kinds=X265, sessions=sessions, fps=fps)
    return rates if found is None else record_measurement(rates, found)


def all_in_software_fps(rates: Rates, sessions: int) -> float:
    """Return the speed of sessions that decode and encode on cores."""
    decode = Stage(SOFTWARE.decode, 1920, 1080, Engine.CPU)
    each = (software_fps(rates, PROCESSOR.name, 1.0, stage) for stage in (decode, ENCODE))
    return sessions / sum(1 / fps for fps in each)


@given(fps=st.floats(0.5, 2000.0), sessions=st.integers(1, 16))
def test_the_cores_speed_alone_moves_no_work(fps: float, sessions: int) -> None:
    """Until a GPU is measured, documented rates decide, because nothing can be compared."""
    assert Route.HYBRID in {lane.route for lane in placed(software(START, sessions, fps)).lanes}


@given(part=st.floats(0.05, 0.99), sessions=st.integers(1, 16))
def test_a_hybrid_that_is_slower_than_software_is_not_chosen(part: float, sessions: int) -> None:
    """A GPU with which sessions were measured to be slower than without is refused for that reason."""
    rates = hybrid(START, sessions, part * all_in_software_fps(START, sessions))
    placement = placed(rates)
    assert {lane.route for lane in placement.lanes} == {Route.CPU}
    (reason,) = [refusal.reason for refusal in placement.refusals if refusal.devices == ("n/gpu0",)]
    assert reason == "with its NVDEC a session would be 0% faster, which is not worth a GPU"


@given(measured=st.floats(2.0, 200.0), gain=st.floats(1.05, 2.0))
def test_if_both_are_measured_the_faster_is_chosen(measured: float, gain: float) -> None:
    """Once 16 sessions of each kind were measured, the measured speeds decide, whatever is documented."""
    for hybrid_fps, software_fps_, route in (
        (measured * gain, measured, Route.HYBRID),
        (measured, measured * gain, Route.CPU),
    ):
        rates = hybrid(software(START, 16, software_fps_), 16, hybrid_fps)
        assert {lane.route for lane in placed(rates).lanes} == {route}


@given(fps=st.floats(1.0, 60.0), sessions=st.integers(1, 16))
def test_a_measured_hybrid_keeps_its_measured_speed(fps: float, sessions: int) -> None:
    """A job that requires the GPU is predicted at the measured speed of sessions with the GPU."""
    rates = hybrid(START, sessions, fps)
    assert core_fps_beside(rates, PROCESSOR.name, 1.0, H200.name, ENCODE) == pytest.approx(fps / sessions)
    (lane,) = placed(rates, replace(SOFTWARE, needs_gpu=True)).lanes
    assert lane.fps == pytest.approx(lane.sessions * fps / sessions, rel=0.05)
    assert software_fps(rates, PROCESSOR.name, 1.0, ENCODE) == software_fps(START, PROCESSOR.name, 1.0, ENCODE)


def test_other_machines_keep_their_rates() -> None:
    """Measurements beside one GPU do not change the rates of cores beside other GPUs, or without one."""
    rates = hybrid(START, 16, 16.0)
    for model in ("NVIDIA L40S", "NVIDIA H100"):
        found = core_fps_beside(rates, PROCESSOR.name, 1.0, model, ENCODE)
        assert found == software_fps(START, PROCESSOR.name, 1.0, ENCODE)
    other = core_fps_beside(rates, "another processor", 1.0, H200.name, ENCODE)
    assert other == software_fps(START, "another processor", 1.0, ENCODE)


def test_a_slow_decoder_is_found_beside_many_cores() -> None:
    """If the cores can encode faster than NVDEC decodes, the measured rate is that of NVDEC."""
    fast = demand(renditions=(rendition(MediaCodec.H264, height=180, preset="1"),), encoder=EncoderChoice.SOFTWARE)
    found = measurement_of(
        START, fast, gpu("T4", "n"), PROCESSOR, kinds=(EncoderKind("libx264"),), sessions=60, fps=300.0
    )
    assert found is not None
    assert (found.stage.engine, found.device.name) == (Engine.NVDEC, gpu("T4", "n").name)


@given(
    sessions=st.integers(1, 64),
    fps=st.floats(0.1, 20_000),
    model=st.sampled_from(["L40S", "L4", "RTX 4090"]),
    preset=st.sampled_from("1234567"),
)
def test_the_slower_engine_of_a_device_is_measured(sessions: int, fps: float, model: str, preset: str) -> None:
    """If a GPU both decodes and encodes, the measurement counts for the engine that is slower by known rates."""
    device = gpu(model, "n")
    wanted = demand(renditions=(rendition(preset=preset),))
    found = measurement_of(START, wanted, device, PROCESSOR, kinds=NVENC, sessions=sessions, fps=fps)
    encode = Stage(wanted.renditions[0].case, 1920, 1080, Engine.NVENC, "nvenc", int(preset))
    slower = min((encode, DECODE), key=lambda stage: read_curve(curve_of(START, device, stage), sessions))
    assert found is not None
    assert (found.device, found.stage, found.sessions, found.fps) == (device, slower, sessions, fps)
    curve = curve_of(record_measurement(START, found), device, slower)
    assert read_curve(curve, sessions) <= max(fps, curve[0][1]) * 1.001

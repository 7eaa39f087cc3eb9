"""The host memory of a session, and how many sessions fit."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from codecfleet.cluster.placement.assign import place
from codecfleet.cluster.placement.model.demand import Demand
from codecfleet.cluster.placement.model.inventory import Node, processor_of
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.placement.rates import Stage, session_bytes, start_rates
from codecfleet.cluster.probes.report.engines import CodecCase, Direction, Engine, MediaCodec

from .worlds import demand, inventory, rendition

RATES = start_rates()
GB = 10**9
SMALL = 480
"""A height of pictures so small that the constant part counts more."""
RESULTS = Path(__file__).parents[4] / "benchmarks" / "results"


def _stage(height: int, implementation: str = "", preset: int = 4, chroma: str = "4:2:0") -> Stage:
    direction = Direction.ENCODE if implementation else Direction.DECODE
    case = CodecCase(MediaCodec.H264, direction, chroma)
    return Stage(case, height * 16 // 9, height, Engine.CPU, implementation, preset)


def _one(job: Demand, *nodes: Node) -> tuple[int, list[str], bool]:
    placement = place([job], inventory(*nodes), RATES, Policy())
    sessions = sum(lane.sessions for lane in placement.lanes)
    return sessions, [each.reason for each in placement.refusals], any(each.is_too_large for each in placement.refusals)


@pytest.mark.parametrize("name", ["session-memory", "session-memory-presets"])
def test_the_model_is_just_above_the_measurements(name: str) -> None:
    """Measured sessions take at most as much memory as the model says, and at least a third of that."""
    sessions = json.loads((RESULTS / f"{name}.json").read_text())["sessions"]
    assert len(sessions) >= 24
    for each in sessions:
        encode = _stage(each["height"], each["encoder"], each["preset"])
        modelled = session_bytes(RATES.hardware.host, _stage(each["height"]), [encode], 120)
        assert modelled / 3 < each["bytes"] <= modelled or each["height"] == SMALL, each
        assert each["bytes"] <= modelled, each


def test_a_short_segment_takes_less() -> None:
    """A segment of one 6000 x 6000 picture in 4:4:4 took 754 MiB, and a segment of four took 2,263 MiB (x264)."""
    decoded, encoded = (
        replace(_stage(1080, name, chroma="4:4:4"), width=6000, height=6000) for name in ("", "libx264")
    )
    modelled = [session_bytes(RATES.hardware.host, decoded, [encoded], frames) >> 20 for frames in (1, 4, 250)]
    assert 754 < modelled[0] < 1508
    assert 2263 < modelled[1] < 4526
    assert modelled[2] > modelled[1]


@pytest.mark.parametrize(("memory_gb", "sessions"), [(64, 16), (8, 3), (3, 1), (2, 1)])
def test_sessions_are_limited_by_memory(memory_gb: int, sessions: int) -> None:
    """4K sessions are limited by the memory less the reserve, not by cores; a single one may take nearly all memory."""
    job = demand(segments=16, width=3840, height=2160, renditions=(rendition(height=2160),))
    assert _one(job, processor_of("n", "n", 16, memory_gb * GB))[0] == sessions


def test_filters_memory_counts_for_each_session() -> None:
    """Denoising takes memory, so fewer sessions fit."""
    job = demand(segments=16, width=3840, height=2160, renditions=(rendition(height=2160),))
    machine = processor_of("n", "n", 16, 24 * GB)
    assert _one(replace(job, has_filters=True, filter_bytes=GB), machine)[0] < _one(job, machine)[0] < 16


def test_a_segment_that_can_never_fit_is_refused_with_both_figures() -> None:
    """The refusal states how much memory a segment needs, and how much the only machine has."""
    job = demand(width=15000, height=15000, renditions=(replace(rendition(), width=15000, height=15000),))
    sessions, reasons, is_too_large = _one(job, processor_of("n", "n", 16, 23 * GB))
    assert (sessions, is_too_large) == (0, True)
    assert reasons[0] == "one segment of the job needs 46.0 GB of memory, and this machine has 23.0 GB for work"


def test_another_node_with_enough_memory_takes_it() -> None:
    """A job too large for one machine runs on another; the refusal for the first machine has both figures."""
    job = demand(width=15000, height=15000, renditions=(replace(rendition(), width=15000, height=15000),))
    nodes = processor_of("small", "small", 16, 23 * GB), processor_of("large", "large", 16, 128 * GB)
    sessions, reasons, is_too_large = _one(job, *nodes)
    assert (sessions, is_too_large) == (2, False)
    assert "a segment needs 46.0 GB of memory, and its host has 23.0 GB" in reasons


def test_a_busy_machine_is_no_reason_to_refuse() -> None:
    """A job that waits for another job's memory is not too large."""
    large = demand("a", width=7680, height=4320, renditions=(rendition(height=4320),), priority=1)
    placement = place(
        [large, replace(large, job="b", priority=0)], inventory(processor_of("n", "n", 2, 12 * GB)), RATES, Policy()
    )
    assert {lane.job for lane in placement.lanes} == {"a"}
    assert not any(refusal.is_too_large for refusal in placement.refusals)

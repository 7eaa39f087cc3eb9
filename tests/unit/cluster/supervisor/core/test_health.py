"""Polls decide how placement sees a GPU before and after each event, from NVML to grants."""

from dataclasses import replace
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.worker.heartbeat import Heartbeat
from codecfleet.cluster.placement.model.demand import EncoderChoice
from codecfleet.cluster.probes.gpus.live_health import OwnUse
from codecfleet.cluster.probes.report.absence import Absence, Unavailable
from codecfleet.cluster.probes.report.device_report import CodecSession, DeviceProcess
from codecfleet.cluster.probes.report.engines import Engine
from codecfleet.cluster.supervisor.runner.heartbeats import Heartbeats
from codecfleet.cluster.supervisor.state.conditions import (
    NOTICED,
    POLLS_TO_BELIEVE,
    Level,
    LoadBasis,
    OwnLoad,
    next_condition,
    next_level,
)
from codecfleet.cluster.supervisor.state.events import Encoding, Measured, Probed, SupervisorEvent
from codecfleet.cluster.supervisor.state.messages import JobReport
from codecfleet.testing import FakeClusterBackend
from codecfleet.testing.fake_clock import FakeClock

from ..runner.test_runner import two_nodes
from ..state.test_gpu_workers import _demand
from ..watched_nodes import GIB, OURS, Watched, _at_work


def test_others_decoding_takes_our_slots_until_it_ends(watched: Watched) -> None:
    """A load of another program counts at the next poll; once it ends, the slots return at the second poll."""
    before = watched.sessions()
    watched.nvml.device(watched.raw).decoder_percent = 80
    watched.poll()
    shrunk = watched.sessions()
    assert 1 <= shrunk <= before / 3
    assert "NVDEC 80 % (80 % others)" in watched.text
    watched.nvml.device(watched.raw).decoder_percent = 0
    watched.poll()
    assert watched.sessions() == shrunk
    watched.poll()
    assert watched.sessions() == before


def test_a_load_that_fluctuates_changes_nothing(watched: Watched) -> None:
    """For placement, a tenth more or less is the same load."""
    device = watched.nvml.device(watched.raw)
    device.decoder_percent = 50
    watched.poll()
    first = watched.sessions()
    for percent in (45, 55, 48, 56, 41):
        device.decoder_percent = percent
        watched.poll()
        assert watched.sessions() == first


def test_use_by_our_processes_is_not_others(watched: Watched) -> None:
    """If the driver reports use by process, ours is subtracted, and the rest counts as others'."""
    _at_work(watched)
    device = watched.nvml.device(watched.raw)
    device.decoder_percent = 90
    device.processes = [
        DeviceProcess(OURS, 4 * GIB, decoder_percent=60),
        DeviceProcess(4711, 10 * GIB, decoder_percent=30),
    ]
    device.used_bytes = 14 * GIB
    watched.poll()
    assert watched.device.busy == {}
    watched.poll()
    assert watched.device.busy == {Engine.NVDEC: pytest.approx(0.3)}
    assert watched.device.free_memory_bytes == pytest.approx(watched.gpus[0].free_memory_bytes - 10 * GIB, rel=0.01)
    assert LoadBasis.PROCESS.value in watched.log


def test_our_use_is_estimated_if_the_driver_hides_processes(watched: Watched) -> None:
    """The use that our speed explains, plus a quarter, is ours; a remainder in two polls is others'."""
    worker = _at_work(watched)
    device = watched.nvml.device(watched.raw)
    device.processes = []
    device.decoder_percent = 60
    watched.fps = {worker: 2780.0}  # 60 % of what an H200 decodes
    watched.poll(3)
    assert watched.device.busy == {}
    assert LoadBasis.SPEED.value in watched.log
    device.decoder_percent = 100
    watched.poll()
    assert watched.device.busy == {}
    watched.poll()
    assert watched.device.busy[Engine.NVDEC] == pytest.approx(0.25, abs=0.03)


def test_our_encoding_is_estimated_if_only_decoding_is_reported(watched: Watched) -> None:
    """A missing sample is not a zero; otherwise our own encoding would count as others'."""
    before = OwnLoad(has_worker=True, is_working=True, parts={Engine.NVENC: 0.5})
    seen = watched.world.core.state.nodes.get(watched.ray.node).conditions[watched.gpus[0].device].seen  # type: ignore[union-attr]
    missing = Unavailable(Absence.NOT_FOUND, "no sample")
    ours = OwnUse(decoder_percent=40, encoder_percent=missing, memory_bytes=missing, encoder_sessions=missing)
    seen = replace(seen, decoder_percent=40, encoder_percent=60, ours=ours)
    condition = None
    for _ in range(3):
        condition = next_condition(condition, seen, before, (), 0.0)
    assert condition is not None
    assert {engine: level.part for engine, level in condition.others.items()} == {Engine.NVDEC: 0, Engine.NVENC: 0}


def test_one_missing_answer_keeps_the_load(watched: Watched) -> None:
    """A load counts until two polls in a row lack it."""
    watched.nvml.device(watched.raw).decoder_percent = 80
    watched.poll()
    condition = watched.world.core.state.nodes.get(watched.ray.node).conditions[watched.gpus[0].device]  # type: ignore[union-attr]
    silent = replace(condition.seen, decoder_percent=Unavailable(Absence.NOT_FOUND, "no sample"))
    once = next_condition(condition, silent, OwnLoad(), (), 0.0)
    assert once.others[Engine.NVDEC].part == pytest.approx(0.8)
    assert next_condition(once, silent, OwnLoad(), (), 0.0).others[Engine.NVDEC].part == 0


class Measuring:
    """A job on the first GPU, whose measured speed can change a rate."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._demand = replace(_demand(100), needs_gpu=True)
        watched.say(JobReport(self._demand))
        state = watched.world.core.state
        self._station = next(book for book in state.stations.values() if book.device == watched.gpus[0].device)

    @property
    def expected_fps(self) -> float:
        """The GPU's speed that placement expects, after everything is placed again."""
        for probed in (replace(self._watched.probed, devices=()), self._watched.probed):
            self._watched.world.feed(Probed(probed))
            self._watched.say(JobReport(self._demand))
        lanes = self._watched.world.core.state.plans.placement.lanes
        return sum(lane.fps for lane in lanes if lane.device == self._watched.gpus[0].device)

    def measure(self, fps: float) -> None:
        """Report that the job's worker runs at this many frames a second."""
        self._watched.world.feed(Measured(self._station.worker, self._demand.job, 4, fps, on_device=True))


def test_a_rate_measured_beside_others_teaches_nothing(watched: Watched) -> None:
    """Slowness that other programs cause does not count as the device's own."""
    job = Measuring(watched)
    before_fps = job.expected_fps
    watched.nvml.device(watched.raw).decoder_percent = 100
    watched.poll(2)
    assert watched.device.busy
    job.measure(3.0)
    watched.nvml.device(watched.raw).decoder_percent = 0
    watched.poll(2)
    assert job.expected_fps == before_fps
    job.measure(3.0)
    assert job.expected_fps != before_fps


def test_a_device_without_a_licence_teaches_nothing(watched: Watched) -> None:
    """The speed without a licence is not the speed of the device's model."""
    job = Measuring(watched)
    before_fps = job.expected_fps
    limited = tuple(replace(device, fps_max=3.0) for device in watched.probed.devices)
    watched.world.feed(Probed(replace(watched.probed, devices=limited)))
    job.measure(3.0)
    assert job.expected_fps == before_fps


def test_encoder_sessions_of_others_count_against_the_cap() -> None:
    """Encoder sessions of other programs reduce how many sessions a card accepts from us."""
    watched = Watched("rtx-4090")
    watched.poll()
    device = watched.nvml.device(watched.raw)
    device.sessions = [CodecSession(number, 99, "h264", 1920, 1080, 30, 900) for number in range(5)]
    watched.poll()
    assert watched.device.encoder_sessions_others == 5
    assert "5 encoder sessions (5 others)" in watched.text


def _encoding(watched: Watched, sessions: int, refused_at: int | None = None) -> None:
    watched.sessions()
    station = next(book for book in watched.world.core.state.stations.values() if book.device == watched.gpus[0].device)
    watched.world.feed(Encoding(station.worker, sessions, refused_at))


def _encoder_sessions(watched: Watched) -> int:
    """Return how many sessions a large NVENC job gets."""
    demand = replace(_demand(100), encoder=EncoderChoice.NVENC)
    watched.say(JobReport(demand))
    return sum(lane.sessions for lane in watched.world.core.state.plans.placement.lanes)


def test_a_refused_encoder_session_teaches_the_cap_of_the_machine() -> None:
    """A refusal of a GeForce caps the machine, including other programs; more working sessions lift the cap."""
    watched = Watched("rtx-4090")
    before = _encoder_sessions(watched)
    assert before > 3
    _encoding(watched, 3, refused_at=3)
    assert _encoder_sessions(watched) == 3
    watched.nvml.device(watched.raw).sessions = [CodecSession(1, 99, "h264", 1920, 1080, 30, 900)]
    watched.poll()
    assert _encoder_sessions(watched) == 2
    watched.nvml.device(watched.raw).sessions = []
    watched.poll()
    _encoding(watched, 5)
    assert _encoder_sessions(watched) == before


def test_a_refusal_below_the_open_sessions_teaches_no_cap() -> None:
    """An adopted worker's last refusal may be older than its open sessions."""
    watched = Watched("rtx-4090")
    before = _encoder_sessions(watched)
    _encoding(watched, 5, refused_at=3)
    assert _encoder_sessions(watched) == before


def _reading(backend: FakeClusterBackend, clock: FakeClock) -> tuple[Heartbeats, list[SupervisorEvent]]:
    said: list[SupervisorEvent] = []
    heartbeats = Heartbeats(
        backend=backend,
        limit_s=20.0,
        clock=clock,
        feed=said.append,
        note=lambda _worker, _before, _after: None,
        superseded=pytest.fail,
    )
    return heartbeats, said


class FailingHeartbeats(FakeClusterBackend):
    """A cluster in which reading a heartbeat raises ``error``."""

    error: Exception

    async def heartbeat(self, worker: str) -> NoReturn:
        """Fail."""
        del worker
        raise self.error


async def test_a_heartbeat_that_fails_by_a_defect_is_logged(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    """A heartbeat that fails because of a defect is logged with its worker; dead workers are reported elsewhere."""
    backend = FailingHeartbeats(())
    heartbeats, said = _reading(backend, clock)
    for error in (ConnectionError("gone"), TypeError("wrong")):
        backend.error = error
        await heartbeats.read("a/cpu#0:1")
    assert [each.message for each in caplog.records] == [
        "the heartbeat of worker a/cpu#0:1 cannot be read: TypeError: wrong"
    ]
    assert said == []


@pytest.mark.parametrize(
    ("heartbeats", "events"),
    [
        (
            [
                Heartbeat(0, ()),
                Heartbeat(0, (), encoding=2),
                Heartbeat(0, (), encoding=2, refusals=1, refused_at=2),
                Heartbeat(9, (), encoding=2, refusals=1, refused_at=2),
            ],
            [Encoding("a/gpu#0:1", 2), Encoding("a/gpu#0:1", 2, 2)],
        ),
        # A successor learns everything from the first heartbeat of a worker.
        ([Heartbeat(500, (), encoding=2, refusals=4, refused_at=3)], [Encoding("a/gpu#0:1", 2, 3)]),
    ],
)
async def test_encoder_sessions_and_refusals_are_reported_once(
    heartbeats: list[Heartbeat], events: list[Encoding], clock: FakeClock
) -> None:
    """Heartbeats repeat sessions and refusals, but only a change is an event."""
    backend = two_nodes()
    reading, said = _reading(backend, clock)
    for heartbeat in heartbeats:
        backend.heartbeats["a/gpu#0:1"] = heartbeat
        await reading.read("a/gpu#0:1")
        await clock.advance(4)
    assert said == events


PARTS = st.integers(0, 20).map(lambda steps: steps / 20)
LEVELS = PARTS.filter(lambda part: part == 0 or part >= NOTICED)
SLACK = 1e-9


@given(before=LEVELS, part=PARTS, polls_to_rise=st.sampled_from([1, 2]))
def test_a_steady_load_is_followed(before: float, part: float, polls_to_rise: int) -> None:
    """After two equal polls, the counted load differs from the real load by less than a noticed difference."""
    level = Level(before)
    for _ in range(POLLS_TO_BELIEVE):
        level = next_level(level, part, polls_to_rise)
    assert abs(level.part - part) < NOTICED + SLACK
    assert next_level(level, part, polls_to_rise) == level


@given(before=LEVELS, dip=PARTS)
def test_one_low_poll_changes_nothing(before: float, dip: float) -> None:
    """A load that is missing in only one poll still counts."""
    level = next_level(Level(before), before, 1)
    once = next_level(level, min(dip, level.part), 1)
    assert once.part == level.part
    assert next_level(once, level.part, 1) == level


@given(before=LEVELS, peak=PARTS)
def test_an_estimate_rises_in_the_second_poll(before: float, peak: float) -> None:
    """If our own share is an estimate, a rise counts in the second poll; if none of our work runs, at once."""
    level = next_level(Level(before), before, 2)
    assert next_level(level, peak, 2).part == level.part
    if peak > level.part + NOTICED:
        assert next_level(level, peak, 1).part == peak

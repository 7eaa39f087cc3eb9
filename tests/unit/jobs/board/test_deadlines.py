"""Which work hangs, is late, or is only slow."""

from collections.abc import Mapping
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.worker_names import StationId
from codecfleet.jobs.board.deadlines import LATE_LOOK_S, LOOK_S, STEPS, Paces, Seen
from codecfleet.jobs.request.running import WaitOptions

PATIENCE = WaitOptions(deadline_s=Fraction(30), deadline_factor=4)


def look(paces: Paces, seen: Mapping[str, Seen], seconds: float) -> Paces:
    """Return the paces after a time in which all samples are equal."""
    for _ in range(round(seconds / LOOK_S)):
        paces = paces.looked(seen, LOOK_S)
    return paces


def at(station: str, frames: int) -> Seen:
    """Return one sample of a segment."""
    return Seen(StationId(station), frames)


def delivered(paces: Paces, station: str, frames: int, seconds: float, number: int = 99) -> Paces:
    """Return the paces after a station has done a segment in that time."""
    paces = paces.begun(number, "earlier", frames).looked({"earlier": at(station, 0)}, LOOK_S)
    return look(paces, {"earlier": at(station, frames)}, seconds).ended(number, delivered=True)


def one(frames: int = 100, start_fps: float = 0.0) -> Paces:
    """Return the paces of one segment."""
    return Paces(PATIENCE, start_fps).begun(1, "a", frames)


def test_silence_beyond_the_deadline_is_a_hang() -> None:
    """A worker that is silent for longer than the deadline hangs; until then its last sample counts."""
    paces = look(one(start_fps=100), {"a": at("s", 0)}, 30)
    assert paces.hung() == []
    assert [pace.label for pace in look(paces, {"a": at("s", 0)}, 1.5).hung()] == ["a"]


def test_work_that_waits_for_a_slot_has_no_deadline() -> None:
    """The deadline of work begins when the work runs."""
    paces = look(one(start_fps=100), {}, 3600)
    assert paces.hung() == []
    assert look(paces, {"a": at("s", 0)}, 29).hung() == []


def test_a_step_of_progress_begins_the_deadline_again() -> None:
    """Work that does a twentieth of its frames within each deadline may go on; slower work hangs."""
    paces, step = one(start_fps=100), 100 // STEPS
    for frames in range(step, 100, step):
        paces = look(paces, {"a": at("s", frames)}, 25)
        assert paces.hung() == []
    crawling = one(start_fps=100)
    for frames in range(1, step):
        crawling = look(crawling, {"a": at("s", frames)}, 8)
    assert crawling.hung() != []


def test_a_decoder_that_starts_over_begins_the_deadline_again() -> None:
    """If a sample has fewer frames than before, another decoder took over, and the deadline starts again."""
    paces = look(look(one(start_fps=100), {"a": at("s", 50)}, 25), {"a": at("s", 1)}, 25)
    assert paces.hung() == []


def test_a_gpu_that_has_finished_work_within_a_look_is_no_longer_opening() -> None:
    """A GPU that has finished work has normal deadlines; before that, the deadline for opening sessions applies."""
    gpu = "node/gpu#0:0"
    assert look(one(start_fps=100), {"a": at(gpu, 0)}, 100).hung() == []
    paces = delivered(one(start_fps=100), gpu, 24, 0)
    assert [pace.label for pace in look(paces, {"a": at(gpu, 0)}, 31).hung()] == ["a"]


def test_the_deadline_follows_measured_rates() -> None:
    """The deadline follows placement's speed, then the station's, otherwise the slowest one."""
    pace = one().running[1]
    assert one().deadline_s(pace) == 120
    assert one(start_fps=1).deadline_s(pace) == 400
    assert one(start_fps=1000).deadline_s(pace) == 30
    paces = delivered(delivered(one(start_fps=1000), "slow", 100, 50), "fast", 100, 10)
    assert paces.deadline_s(pace) == 200
    assert paces.deadline_s(look(paces, {"a": at("fast", 0)}, 1).running[1]) == 40
    assert one(frames=0, start_fps=1).deadline_s(one(frames=0).running[1]) == 120


def test_a_device_may_open_its_sessions_first() -> None:
    """Until a device has delivered work, its deadline is at least the time for opening sessions."""
    for station, deadline_s in (("n/gpu#0.1", 180), ("n/dla#0", 180), ("n/cpu#0", 30)):
        paces = look(one(start_fps=1000), {"a": at(station, 0)}, 1)
        assert paces.deadline_s(paces.running[1]) == deadline_s
    paces = delivered(one(), "n/gpu#0", 100, 1)
    assert paces.deadline_s(look(paces, {"a": at("n/gpu#0", 0)}, 1).running[1]) == 30


@given(st.floats(0, 1e6))
def test_a_process_that_stood_still_ends_nothing(stood_still_s: float) -> None:
    """After Ctrl-Z, a suspension or a jump of the clock, one sample counts as a few seconds."""
    paces = look(one(start_fps=100), {"a": at("s", 0)}, 26).looked({"a": at("s", 0)}, stood_still_s)
    assert paces.hung() == []
    assert paces.running[1].silent_s <= 26 + LATE_LOOK_S


def test_what_lags_behind_other_stations_is_late() -> None:
    """Work at a tenth of other stations' speed is late after half the usual time; at the same speed it never is."""
    paces = delivered(one(), "fast", 100, 10)
    assert look(paces, {"a": at("slow", 4)}, 4.5).late() == []
    assert look(paces, {"a": at("slow", 5)}, 5.5).late() == ["a"]
    assert look(paces, {"a": at("slow", 50)}, 5.5).late() == []


def test_what_did_well_and_then_stopped_is_late() -> None:
    """Work that was fast and has stopped for as long as a whole segment takes is late."""
    paces = look(delivered(one(), "fast", 100, 10), {"a": at("s", 95)}, 9.5)
    assert paces.late() == []
    assert look(paces, {"a": at("s", 95)}, 3).late() == ["a"]


@pytest.mark.parametrize("station", ["s", ""])
def test_nothing_is_late_where_nothing_else_is_known(station: str) -> None:
    """No work is late unless another station has shown its speed."""
    paces = delivered(one(), "s", 100, 1) if station else one()
    assert look(paces, {"a": at("s", 1)}, 100).late() == []


def test_the_latest_comes_first() -> None:
    """If there are few slots, the latest work gets a second run first."""
    paces = delivered(one().begun(2, "b", 100), "fast", 100, 10)
    assert look(paces, {"a": at("s", 10), "b": at("s", 2)}, 6).late() == ["b", "a"]


def test_what_failed_says_nothing_of_a_stations_speed() -> None:
    """Only delivered work counts."""
    paces = look(one(), {"a": at("s", 90)}, 1).ended(1, delivered=False)
    assert paces.fps_at == {}
    assert paces.running == {}


def test_a_station_lags_whose_late_work_was_overtaken() -> None:
    """A station whose late work was overtaken lags until it delivers again; work withdrawn in time proves nothing."""
    paces = delivered(one(), "fast", 100, 10)
    in_time = look(paces, {"a": at("slow", 50)}, 6).ended(1, delivered=False, withdrawn=True)
    assert in_time.lagging == frozenset()
    paces = look(paces, {"a": at("slow", 5)}, 6).ended(1, delivered=False, withdrawn=True)
    assert paces.lagging == {"slow"}
    assert delivered(paces, "slow", 100, 10).lagging == frozenset()

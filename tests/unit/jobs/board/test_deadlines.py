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
    """Return paces after looks for so long that all show the same."""
    for _ in range(round(seconds / LOOK_S)):
        paces = paces.looked(seen, LOOK_S)
    return paces


def at(station: str, frames: int) -> Seen:
    """Return one look at a segment."""
    return Seen(StationId(station), frames)


def delivered(paces: Paces, station: str, frames: int, seconds: float, number: int = 99) -> Paces:
    """Return paces after a station has done a segment in that time."""
    paces = paces.begun(number, "earlier", frames).looked({"earlier": at(station, 0)}, LOOK_S)
    return look(paces, {"earlier": at(station, frames)}, seconds).ended(number, delivered=True)


def one(frames: int = 100, start_fps: float = 0.0) -> Paces:
    """Return paces of one segment."""
    return Paces(PATIENCE, start_fps).begun(1, "a", frames)


def test_silence_beyond_the_deadline_is_a_hang() -> None:
    """A worker that does not answer is seen as it was when it last did."""
    paces = look(one(start_fps=100), {"a": at("s", 0)}, 30)
    assert paces.hung() == []
    assert [pace.label for pace in look(paces, {"a": at("s", 0)}, 1.5).hung()] == ["a"]


def test_work_that_waits_for_a_slot_has_no_deadline() -> None:
    """Its deadline begins when it runs."""
    paces = look(one(start_fps=100), {}, 3600)
    assert paces.hung() == []
    assert look(paces, {"a": at("s", 0)}, 29).hung() == []


def test_a_step_of_progress_begins_the_deadline_again() -> None:
    """What does a twentieth of its frames in each deadline may go on without end; less is a hang."""
    paces, step = one(start_fps=100), 100 // STEPS
    for frames in range(step, 100, step):
        paces = look(paces, {"a": at("s", frames)}, 25)
        assert paces.hung() == []
    crawling = one(start_fps=100)
    for frames in range(1, step):
        crawling = look(crawling, {"a": at("s", frames)}, 8)
    assert crawling.hung() != []


def test_a_decoder_that_starts_over_begins_the_deadline_again() -> None:
    """Fewer frames than before mean that another decoder took over."""
    paces = look(look(one(start_fps=100), {"a": at("s", 50)}, 25), {"a": at("s", 1)}, 25)
    assert paces.hung() == []


def test_a_gpu_that_has_finished_work_within_a_look_is_no_longer_opening() -> None:
    """Its next work has the deadline of any other, however soon the first ended; before, the driver's patience."""
    gpu = "node/gpu#0:0"
    assert look(one(start_fps=100), {"a": at(gpu, 0)}, 100).hung() == []
    paces = delivered(one(start_fps=100), gpu, 24, 0)
    assert [pace.label for pace in look(paces, {"a": at(gpu, 0)}, 31).hung()] == ["a"]


def test_the_deadline_follows_measured_rates() -> None:
    """First placement's rate, then what the station did, else the slowest; work of unknown length gets the floor's."""
    pace = one().running[1]
    assert one().deadline_s(pace) == 120
    assert one(start_fps=1).deadline_s(pace) == 400
    assert one(start_fps=1000).deadline_s(pace) == 30
    paces = delivered(delivered(one(start_fps=1000), "slow", 100, 50), "fast", 100, 10)
    assert paces.deadline_s(pace) == 200
    assert paces.deadline_s(look(paces, {"a": at("fast", 0)}, 1).running[1]) == 40
    assert one(frames=0, start_fps=1).deadline_s(one(frames=0).running[1]) == 120


def test_a_device_may_open_its_sessions_first() -> None:
    """Until it has delivered something, no deadline is shorter than what its driver has for an opening."""
    for station, deadline_s in (("n/gpu#0.1", 180), ("n/dla#0", 180), ("n/cpu#0", 30)):
        paces = look(one(start_fps=1000), {"a": at(station, 0)}, 1)
        assert paces.deadline_s(paces.running[1]) == deadline_s
    paces = delivered(one(), "n/gpu#0", 100, 1)
    assert paces.deadline_s(look(paces, {"a": at("n/gpu#0", 0)}, 1).running[1]) == 30


@given(st.floats(0, 1e6))
def test_a_process_that_stood_still_ends_nothing(stood_still_s: float) -> None:
    """After Ctrl-Z, a suspended laptop or a clock that jumped, one look counts as a few seconds."""
    paces = look(one(start_fps=100), {"a": at("s", 0)}, 26).looked({"a": at("s", 0)}, stood_still_s)
    assert paces.hung() == []
    assert paces.running[1].silent_s <= 26 + LATE_LOOK_S


def test_what_lags_behind_other_stations_is_late() -> None:
    """At a tenth of the others' speed it is late once half the usual time is over; at their speed it never is."""
    paces = delivered(one(), "fast", 100, 10)
    assert look(paces, {"a": at("slow", 4)}, 4.5).late() == []
    assert look(paces, {"a": at("slow", 5)}, 5.5).late() == ["a"]
    assert look(paces, {"a": at("slow", 50)}, 5.5).late() == []


def test_what_did_well_and_then_stopped_is_late() -> None:
    """Its own speed says little: it has stood still for as long as a whole segment takes."""
    paces = look(delivered(one(), "fast", 100, 10), {"a": at("s", 95)}, 9.5)
    assert paces.late() == []
    assert look(paces, {"a": at("s", 95)}, 3).late() == ["a"]


@pytest.mark.parametrize("station", ["s", ""])
def test_nothing_is_late_where_nothing_else_is_known(station: str) -> None:
    """A second run needs another station, which has shown its speed."""
    paces = delivered(one(), "s", 100, 1) if station else one()
    assert look(paces, {"a": at("s", 1)}, 100).late() == []


def test_the_latest_comes_first() -> None:
    """If slots are few, the latest work gets one."""
    paces = delivered(one().begun(2, "b", 100), "fast", 100, 10)
    assert look(paces, {"a": at("s", 10), "b": at("s", 2)}, 6).late() == ["b", "a"]


def test_what_failed_says_nothing_of_a_stations_speed() -> None:
    """Only delivered work counts."""
    paces = look(one(), {"a": at("s", 90)}, 1).ended(1, delivered=False)
    assert paces.fps_at == {}
    assert paces.running == {}


def test_a_station_lags_whose_late_work_was_overtaken() -> None:
    """It is used again once it has delivered; what was withdrawn in time says nothing."""
    paces = delivered(one(), "fast", 100, 10)
    in_time = look(paces, {"a": at("slow", 50)}, 6).ended(1, delivered=False, withdrawn=True)
    assert in_time.lagging == frozenset()
    paces = look(paces, {"a": at("slow", 5)}, 6).ended(1, delivered=False, withdrawn=True)
    assert paces.lagging == {"slow"}
    assert delivered(paces, "slow", 100, 10).lagging == frozenset()

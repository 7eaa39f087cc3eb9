"""When more processes and a private Ray start beside the first worker, and what is said where Ray does not."""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.fleet.leases.late_ray import PROCESS_S, RAY_S, SOONER, LateRay, gpus_pay, more_processes_pay
from codecfleet.cluster.placement.model.demand import Demand, EncoderChoice, plain_demand
from codecfleet.cluster.placement.rates import usual_fps
from codecfleet.errors import FleetUnavailable

if TYPE_CHECKING:
    from codecfleet.cluster.ray.embedded import Connection

FIRST, SLOTS = 8, 16


def demand(segments: int, segment_s: float) -> Demand:
    """Return a demand whose every segment takes one slot about ``segment_s``."""
    plain = plain_demand("j", 1)
    return replace(plain, segments=(max(1, round(segment_s * usual_fps(plain))),) * segments)


@pytest.mark.parametrize(
    ("segments", "segment_s", "pays"),
    [
        (1, 1000, False),  # one process has slots enough for it
        (FIRST, 1000, False),
        (FIRST + 1, PROCESS_S, True),
        (30, 0.1, False),  # it ends while another process would start
        (100, 0.1, True),
    ],
)
def test_more_processes_pay_for_long_work_in_many_segments(segments: int, segment_s: float, *, pays: bool) -> None:
    """Neither few segments nor little work are worth another process."""
    assert more_processes_pay(demand(segments, segment_s), FIRST) is pays


def test_work_of_unknown_speed_is_taken_to_last() -> None:
    """With an encoder that no table lists, a job is not kept to one process."""
    known = demand(FIRST + 1, 0.01)
    unknown = replace(known, renditions=(replace(known.renditions[0], software="libnothing"),))
    assert (more_processes_pay(known, FIRST), more_processes_pay(unknown, FIRST)) == (False, True)


@given(st.integers(1, 2000), st.floats(0.01, 1000), st.integers(1, FIRST), st.integers(0, 64))
def test_it_pays_exactly_where_the_work_ends_sooner(segments: int, segment_s: float, first: int, more: int) -> None:
    """The rule is the comparison of both ends, for any number of slots that come later."""
    work = demand(segments, segment_s)
    work_s = sum(work.segments) / usual_fps(work)
    alone_s, together_s = work_s / first, (work_s + more * PROCESS_S) / (first + more)
    assert more_processes_pay(work, first) is (segments > first and work_s / first > PROCESS_S)
    if more and abs(alone_s - together_s) > 1e-9:
        assert (together_s < alone_s) is (work_s / first > PROCESS_S)


@pytest.mark.parametrize(
    ("segments", "segment_s", "software_alone", "pays"),
    [
        (1, 60, False, True),
        (1, 60, True, False),
        (FIRST, 1, False, False),
        (2 * SLOTS, RAY_S / 3, False, False),  # all processes together do it sooner
        (2 * SLOTS, RAY_S, False, True),
    ],
)
def test_a_gpu_pays_for_long_segments(segments: int, segment_s: float, *, software_alone: bool, pays: bool) -> None:
    """Ray starts only where all processors are busy until its workers are there, unless the job leaves GPUs alone."""
    work = replace(demand(segments, segment_s), software_decode="it was asked for" if software_alone else "")
    late = LateRay(FIRST, SLOTS, never, has_gpus=True)
    assert gpus_pay(work, SLOTS) is pays
    assert (late.previewed(work) == work) is pays
    assert (late.bounded(work) == work) is pays


def test_no_gpu_no_ray() -> None:
    """A machine without one needs no Ray for any work, and says nothing of GPUs."""
    late = LateRay(FIRST, SLOTS, never)
    for work in (demand(1, 1000), demand(1000, 60)):
        assert late.bounded(work).software_decode == ""
    assert late.bounded(demand(1000, 60)) == demand(1000, 60)


def test_a_short_job_is_softwares_alone() -> None:
    """It neither waits for a GPU's worker nor chooses an encoder that only a GPU has; unless it was asked to."""
    late = LateRay(FIRST, SLOTS, never, has_gpus=True)
    free = replace(demand(4, 0.1), encoder=EncoderChoice.AUTO)
    found = late.bounded(free)
    assert (found.encoder, found.software_decode) == (EncoderChoice.SOFTWARE, SOONER)
    assert late.previewed(free) == found
    for bound in (replace(free, needs_gpu=True), replace(free, encoder=EncoderChoice.NVENC)):
        assert late.previewed(bound) == bound


def test_a_job_may_have_all_processes_without_a_gpu() -> None:
    """Another process pays sooner than Ray does."""
    late = LateRay(FIRST, SLOTS, never, has_gpus=True)
    work = demand(2 * SLOTS, RAY_S / 3)
    assert late.bounded(work) == replace(work, software_decode=SOONER, encoder=EncoderChoice.SOFTWARE)


async def never() -> "Connection":
    """Start for ever."""
    await asyncio.Event().wait()
    raise AssertionError


def test_once_it_pays_no_demand_is_bounded() -> None:
    """Until then jobs keep to the first process; what remains of a long one at its end has all slots."""
    late = LateRay(FIRST, SLOTS, never)
    small, large = demand(4, 1), demand(100, 60)
    assert late.bounded(small).workers_max == FIRST
    assert late.bounded(replace(small, workers_max=3)).workers_max == 3
    assert late.bounded(large) == large
    assert late.bounded(small) == small


def test_work_without_a_demand_decides_nothing() -> None:
    """It goes where the first process is until a demand pays, and then wherever there is a slot."""
    late = LateRay(FIRST, SLOTS, never, has_gpus=True)
    plain, small = plain_demand("left over", FIRST + 1), demand(4, 0.1)
    assert (late.followed(plain).workers_max, late.followed(plain).software_decode) == (FIRST, SOONER)
    assert late.bounded(small) != small
    assert late.bounded(demand(100, 60)) == demand(100, 60)
    assert late.followed(plain) == plain


async def test_a_refused_start_is_noted() -> None:
    """The report says why no GPU took part; every caller hears of the one start."""
    starts = 0

    async def refused() -> "Connection":
        nonlocal starts
        starts += 1
        raise FleetUnavailable("no place for its files", "Free some.")

    late = LateRay(FIRST, SLOTS, refused)
    assert late.notes == ()
    for _ in range(2):
        with pytest.raises(FleetUnavailable):
            await late.start()
    assert (starts, late.notes) == (
        1,
        ("Ray did not start, so no GPU took part: no place for its files",),
    )
    await late.close()


async def test_closed_while_it_starts() -> None:
    """The start is given up, and all who wait for it learn that; closing again does nothing."""
    late = LateRay(FIRST, SLOTS, never)
    starting = asyncio.create_task(late.start())
    await asyncio.sleep(0)
    await late.close()
    await late.close()
    assert isinstance((await asyncio.gather(starting, return_exceptions=True))[0], asyncio.CancelledError)


async def test_closed_with_its_connection() -> None:
    """A Ray that was started ends with the fleet, and its notes are the report's."""

    class FakeConnection:
        notes = ("it is a fake",)
        closed = 0

        async def close(self) -> None:
            self.closed += 1

    connection = FakeConnection()

    async def started() -> "Connection":
        return cast("Connection", connection)

    late = LateRay(FIRST, SLOTS, started)
    await late.start()
    assert late.notes == connection.notes
    await late.close()
    assert connection.closed == 1

"""When a private Ray starts beside CPU workers, and the note if it does not start."""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest

from codecfleet.cluster.fleet.leases.late_ray import RAY_S, SOONER, LateRay, gpus_pay
from codecfleet.cluster.placement.model.demand import Demand, EncoderChoice, plain_demand
from codecfleet.cluster.placement.rates import usual_fps
from codecfleet.errors import Cancelled, FleetUnavailable

if TYPE_CHECKING:
    from codecfleet.cluster.ray.embedded import Connection

FIRST, SLOTS = 8, 16


def demand(segments: int, segment_s: float) -> Demand:
    """Return a demand whose segments each occupy one slot for about ``segment_s``."""
    plain = plain_demand("j", 1)
    return replace(plain, segments=(max(1, round(segment_s * usual_fps(plain))),) * segments)


def test_work_of_unknown_speed_is_taken_to_last() -> None:
    """A job whose encoder is in no table may use GPUs."""
    known = demand(FIRST + 1, 0.01)
    unknown = replace(known, renditions=(replace(known.renditions[0], software="libnothing"),))
    assert (gpus_pay(known, SLOTS), gpus_pay(unknown, SLOTS)) == (False, True)


@pytest.mark.parametrize(
    ("segments", "segment_s", "software_alone", "pays"),
    [
        (1, 60, False, True),
        (1, 60, True, False),
        (FIRST, 1, False, False),
        (2 * SLOTS, RAY_S / 3, False, False),  # all processes together are faster
        (2 * SLOTS, RAY_S, False, True),
    ],
)
def test_a_gpu_pays_for_long_segments(segments: int, segment_s: float, *, software_alone: bool, pays: bool) -> None:
    """A job is limited to software unless its segments last long enough to pay for Ray's start."""
    work = replace(demand(segments, segment_s), software_decode="it was asked for" if software_alone else "")
    late = LateRay(SLOTS, never, has_gpus=True)
    assert gpus_pay(work, SLOTS) is pays
    is_unbounded = pays or software_alone
    assert (late.previewed(work) == work) is is_unbounded
    assert (late.bounded(work) == work) is is_unbounded


def test_no_gpu_no_ray() -> None:
    """A machine without a GPU needs no Ray, whatever the work."""
    late = LateRay(SLOTS, never)
    for work in (demand(1, 1000), demand(1000, 60)):
        assert late.bounded(work).software_decode == ""
    assert late.bounded(demand(1000, 60)) == demand(1000, 60)


def test_a_short_job_is_softwares_alone() -> None:
    """A short job neither waits for a GPU worker nor chooses NVENC, unless its demand requires one."""
    late = LateRay(SLOTS, never, has_gpus=True)
    free = replace(demand(4, 0.1), encoder=EncoderChoice.AUTO)
    found = late.bounded(free)
    assert (found.encoder, found.software_decode) == (EncoderChoice.SOFTWARE, SOONER)
    assert late.previewed(free) == found
    for bound in (replace(free, needs_gpu=True), replace(free, encoder=EncoderChoice.NVENC)):
        assert late.previewed(bound) == bound
    many = demand(2 * SLOTS, RAY_S / 3)  # another process helps sooner than Ray does
    assert late.bounded(many) == replace(many, software_decode=SOONER, encoder=EncoderChoice.SOFTWARE)


async def never() -> "Connection":
    """Start for ever."""
    await asyncio.Event().wait()
    raise AssertionError


def test_work_without_a_demand_decides_nothing() -> None:
    """Software does work without a demand until another job's demand justifies Ray; then any worker may do it."""
    late = LateRay(SLOTS, never, has_gpus=True)
    plain, small = plain_demand("left over", FIRST + 1), demand(4, 0.1)
    assert late.followed(plain).software_decode == SOONER
    assert late.bounded(small) != small
    assert late.bounded(demand(100, 60)) == demand(100, 60)
    assert late.followed(plain) == plain
    assert late.bounded(small) == small


async def test_a_refused_start_is_noted() -> None:
    """The report says why no GPU was used. A start is tried twice, and every caller gets the error."""
    starts = 0

    async def refused() -> "Connection":
        nonlocal starts
        starts += 1
        raise FleetUnavailable("no place for its files", "Free some.")

    late = LateRay(SLOTS, refused)
    assert late.notes == ()
    for _ in range(2):
        with pytest.raises(FleetUnavailable):
            await late.start()
    assert (starts, late.notes) == (
        2,
        ("Ray did not start, so no GPU was used: no place for its files",),
    )
    await late.close()


async def test_closed_while_it_starts() -> None:
    """The start is cancelled for everyone who waits for it; a second close does nothing."""
    late = LateRay(SLOTS, never)
    starting = asyncio.create_task(late.start())
    await asyncio.sleep(0)
    await late.close()
    await late.close()
    with pytest.raises(Cancelled):
        await starting


class FakeConnection:
    """A connection that counts how many times it is closed."""

    notes = ("it is a fake",)
    closed = 0

    async def close(self) -> None:
        self.closed += 1


async def test_a_start_that_fails_once_is_no_refusal() -> None:
    """If a process of Ray is killed during the start, Ray starts again; it ends with the fleet."""
    failures = [FleetUnavailable("its raylet ended: it was killed", "Free memory.")]
    connection = FakeConnection()

    async def reach() -> "Connection":
        if failures:
            raise failures.pop()
        return cast("Connection", connection)

    late = LateRay(SLOTS, reach)
    assert await late.start() is connection
    assert late.notes == connection.notes
    await late.close()
    assert connection.closed == 1

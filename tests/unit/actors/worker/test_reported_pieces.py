"""A worker's heartbeat reports its work, piece by piece."""

import time

from codecfleet.actors.device.pieces import ENDED_KEPT, KEPT_S, RECENT_S, Ending, KeptPieces, Piece
from codecfleet.actors.device.work import UNCONSTRAINED, Constraints
from codecfleet.testing.fleet.fake_worker import host_in_process
from codecfleet.testing.works import Count

from .helper_peers import packed


async def test_work_of_all_processes_is_told_with_its_age() -> None:
    """Work in the worker and in lone processes is reported by run and label, in seconds before the heartbeat."""
    host = host_in_process(2)
    await host.run("c:1", packed(Count(job="j", label="segment 1", frames=3)), UNCONSTRAINED)
    await host.run("c:2", packed(Count(job="j", label="segment 2", frames=3)), Constraints(alone=True))
    told = (await host.heartbeat(0)).pieces
    assert {(run, label, ending) for run, _, label, _, _, ending in told} == {
        ("c:1", "segment 1", "done"),
        ("c:2", "segment 2", "done"),
    }
    assert all(ended_s is not None and -RECENT_S <= began_s <= ended_s <= 0 for *_, began_s, ended_s, _ in told)


def test_what_has_just_ended_is_told_for_a_few_seconds() -> None:
    """An end is reported, although the process had just reported the work as running."""
    kept = KeptPieces()
    kept.note([ended(1, 10.0)])
    runs = [Piece("c:1", "j", "segment 1", 9.0)]
    beats = [kept.reported(runs * (now_s == 11.0), 1, now_s) for now_s in (10.0, 10.5, 11.0, 10.0 + RECENT_S)]
    assert [[ends_s for *_, ends_s, _ in told] for told in beats] == [[0.0], [-0.5], [-1.0], [-RECENT_S]]
    assert kept.reported([], 1, 10.0 + RECENT_S + 1) == ()


def ended(run: int, ended_s: float) -> Piece:
    """Return a piece of one second that ended at this time."""
    return Piece(f"c:{run}", "j", f"segment {run}", ended_s - 1, ended_s, Ending.DONE)


def test_a_supervisor_that_takes_over_is_told_all_that_is_kept() -> None:
    """The first heartbeats to a new supervisor have all kept pieces, later heartbeats only new pieces."""
    kept, runs = KeptPieces(), Piece("c:3", "j", "segment 3", 40.0)
    kept.note([ended(1, 10.0)])
    kept.note([ended(2, 20.0)])
    kept.reported([], 1, 21.0)
    for now_s in (50.0, 51.0, 52.0):
        told = kept.reported([runs], 2, now_s)
        assert [(run, begins_s, ends_s) for run, _, _, begins_s, ends_s, _ in told] == [
            ("c:1", 9.0 - now_s, 10.0 - now_s),
            ("c:2", 19.0 - now_s, 20.0 - now_s),
            ("c:3", 40.0 - now_s, None),
        ]
    assert [run for run, *_ in kept.reported([runs], 2, 54.0)] == ["c:3"]


def test_what_is_kept_for_a_successor_is_bounded() -> None:
    """The newest pieces are kept; pieces that a supervisor would have dropped are not reported."""
    kept = KeptPieces()
    for number in range(2 * ENDED_KEPT):
        kept.note([ended(number, float(number))])
    last_s = 2.0 * ENDED_KEPT - 1
    assert [run for run, *_ in kept.reported([], 1, last_s)] == [f"c:{n}" for n in range(ENDED_KEPT, 2 * ENDED_KEPT)]
    assert [run for run, *_ in kept.reported([], 2, last_s + KEPT_S)] == [f"c:{2 * ENDED_KEPT - 1}"]


async def test_a_worker_tells_a_new_supervisor_what_it_ran_before() -> None:
    """The first heartbeats of a term report earlier work again; later heartbeats are small."""
    host = host_in_process(1)
    await host.run("c:1", packed(Count(job="j", label="segment 1", frames=3)), UNCONSTRAINED)
    host._kept.note([ended(2, time.monotonic() - 60.0)])
    beats = [len((await host.heartbeat(term)).pieces) for term in (1, 1, 1, 1, 2)]
    assert beats == [2, 2, 2, 1, 2]

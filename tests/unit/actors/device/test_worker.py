"""The core of a worker process."""

import gc
import threading
import weakref
from dataclasses import dataclass, field

import pytest

from codecfleet.actors.device.pieces import Ending
from codecfleet.actors.device.work import Work, WorkContext
from codecfleet.actors.device.worker import WorkerCore
from codecfleet.errors import Cancelled, EngineHung, InputDamaged, WorkerLost
from codecfleet.testing import works


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate(Work[str]):
    """Report two frames, wait at a gate, and continue to report."""

    reached: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)

    def run(self, context: WorkContext) -> str:
        """Stop at the gate."""
        context.advance(2)
        self.reached.set()
        assert self.opened.wait(10)
        context.advance()
        return "through"


@dataclass(frozen=True, slots=True, kw_only=True)
class Twice(Work[str]):
    """Do five frames, and repeat three of them."""

    def run(self, context: WorkContext) -> str:
        """Do them."""
        context.advance(5)
        context.start_over(0)
        context.advance(3)
        return "done"


def test_frames_done_again_are_work_but_not_progress() -> None:
    """Repeated frames count once as progress, and twice for the speed, whose count never decreases."""
    context = WorkContext(frames_done=2)
    context.advance(5)
    context.start_over(2)
    context.advance(3)
    assert (context.frames_done, context.frames_worked) == (5, 10)
    core = WorkerCore(1)
    assert core.submit("0", Twice(job="j", label="a")).result(10) == "done"
    assert core.frames_done == 8
    core.close()


def test_cancelled_before_it_arrives() -> None:
    """A cancellation that arrives before its work cancels only that work."""
    core = WorkerCore(1)
    core.cancel(7)
    with pytest.raises(Cancelled):
        core.submit(7, works.Count(job="j", label="a")).result(10)
    assert core.submit(8, works.Count(job="j", label="a")).result(10) == 1
    core.close()


def test_what_waits_for_a_thread_is_cancelled() -> None:
    """Cancelled work in the queue never begins; other queued work does begin."""
    core, gate = WorkerCore(1), Gate(job="k", label="a")
    first = core.submit("you:1", gate)
    assert gate.reached.wait(10)
    mine = core.submit("me:1", works.Count(job="j", label="a"))
    yours = core.submit("you:2", works.Count(job="k", label="b"))
    core.cancel("me:1")
    gate.opened.set()
    assert first.result(10) == "through"
    with pytest.raises(Cancelled):
        mine.result(10)
    assert yours.result(10) == 1
    core.close()


def test_late_cancellations_do_not_pile_up() -> None:
    """Cancellations of finished work are eventually forgotten."""
    core = WorkerCore(1)
    for run in range(5000):
        core.cancel(run)
    assert len(core._cancelled_early) < 2000
    core.close()


def test_a_label_may_return_while_its_former_run_ends() -> None:
    """The end of the older run does not affect the newer run of the same label."""
    core = WorkerCore(2)
    older, newer = Gate(job="j", label="a"), Gate(job="j", label="a")
    first, second = core.submit("0", older), core.submit("1", newer)
    assert older.reached.wait(10)
    assert newer.reached.wait(10)
    core.cancel("0")
    older.opened.set()
    with pytest.raises(Cancelled):
        first.result(10)
    assert core.progress() == {"1": 2}
    newer.opened.set()
    assert second.result(10) == "through"
    assert core.progress() == {}
    core.close()


def test_work_whose_thread_never_returns_is_given_up() -> None:
    """After ``give_up``, current and later callers get its error at once, even if the thread returns later."""
    core, stuck, waiting = WorkerCore(1), Gate(job="j", label="a"), Gate(job="j", label="b")
    first, second = core.submit("0", stuck), core.submit("1", waiting)
    assert stuck.reached.wait(10)
    error = EngineHung("NVDEC: Decode did not return within 60.0 s", "Look at it.")
    core.give_up(error)
    core.give_up(EngineHung("another"))
    third = core.submit("2", works.Count(job="j", label="c"))
    assert [future.exception(10) for future in (first, second, third)] == [error] * 3
    stuck.opened.set()
    core.close()
    assert not waiting.reached.is_set()
    assert first.exception(10) is error


def test_work_that_is_cancelled_while_all_is_given_up_has_the_same_error() -> None:
    """The first caller that gets the error may close the worker; runs that closing cancels get the same error."""
    core, gates = WorkerCore(2), [Gate(job="j", label=label) for label in "ab"]
    futures = [core.submit(str(number), gate) for number, gate in enumerate(gates)]
    assert all(gate.reached.wait(10) for gate in gates)
    heard = []

    def close_for(other: int) -> None:
        core.close()
        gates[other].opened.set()
        heard.append(futures[other].exception(10))

    for number, future in enumerate(futures):
        future.add_done_callback(lambda _, other=1 - number: close_for(other))
    error = EngineHung("NVDEC: Decode did not return within 60.0 s", "Look at it.")
    core.give_up(error)
    assert heard == [error, error]


def test_work_that_is_not_waited_for_any_more_does_not_begin() -> None:
    """Cancelling work that waits for a thread removes it from the queue; closing the worker cancels all such work."""
    core, gate = WorkerCore(1), Gate(job="j", label="a")
    running = core.submit("0", gate)
    assert gate.reached.wait(10)
    left, closed = core.submit("1", Gate(job="j", label="b")), core.submit("2", Gate(job="j", label="c"))
    assert left.cancel()
    core.close()
    assert closed.cancelled()
    gate.opened.set()
    with pytest.raises(Cancelled):
        running.result(10)


class Payload:
    """Stands for a large result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Give(Work[Payload]):
    """Returns a result once it is allowed to."""

    opened: threading.Event = field(default_factory=threading.Event)

    def run(self, context: WorkContext) -> Payload:
        """Return it."""
        assert self.opened.wait(10)
        context.advance()
        return Payload()


def test_a_result_is_gone_with_the_last_who_holds_it() -> None:
    """No reference cycle keeps a segment's payload alive until garbage collection."""
    gc.disable()
    try:
        core, work, after = WorkerCore(1), Give(job="j", label="give"), Give(job="j", label="after")
        future = core.submit("run", work)
        work.opened.set()
        alive = weakref.ref(future.result(10))
        del future
        after.opened.set()
        # the thread of the run drops the result when it begins other work
        core.submit("after", after).result(10)
        core.close()
        assert alive() is None
    finally:
        gc.enable()


def test_work_without_a_thread_is_refused_and_never_begins() -> None:
    """Work for which no thread can start fails at once, and no later thread runs it."""
    core = WorkerCore(1)
    refused = Gate(job="j", label="refused")
    threading.stack_size(1 << 46)  # more than there is
    try:
        failed = core.submit("1", refused)
    finally:
        threading.stack_size(0)
    assert isinstance(failed.exception(0), WorkerLost)
    assert core.submit("2", works.Count(job="j", label="later", frames=1)).result(10) == 1
    assert not refused.reached.is_set()
    core.close()


def test_pieces_tell_when_work_began_and_how_it_ended() -> None:
    """Running work has no ending; finished work is reported once, in order, with its ending."""
    core, gate = WorkerCore(2), Gate(job="j", label="segment 1")
    future = core.submit("c:1", gate)
    assert gate.reached.wait(10)
    (piece,) = core.pieces()
    assert (piece.run, piece.job, piece.label, piece.ended_s, piece.ending) == ("c:1", "j", "segment 1", None, None)
    damaged = works.RaiseError(job="j", label="segment 2", error=InputDamaged("no", "Give another."))
    with pytest.raises(InputDamaged):
        core.submit("c:2", damaged).result(10)
    core.cancel("c:1")
    gate.opened.set()
    with pytest.raises(Cancelled):
        future.result(10)
    ended = core.take_ended()
    assert [(each.run, each.ending) for each in ended] == [
        ("c:2", Ending.FAILED),
        ("c:1", Ending.CANCELLED),
    ]
    assert all(each.ended_s is not None and each.ended_s >= each.began_s for each in ended)
    assert (core.pieces(), core.take_ended()) == ((), ())
    core.close()

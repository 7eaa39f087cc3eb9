"""The pool's decisions: who runs what, and what becomes of the dead."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from codecfleet.cluster.dispatch_state import (
    DEATHS_IN_A_ROW_MAX,
    Answered,
    Closed,
    Died,
    Dispatch,
    Effect,
    Event,
    Finished,
    Kill,
    Lose,
    Refuse,
    Run,
    Start,
    Stop,
    Submitted,
    Withdrawn,
)


def opened(*slots: int) -> Dispatch:
    """Return a dispatch whose processes have all answered."""
    dispatch = Dispatch(slots)
    for effect in dispatch.open():
        assert isinstance(effect, Start)
        dispatch.decide(Answered(effect.seat, effect.life))
    return dispatch


def decide(dispatch: Dispatch, *events: Event) -> list[Effect]:
    """Feed events and return the effects of the last."""
    return [dispatch.decide(event) for event in events][-1]


def test_nothing_runs_before_a_process_answers() -> None:
    """Work waits for the first process, then goes to it in order."""
    dispatch = Dispatch([1, 1])
    assert dispatch.open() == [Start(0, 1, 0.0), Start(1, 1, 0.0)]
    assert decide(dispatch, Submitted(0), Submitted(1), Submitted(2)) == []
    assert dispatch.starting == 2
    assert decide(dispatch, Answered(1, 1)) == [Run(0, 1, 1)]
    assert decide(dispatch, Answered(0, 1)) == [Run(1, 0, 1)]
    assert dispatch.waiting == 1


def test_the_least_loaded_process_is_next() -> None:
    """Load is the share of taken slots, not their number."""
    dispatch = opened(4, 2)
    runs = [decide(dispatch, Submitted(task)) for task in range(7)]
    assert [run[0].seat if isinstance(run[0], Run) else None for run in runs[:6]] == [0, 1, 0, 0, 1, 0]
    assert runs[6] == []


def test_a_withdrawn_task_keeps_its_slot_until_it_ends() -> None:
    """A cancelled piece of work is stopped; the next one starts when its thread is free, not before."""
    dispatch = opened(1)
    assert decide(dispatch, Submitted(0), Submitted(1), Withdrawn(0)) == [Stop(0, 0, 1)]
    assert decide(dispatch, Finished(0)) == [Run(1, 0, 1)]


def test_a_withdrawn_task_that_waits_is_forgotten() -> None:
    """Work cancelled in the queue never runs."""
    dispatch = opened(1)
    assert decide(dispatch, Submitted(0), Submitted(1), Submitted(2), Withdrawn(1)) == []
    assert decide(dispatch, Finished(0)) == [Run(2, 0, 1)]


def test_a_death_loses_what_ran_and_starts_another() -> None:
    """The dead process is fenced, its tasks are lost, the next starts at once, and the queue goes on elsewhere."""
    dispatch = opened(2, 1)
    effects = decide(dispatch, *(Submitted(task) for task in range(4)), Died(0, 1, "killed"))
    assert effects == [Kill(0, 1), Lose(0, 0, "killed"), Lose(2, 0, "killed"), Start(0, 2, 0.0)]
    assert decide(dispatch, Answered(0, 2)) == [Run(3, 0, 2)]


def test_old_news_is_no_news() -> None:
    """What is told of a former life changes nothing: two observers report the same death."""
    dispatch = opened(1)
    decide(dispatch, Died(0, 1, "killed"), Answered(0, 2))
    assert decide(dispatch, Died(0, 1, "killed")) == []
    assert decide(dispatch, Answered(0, 1)) == []
    assert decide(dispatch, Finished(99)) == []
    assert dispatch.lives() == [(0, 2)]


def test_rests_grow_and_end() -> None:
    """A process that keeps dying is started after growing rests, then no more; what waits is told why."""
    dispatch = opened(1)
    dispatch.decide(Submitted(0))
    rests = []
    for life in range(1, DEATHS_IN_A_ROW_MAX):
        effects = dispatch.decide(Died(0, life, "no memory"))
        rests += [effect.rest_s for effect in effects if isinstance(effect, Start)]
        dispatch.decide(Submitted(life))
    assert rests == [0.0, 0.1, 0.2, 0.4]
    end = "every worker process died 5 times in a row: no memory"
    assert decide(dispatch, Died(0, DEATHS_IN_A_ROW_MAX, "no memory")) == [
        Kill(0, DEATHS_IN_A_ROW_MAX),
        *(Refuse(task, end) for task in range(1, DEATHS_IN_A_ROW_MAX)),
    ]
    assert decide(dispatch, Submitted(9)) == [Refuse(9, end)]


def test_finished_work_forgives() -> None:
    """The count of deaths starts anew with every finished piece of work."""
    dispatch = opened(1)
    for life in range(1, 3 * DEATHS_IN_A_ROW_MAX):
        assert decide(dispatch, Submitted(life), Finished(life), Died(0, life, "x")) == [
            Kill(0, life),
            Start(0, life + 1, 0.0),
        ]
        dispatch.decide(Answered(0, life + 1))


def test_one_bad_seat_does_not_end_the_pool() -> None:
    """The other seats go on without it."""
    dispatch = opened(1, 1)
    for life in range(1, DEATHS_IN_A_ROW_MAX + 1):
        dispatch.decide(Died(0, life, "x"))
    assert dispatch.end is None
    assert decide(dispatch, Submitted(0)) == [Run(0, 1, 1)]


def test_closing_kills_and_refuses_everything() -> None:
    """A closed pool has no process, refuses what ran and waited, and closing again does nothing."""
    dispatch = opened(1)
    end = "the pool is closed"
    assert decide(dispatch, Submitted(0), Submitted(1), Closed()) == [Kill(0, 1), Refuse(0, end), Refuse(1, end)]
    assert decide(dispatch, Closed()) == []
    assert decide(dispatch, Answered(0, 1), Died(0, 1, "killed")) == []
    assert decide(dispatch, Submitted(2)) == [Refuse(2, end)]


@pytest.mark.parametrize("deaths", range(DEATHS_IN_A_ROW_MAX))
def test_only_seats_on_their_way_are_starting(deaths: int) -> None:
    """``starting`` counts processes that may still come up, so that whoever waits for them knows when to stop."""
    dispatch = Dispatch([1])
    dispatch.open()
    for life in range(1, deaths + 1):
        dispatch.decide(Died(0, life, "x"))
    assert dispatch.starting == 1
    dispatch.decide(Answered(0, deaths + 1))
    assert dispatch.starting == 0


class AnyHistory(RuleBasedStateMachine):
    """Whatever happens, in whatever order: every task is settled once, slots hold, and order is kept."""

    @initialize(slots=st.lists(st.integers(1, 3), min_size=1, max_size=3))
    def open(self, slots: list[int]) -> None:
        """Open a pool of any shape."""
        self.slots = slots
        self.dispatch = Dispatch(slots)
        self.lives: dict[int, tuple[int, bool]] = {}  # seat -> (life, answered)
        self.waiting: list[int] = []
        self.running: dict[int, tuple[int, int]] = {}
        self.settled: Counter[int] = Counter()
        self.next_task = 0
        self.follow(self.dispatch.open())

    def feed(self, event: Event) -> None:
        """Feed one event and follow its effects."""
        self.follow(self.dispatch.decide(event))

    def follow(self, effects: list[Effect]) -> None:
        """Do what the shell would do, checking that it can be done."""
        for effect in effects:
            match effect:
                case Start(seat, life, rest_s):
                    assert life == self.lives.get(seat, (0, False))[0] + 1
                    assert rest_s >= 0
                    self.lives[seat] = (life, False)
                case Run(task, seat, life):
                    assert self.lives[seat] == (life, True)
                    assert task == self.waiting.pop(0)
                    self.running[task] = (seat, life)
                case Stop(task, seat, life):
                    assert self.running[task] == (seat, life)
                case Lose(task, seat, _):
                    assert self.running.pop(task)[0] == seat
                    self.settled[task] += 1
                case Refuse(task, _):
                    self.running.pop(task, None)
                    if task in self.waiting:
                        self.waiting.remove(task)
                    self.settled[task] += 1
                case Kill(seat, life):
                    assert self.lives[seat][0] == life

    @rule()
    def submit(self) -> None:
        """Somebody submits."""
        self.waiting.append(self.next_task)
        self.next_task += 1
        self.feed(Submitted(self.next_task - 1))

    @precondition(lambda self: self.waiting or self.running)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        """Somebody gives up waiting."""
        task = data.draw(st.sampled_from([*self.waiting, *self.running]))
        if task in self.waiting:
            self.waiting.remove(task)
            self.settled[task] += 1
        self.feed(Withdrawn(task))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        """A process finishes something."""
        task = data.draw(st.sampled_from(list(self.running)))
        del self.running[task]
        self.settled[task] += 1
        self.feed(Finished(task))

    @rule(seat=st.integers(0, 2), age=st.integers(0, 1))
    def answer(self, seat: int, age: int) -> None:
        """A process answers, perhaps one that was given up already."""
        if seat in self.lives and self.lives[seat][0] > age:
            life = self.lives[seat][0] - age
            if age == 0 and self.dispatch.end is None:
                self.lives[seat] = (life, True)
            self.feed(Answered(seat, life))

    @rule(seat=st.integers(0, 2), age=st.integers(0, 1))
    def die(self, seat: int, age: int) -> None:
        """A process dies, or its death is told again."""
        if seat in self.lives and self.lives[seat][0] > age:
            self.feed(Died(seat, self.lives[seat][0] - age, "x"))

    @precondition(lambda self: self.next_task > 3)
    @rule()
    def close(self) -> None:
        """The pool is closed."""
        self.feed(Closed())

    @invariant()
    def slots_hold(self) -> None:
        """No process has more tasks than slots, nothing waits while a slot is free, and no task is settled twice."""
        taken = Counter(seat for seat, _ in self.running.values())
        assert all(taken[seat] <= count for seat, count in enumerate(self.slots))
        assert self.dispatch.waiting == len(self.waiting)
        free = [seat for seat, _ in self.dispatch.lives() if taken[seat] < self.slots[seat]]
        assert not (self.waiting and free)
        assert not (self.waiting and self.dispatch.end)
        assert all(times == 1 for times in self.settled.values())
        everything = set(self.waiting) | set(self.running) | set(self.settled)
        assert everything == set(range(self.next_task))


AnyHistory.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnyHistory = AnyHistory.TestCase

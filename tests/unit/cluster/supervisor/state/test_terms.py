"""Among supervisors that freeze, are cut off and replaced in any order, only the newest gives orders."""

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from codecfleet.actors.worker.orders import NewestTerm, OldTerm
from codecfleet.cluster.supervisor.state.terms import (
    EPOCHS_PER_TERM,
    Standing,
    Tenure,
    after_look,
    first_epoch,
    next_term,
    term_of,
)

LIMIT_S = 60.0


class Supervisors(RuleBasedStateMachine):
    """Supervisors that claim terms in one store, which some cannot reach; each looks before it gives an order."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.claimed = [1]
        self.tenures = {1: Tenure(1, 0.0)}
        self.worker = NewestTerm(1)
        self.obeyed = 1

    @rule()
    def successor_comes(self) -> None:
        """Ray starts another supervisor, whatever happened to the earlier ones."""
        term = next_term(self.claimed, [first_epoch(1)])
        assert term not in self.claimed
        self.claimed.append(term)
        self.tenures[term] = Tenure(term, self.now_s)

    @rule(seconds=st.sampled_from([1.0, 30.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        """Time passes for all supervisors."""
        self.now_s += seconds

    @rule(data=st.data(), reaches=st.booleans())
    def one_looks(self, data: st.DataObject, *, reaches: bool) -> None:
        """A supervisor looks, and gives an order if it leads."""
        term = data.draw(st.sampled_from(sorted(self.tenures)))
        before = self.tenures[term]
        after = after_look(before, max(self.claimed) if reaches else None, self.now_s, LIMIT_S)
        self.tenures[term] = after
        assert after == before or not before.is_over
        if after.standing is Standing.LEADS:
            assert term == max(self.claimed)
            self.worker.admit(term)
            self.obeyed = term
        elif reaches and not before.is_over:
            assert after.standing is Standing.SUPERSEDED

    @rule(data=st.data())
    def an_order_comes_late(self, data: st.DataObject) -> None:
        """An order that was sent long ago arrives."""
        term = data.draw(st.sampled_from(self.claimed))
        if term < self.obeyed:
            with pytest.raises(OldTerm, match=f"term {term} was replaced by that of term {self.obeyed}"):
                self.worker.admit(term)
        else:
            self.worker.admit(term)
            self.obeyed = term


Supervisors.TestCase.settings = hypothesis_settings(max_examples=60, stateful_step_count=20, deadline=None)
test_only_the_newest_gives_orders = Supervisors.TestCase


def test_a_lost_store_repeats_no_term() -> None:
    """The epochs of live workers contain the claimed terms, so no term is repeated."""
    assert next_term([], []) == 1
    assert next_term([], [first_epoch(7) + 12, first_epoch(3)]) == 8
    assert next_term([9, 2], [first_epoch(7)]) == 10
    assert term_of(first_epoch(7) + EPOCHS_PER_TERM - 1) == 7

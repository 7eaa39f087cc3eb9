"""The policy for Xid errors."""

from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.probes.report.xids import XidAction, worst_action, xid_rule, xid_rules


def test_an_unknown_xid_is_noted() -> None:
    """Each that is known has its consequence in tests/golden/remedies.txt."""
    assert xid_rule(9999).action is XidAction.NOTE


@given(st.lists(st.sampled_from([*xid_rules(), 9999])), st.sampled_from([*xid_rules(), 9999]))
def test_one_more_xid_never_asks_for_less(xids: list[int], more: int) -> None:
    """The severest of several rules holds, in whatever order they came."""
    order = list(XidAction)
    before, after = worst_action(xids), worst_action([more, *xids])
    assert order.index(after) == max(order.index(before), order.index(xid_rule(more).action))

"""The policy for Xid errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.probes.report.xids import XID_RULES, XidAction, worst_action, xid_rule


@pytest.mark.parametrize(
    ("xid", "action"),
    [
        (31, XidAction.RESTART_WORKER),
        (45, XidAction.RESTART_SESSION),
        (48, XidAction.QUARANTINE_DEVICE),
        (63, XidAction.NOTE),
        (68, XidAction.RESTART_WORKER),
        (73, XidAction.RESTART_WORKER),
        (79, XidAction.DRAIN_NODE),
        (9999, XidAction.NOTE),
    ],
)
def test_what_an_xid_asks_for(xid: int, action: XidAction) -> None:
    """Each Xid that touches codecs or memory has its consequence; an unknown one has none."""
    assert xid_rule(xid).action is action


def test_rules_are_sentences() -> None:
    """Each rule explains itself in a sentence without a full stop, under its own number."""
    for xid, rule in XID_RULES.items():
        assert rule.xid == xid
        assert rule.name
        assert len(rule.reason.split()) > 4
        assert not rule.reason.endswith(".")


@given(st.lists(st.sampled_from([*XID_RULES, 9999])), st.sampled_from([*XID_RULES, 9999]))
def test_one_more_xid_never_asks_for_less(xids: list[int], more: int) -> None:
    """The severest of several rules holds, in whatever order they came."""
    order = list(XidAction)
    before, after = worst_action(xids), worst_action([more, *xids])
    assert order.index(after) == max(order.index(before), order.index(xid_rule(more).action))

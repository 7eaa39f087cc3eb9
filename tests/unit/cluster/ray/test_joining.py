"""Clusters that refuse us, or are none."""

import pytest

from codecfleet.cluster.probes.child.child import ChildEnd, ChildOutcome
from codecfleet.cluster.ray.embedded import refusal_in

REFUSED = "AuthenticationError: RPC error: InvalidAuthToken: Authentication token is missing or incorrect. Ensure that"
SAID = "gcs_client.cc:210: Failed to get cluster ID from GCS server: TimedOut: Timed out while waiting"


@pytest.mark.parametrize(
    ("greeting", "words"),
    [
        (ChildOutcome(ChildEnd.RETURNED, (True,)), None),
        (ChildOutcome(ChildEnd.RETURNED, (True,), said=SAID), None),  # the second try was answered
        (ChildOutcome(ChildEnd.RAISED, detail=REFUSED), "did not let us in: the token is missing or wrong"),
        (ChildOutcome(ChildEnd.TIMED_OUT, said=REFUSED), "did not let us in: the token is missing or wrong"),
        (ChildOutcome(ChildEnd.RAISED, detail="RpcError: Timed out", said=SAID), "no Ray answers at here:1"),
        (ChildOutcome(ChildEnd.TIMED_OUT, detail="no answer within 8 s"), None),  # the machine may be busy
        (ChildOutcome(ChildEnd.RAISED, detail="ImportError: no _raylet"), None),
    ],
)
def test_a_refusal_is_one_line(greeting: ChildOutcome, words: str | None) -> None:
    """A wrong token and a stranger's port are named; what is not clear is left to Ray."""
    refusal = refusal_in(greeting, "here:1")
    assert (refusal is None) == (words is None)
    if refusal is not None and words is not None:
        assert words in refusal.message
        assert refusal.next_step

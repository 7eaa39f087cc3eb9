"""Questions to a cluster's supervisor, which never keep the user waiting for long."""

import asyncio

import pytest

from codecfleet.cluster.operate.supervisor import in_time, unknown_node
from codecfleet.cluster.supervisor.state.events import Order
from codecfleet.cluster.supervisor.status.status import NodeStatus, Status
from codecfleet.errors import FleetUnavailable


async def test_an_answer_that_does_not_come_is_an_error_that_says_who_was_asked() -> None:
    """If the head is lost, a question fails after 10 s, while Ray would try for a minute."""
    with pytest.raises(FleetUnavailable, match="the cluster's head has not answered for 0 s"):
        await in_time(asyncio.Future[int](), "the cluster's head", "Look at its node.", within_s=0)


async def test_an_answer_in_time_is_returned() -> None:
    """The answer is returned, and the question's own errors are raised unchanged."""

    async def answer(value: int) -> int:
        return 10 // value

    assert await in_time(answer(5), "it", "") == 2
    with pytest.raises(ZeroDivisionError):
        await in_time(answer(0), "it", "")


def a_status(*nodes: tuple[str, str]) -> Status:
    """Return the status of a cluster with these nodes: (id, name)."""
    found = tuple(NodeStatus(node=node, name=name, state="open", devices="", probed=True) for node, name in nodes)
    return Status(
        pid=1, host="head", nodes=found, devices=(), workers=(), jobs=(), quarantine=(), log=(), autoscaling=None
    )


def test_a_name_of_two_nodes_lists_both_with_their_ids() -> None:
    """The error lists both nodes, and the next step has an id from the status."""
    status = a_status(("1a2b3c4d5e", "vm"), ("9f8e7d6c5b", "vm"), ("000000000", "gpu"))
    error = unknown_node("vm", Order.DRAIN, status)
    assert error.message == "2 nodes are called vm: vm (1a2b3c4d), vm (9f8e7d6c)"
    assert error.next_step == "Give the id of one node: `codecfleet drain 1a2b3c4d`."


def test_an_unknown_name_lists_the_nodes_that_there_are() -> None:
    """If a cluster has many nodes, the error lists only some."""
    error = unknown_node("nowhere", Order.CORDON, a_status(*((f"{number:010}", f"n{number}") for number in range(20))))
    assert error.message == "no node is called nowhere"
    assert error.next_step.startswith("The nodes are n0 (00000000), n1 (")
    assert error.next_step.endswith("and 12 more: see `codecfleet status`.")

"""Questions to a cluster's supervisor: who asks is not kept waiting."""

import asyncio

import pytest

from codecfleet.cluster.operate.supervisor import in_time
from codecfleet.errors import FleetUnavailable


async def test_an_answer_that_does_not_come_is_an_error_that_says_who_was_asked() -> None:
    """A head that is gone keeps Ray looking for it for a minute; who asks is told after 10 s."""
    with pytest.raises(FleetUnavailable, match="the cluster's head has not answered for 0 s"):
        await in_time(asyncio.Future[int](), "the cluster's head", "Look at its node.", within_s=0)


async def test_an_answer_in_time_is_returned() -> None:
    """What was asked is answered, and the question's own errors go through."""

    async def answer(value: int) -> int:
        return 10 // value

    assert await in_time(answer(5), "it", "") == 2
    with pytest.raises(ZeroDivisionError):
        await in_time(answer(0), "it", "")

"""Blocking calls in an event loop: in threads, or in the loop's own thread."""

import asyncio
import threading

import pytest

from codecfleet.jobs.board.threads import in_place, in_thread, shielded, uncancellable


@pytest.mark.parametrize("call", [in_thread, shielded, uncancellable])
def test_a_loop_with_nothing_else_to_do_makes_its_calls_itself(call: object) -> None:
    """Inside ``in_place``, calls and those of its tasks run in the loop's thread; outside, in other threads."""

    async def threads() -> set[int]:
        async with asyncio.TaskGroup() as group:
            beside = group.create_task(call(threading.get_ident))  # type: ignore[operator]
            here = await call(threading.get_ident)  # type: ignore[operator]
        return {here, beside.result()}

    with in_place():
        inside = asyncio.run(threads())
    assert inside == {threading.get_ident()}
    assert threading.get_ident() not in asyncio.run(threads())


def test_errors_of_calls_in_place_reach_their_caller() -> None:
    """An error of a call in place reaches its caller."""
    with in_place(), pytest.raises(ZeroDivisionError):
        asyncio.run(in_thread(lambda: 1 // 0))

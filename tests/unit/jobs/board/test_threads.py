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


def test_a_shielded_call_ends_before_its_files_are_removed() -> None:
    """However often its task is cancelled: a group of tasks, or the loop's end, cancels it again."""
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def call() -> None:
        begun.set()
        may_end.wait()
        ended.set()

    async def cancelled_twice() -> bool:
        task = asyncio.create_task(shielded(call))
        await in_thread(begun.wait)
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        is_waiting = not task.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        return is_waiting and ended.is_set()

    assert asyncio.run(cancelled_twice())

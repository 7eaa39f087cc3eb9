"""Objects that all threads of a process share."""

import threading
from concurrent.futures import ThreadPoolExecutor

from codecfleet.actors.shared_once import shared_once

THREADS = 8


def test_threads_that_ask_at_the_same_time_get_the_same_object() -> None:
    """The object is made once, even though the other threads ask for it while the first thread makes it."""
    begun, asked, made = threading.Event(), threading.Barrier(THREADS + 1), []

    @shared_once
    def make(name: str) -> object:
        made.append(name)
        if len(made) == 1:
            begun.set()
            asked.wait()
        return object()

    def get(name: str) -> object:
        if begun.is_set():
            asked.wait()
        return make(name)

    with ThreadPoolExecutor(THREADS + 1) as pool:
        first = pool.submit(get, "one")
        assert begun.wait(10)
        others = [pool.submit(get, "one") for _ in range(THREADS)]
        assert {id(each.result()) for each in others} == {id(first.result())}
    assert made == ["one"]

"""Runs an iterator ahead in a separate thread, so that decoding and encoding overlap within a segment."""

import queue
import threading
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True)
class _End:
    """Marks the end of the items; holds the error that ended the iterator, if any."""

    error: BaseException | None = None


def read_ahead(items: Generator[ItemT], depth: int) -> Generator[ItemT]:
    """Yield ``items`` in order while another thread prepares up to ``depth`` more.

    An error is raised after the items before it. Closing the generator stops the thread and waits for its end; the
    thread closes ``items``.
    """
    ready: queue.Queue[ItemT | _End] = queue.Queue(depth)
    stop = threading.Event()
    thread = threading.Thread(target=_produce, args=(items, ready, stop), name="codecfleet-ahead", daemon=True)
    thread.start()
    try:
        while not isinstance(item := ready.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        stop.set()
        with suppress(queue.Empty):  # make room for the item the thread may be waiting to put
            while True:
                ready.get_nowait()
        thread.join()


def _produce(items: Generator[ItemT], ready: "queue.Queue[ItemT | _End]", stop: threading.Event) -> None:
    end = _End()
    try:
        for item in items:
            ready.put(item)
            if stop.is_set():
                break
    except BaseException as error:  # noqa: BLE001 - raised again in the consumer
        end = _End(error)
    finally:
        items.close()
    if not stop.is_set():
        ready.put(end)

"""Running an iterator ahead in a thread of its own, so that decoding and encoding overlap within one segment."""

import queue
import threading
from collections.abc import Generator, Iterator
from typing import Generic, TypeVar

__all__ = ["read_ahead"]

ItemT = TypeVar("ItemT")


class _End(Generic[ItemT]):
    """What follows the last item: nothing, or the error that ended the iterator."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def read_ahead(items: Generator[ItemT], depth: int) -> Generator[ItemT]:
    """Yield ``items`` in order while up to ``depth`` more are made ready in another thread.

    Errors surface where the item would have. Closing the generator stops the thread, which closes ``items`` itself,
    and waits for it: nothing of ``items`` runs after that.
    """
    ready: queue.Queue[ItemT | _End[ItemT]] = queue.Queue(depth)
    stop = threading.Event()
    thread = threading.Thread(target=_produce, args=(items, ready, stop), name="codecfleet-ahead", daemon=True)
    thread.start()
    try:
        yield from _consume(ready)
    finally:
        stop.set()
        _drain(ready)
        thread.join()


def _consume(ready: "queue.Queue[ItemT | _End[ItemT]]") -> Iterator[ItemT]:
    while True:
        item = ready.get()
        if not isinstance(item, _End):
            yield item
        elif item.error is not None:
            raise item.error
        else:
            return


def _produce(items: Generator[ItemT], ready: "queue.Queue[ItemT | _End[ItemT]]", stop: threading.Event) -> None:
    end: _End[ItemT] = _End()
    try:
        for item in items:
            ready.put(item)
            if stop.is_set():
                break
    except BaseException as error:  # noqa: BLE001 - it is raised again where the item would have come out
        end = _End(error)
    finally:
        items.close()
    if not stop.is_set():
        ready.put(end)


def _drain(ready: "queue.Queue[ItemT | _End[ItemT]]") -> None:
    """Make room for the one item the thread may be waiting to put."""
    while True:
        try:
            ready.get_nowait()
        except queue.Empty:
            return

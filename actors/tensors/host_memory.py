"""Keeps a thread's arrays for reuse: new memory for each picture would have to be mapped page by page."""

import threading
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]

_NONE: Final = np.empty(0, dtype=np.uint8)


class _Memory(threading.local):
    """A thread's memory for each use, and the last array made of that memory."""

    def __init__(self) -> None:
        self.held: dict[str, tuple[NDArray[np.uint8], Array]] = {}


_memory: Final = _Memory()


def scratch(use: str, shape: tuple[int, ...], kind: DTypeLike) -> Array:
    """Return an array in the memory that this thread keeps for ``use``; the content is undefined."""
    memory, array = _memory.held.get(use, (_NONE, _NONE))
    if array.shape != shape or array.dtype != kind:
        size_bytes = prod(shape) * np.dtype(kind).itemsize
        if memory.nbytes < size_bytes:
            memory = np.empty(size_bytes, dtype=np.uint8)
        array = memory[:size_bytes].view(kind).reshape(shape)
        _memory.held[use] = memory, array
    return array

"""A thread's arrays, by use: new memory for each picture would have to be mapped page by page."""

import threading
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]


class _Memory(threading.local):
    """What a thread keeps."""

    def __init__(self) -> None:
        self.held: dict[str, NDArray[np.uint8]] = {}


_memory: Final = _Memory()


def scratch(use: str, shape: tuple[int, ...], kind: DTypeLike) -> Array:
    """Return memory that this thread keeps for a use; the content is undefined."""
    size_bytes = prod(shape) * np.dtype(kind).itemsize
    held = _memory.held.get(use)
    if held is None or held.nbytes < size_bytes:
        held = _memory.held[use] = np.empty(size_bytes, dtype=np.uint8)
    return held[:size_bytes].view(kind).reshape(shape)

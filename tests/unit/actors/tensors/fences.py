"""Memory between pages that must not be touched: a read or write beyond it ends the process."""

import ctypes
import mmap

import numpy as np
from numpy.typing import NDArray

_libc = ctypes.CDLL(None, use_errno=True)


def fenced(shape: tuple[int, ...], *, at_end: bool) -> NDArray[np.uint8]:
    """Return bytes that end directly before a page that must not be touched, or begin directly after one."""
    size_bytes = int(np.prod(shape))
    inner = -(-size_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
    pages = np.frombuffer(mmap.mmap(-1, inner + 2 * mmap.PAGESIZE), np.uint8)
    for place in (0, mmap.PAGESIZE + inner):
        assert not _libc.mprotect(ctypes.c_void_p(pages.ctypes.data + place), mmap.PAGESIZE, 0)
    begin = mmap.PAGESIZE + (inner - size_bytes if at_end else 0)
    return pages[begin : begin + size_bytes].reshape(shape)

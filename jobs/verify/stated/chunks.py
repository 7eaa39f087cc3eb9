"""Where in the file the samples of mp4 and mov lie: ISO/IEC 14496-12, 8.7."""

from collections.abc import Mapping
from struct import unpack_from

import numpy as np
from numpy.typing import NDArray

_RUN_FIELDS = 3
"""Of ``stsc``: the first chunk of a run, samples in each of its chunks, and their description."""
_SIZES_HEAD_BYTES = 12


def samples_end(tables: Mapping[bytes, memoryview]) -> int:
    """Return where the sample ends that lies last, by the payloads of its boxes; 0 where they do not say."""
    kind, form = (b"co64", ">u8") if b"co64" in tables else (b"stco", ">u4")
    chunks = _numbers(tables.get(kind, b""), form)
    runs = _numbers(tables.get(b"stsc", b""), ">u4")
    firsts, counts = runs[: len(runs) // _RUN_FIELDS * _RUN_FIELDS].reshape(-1, _RUN_FIELDS)[:, :2].T
    lengths = np.diff([*firsts, len(chunks) + 1])
    if not len(chunks) or not len(firsts) or firsts[0] != 1 or lengths.min() < 1:
        return 0
    last = np.cumsum(np.repeat(counts, lengths))
    places = _places(tables.get(b"stsz", b""), last)
    return 0 if places is None else int((chunks + np.diff([0, *places])).max())


def _places(sizes: bytes | memoryview, counts: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Return how many bytes the first samples have, by these counts; None where the table lists another number."""
    if len(sizes) < _SIZES_HEAD_BYTES:
        return None
    each, count = unpack_from(">2I", sizes, 4)
    listed = np.array([], np.int64) if each else _numbers(sizes[4:], ">u4")
    if counts[-1] != count or (not each and len(listed) < count):
        return None
    return counts * each if each else np.concatenate([[0], np.cumsum(listed)])[counts]


def _numbers(payload: bytes | memoryview, kind: str) -> NDArray[np.int64]:
    """Return the numbers of a table, which follow its version, its flags and its count."""
    width = np.dtype(kind).itemsize
    data = payload[8 : 8 + (len(payload) - 8) // width * width]
    return np.frombuffer(data, kind).astype(np.int64)

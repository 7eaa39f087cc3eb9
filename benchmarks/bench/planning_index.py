"""A synthetic index: an hour of film without a file."""

from fractions import Fraction

import numpy as np

from codecfleet.actors.bitstream.access_points import RandomAccess
from codecfleet.jobs.source.index import TrackIndex

__all__ = ["film_index"]

_GRID_FRAMES = 50
_SCENE_FRAMES = 133
_KEY = 1
_TIME_BASE = Fraction(1, 90_000)


def film_index(packets: int, duration_s: Fraction) -> TrackIndex:
    """Return the index of a regular film: B-pictures, a keyframe grid, and scene changes off the grid."""
    rate = packets / duration_s
    step = 1 / rate / _TIME_BASE
    presented = np.arange(packets)
    # In decoding order each P-picture comes before the B-picture that is shown just before the P-picture: 0 2 1 4 3 ...
    inner = presented[1 : packets - (packets - 1) % 2].reshape(-1, 2)
    inner[:] = inner[:, ::-1].copy()
    ticks = np.array([round(n * step) for n in range(packets)], dtype=np.int64)
    pts, dts = ticks[presented], ticks - round(step)
    flags = np.zeros(packets, dtype=np.uint8)
    keys = sorted({0, *range(1, packets, _GRID_FRAMES), *range(1, packets, _SCENE_FRAMES)})
    flags[keys] = _KEY
    sizes = np.full(packets, 10_000, dtype=np.int64)
    return TrackIndex(
        source="an hour of film",
        stream_index=0,
        codec="h264",
        time_base=_TIME_BASE,
        frame_rate=rate,
        pts=pts,
        dts=dts,
        pos_bytes=np.cumsum(sizes) - sizes,
        sizes_bytes=sizes,
        flags=flags,
        kinds=dict.fromkeys(keys, RandomAccess.IDR),
        shifts=(),
    )

"""Finds the duration of a track's last picture, which no next picture ends (docs/timeline.md). Pure.

Matroska states this duration. In mp4 and mov a sample's duration counts in decoding order, so for reordered pictures
the edit list's end or the sum of all durations decides. Other containers state nothing.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...actors.media.headers import TrackEnd

LONGEST_S: Final = 3600  #: The longest plausible duration of the last picture

_Ticks = NDArray[np.int64]


def stated_duration(
    muxer: str,
    pts: _Ticks,
    dts: _Ticks,
    durations: _Ticks,
    *,
    tick_s: Fraction,
    track_end: Callable[[], TrackEnd | None],
    hides_packets: bool = False,
    lacks_packets: bool = False,
) -> Fraction | None:
    """Return the stated duration in ticks. The arrays have the visible packets with known times, in demux order.

    The result is None if no duration is stated, or if the stated duration is less than half of the shortest distance
    between pictures. ``track_end`` is called for mp4 and mov. With ``hides_packets``, an edit list hides some packets;
    with ``lacks_packets``, the header promises more packets.
    """
    if not len(pts) or not muxer.startswith(("mov", "matroska")):
        return None
    times = np.unique(pts)
    shortest = int(np.diff(times).min()) if len(times) > 1 else 1
    last = len(pts) - 1 - int(np.argmax(pts[::-1]))
    by_samples = [Fraction(int(durations[last]))]
    if muxer.startswith("mov"):
        if last < len(pts) - 1:
            summed = int(pts.min()) - int(pts[last]) + int(dts[-1]) + int(durations[-1]) - int(dts[0])
            by_samples.insert(0, Fraction(summed))
        late = int(times[1] - times[0]) if hides_packets and len(times) > 1 else 0
        by_samples = list(
            _with_edits(by_samples, int(pts[last]), tick_s, track_end(), late, lacks_packets=lacks_packets)
        )
    return next((each for each in by_samples if 2 * each >= shortest), None)


def _with_edits(
    by_samples: list[Fraction],
    shown_ticks: int,
    tick_s: Fraction,
    end: TrackEnd | None,
    late: int,
    *,
    lacks_packets: bool,
) -> Iterator[Fraction]:
    """Yield the durations from the samples and from the edit list, the most reliable first.

    A duration from the samples is exact if it is within one tick of the duration from the edit list. The edit list may
    end within the picture. If the picture is decoded last, its sample is right unless the list ends earlier. If the
    list starts within a picture, FFmpeg hides that picture and shows the next up to ``late`` ticks early. If packets
    are missing, the list's end proves nothing.
    """
    if end is not None:
        edited = end.end_s / tick_s - shown_ticks
        lags_s = ((each, (edited - each) * tick_s) for each in by_samples)
        yield from (each for each, lag_s in lags_s if -end.tick_s <= lag_s <= end.tick_s + late * tick_s)
        if edited < by_samples[0] or (len(by_samples) > 1 and not lacks_packets):
            yield edited
    yield from by_samples

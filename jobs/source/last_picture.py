"""How long the last picture of a track is shown, for which no next one says it. Pure; docs/timeline.md.

Matroska states it. In mp4 and mov a sample's duration is the distance to the next decoding time: with reordering the
edit list's end says it, else the sum of all durations. Other containers state none.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...actors.media.headers import TrackEnd

LONGEST_S: Final = 3600  #: Longer than this a last picture is not believed to be shown

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
    """Return what a container states, in ticks, about presented packets with known times, in demux order.

    None if it states nothing, or less than half of the shortest distance between pictures. ``track_end`` is called for
    mp4 and mov; ``hides_packets``: an edit list hides some; ``lacks_packets``: the header promises more.
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
    """Yield what the samples and the edit list say, the most trustworthy first.

    A value within one tick of the edit list is exact. The list may end within the picture. For a picture decoded last,
    the sample is right unless the list ends before it. A list that begins within a picture hides it, and FFmpeg shows
    the next by up to ``late`` ticks too early. Where packets are missing, its end says nothing about the last one.
    """
    if end is not None:
        edited = end.end_s / tick_s - shown_ticks
        lags_s = ((each, (edited - each) * tick_s) for each in by_samples)
        yield from (each for each, lag_s in lags_s if -end.tick_s <= lag_s <= end.tick_s + late * tick_s)
        if edited < by_samples[0] or (len(by_samples) > 1 and not lacks_packets):
            yield edited
    yield from by_samples

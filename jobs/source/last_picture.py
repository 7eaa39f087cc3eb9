"""How long the last picture of a track is shown: no picture follows that would end it. Pure; docs/timeline.md.

Matroska says it of each picture. In mp4 and mov a sample's duration is the distance to the next decoding time: where
pictures are reordered, the edit list's end says it, else the sum of all samples' durations. Other containers give none.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...actors.media.headers import TrackEnd

LONGEST_S: Final = 3600
"""Longer than this a last picture is not believed to be shown."""

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
    """Return what a container says, in ticks, of packets that are presented, in demux order, at these known times.

    None where it says nothing, or less than half of the shortest distance between two pictures. ``track_end`` is called
    for mp4 and mov; ``hides_packets`` says that an edit list leaves some packets out, ``lacks_packets`` that the header
    promises more than there are.
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

    The edit list is in ticks of its own: what agrees with it within one of them is exact. It may end within the
    picture. Of a picture that is decoded last the sample is right, unless the edit list ends before it. An edit list
    that begins within a picture hides it, and FFmpeg shows the next one, by up to ``late`` ticks, too early. Where
    packets are missing it may end behind them, which says nothing of the last one that is there.
    """
    if end is not None:
        edited = end.end_s / tick_s - shown_ticks
        lags_s = ((each, (edited - each) * tick_s) for each in by_samples)
        yield from (each for each, lag_s in lags_s if -end.tick_s <= lag_s <= end.tick_s + late * tick_s)
        if edited < by_samples[0] or (len(by_samples) > 1 and not lacks_packets):
            yield edited
    yield from by_samples

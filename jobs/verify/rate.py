"""The reference at another frame rate: which frame each output picture shows, by the rule of docs/filters.md.

Written a second time, over the whole list of a film's frames, where segments take one picture after the other.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from .reference_decode import Timeline


@dataclass(frozen=True, slots=True)
class ComparedPart:
    """What of a track is compared: its frames in ``order``, each as often as it is shown, and their ``times``.

    Times are in ticks of ``time_base`` and begin at ``zero_s`` of the source's clock. ``length_s`` is from the source's
    first frame in it to the last; None where it is the whole track.
    """

    order: tuple[int, ...]
    times: tuple[int, ...]
    time_base: Fraction
    zero_s: Fraction
    length_s: Fraction | None


def at_rate(
    timeline: Timeline,
    part: ComparedPart,
    fps: Fraction,
    start_s: Fraction | None,
    end_s: Fraction | None,
) -> ComparedPart:
    """Return a part of a track at ``fps`` pictures a second; ``start_s`` and ``end_s`` are its own."""
    base = part.time_base
    wanted = max(timeline.packets[0] + ceil((start_s or 0) / base), timeline.times[0])
    first = timeline.packets[min(bisect_left(timeline.packets, wanted), len(timeline.packets) - 1)]
    end = timeline.packets[-1] + max(1, round(timeline.nominal))
    if end_s is not None:
        end = min(end, timeline.packets[0] + ceil(end_s / base))
    step = 1 / (fps * base)
    lead = min(step, timeline.nominal) / 2
    order: list[int] = []
    while not order or first + len(order) * step + lead < end:
        chosen = first + len(order) * step + lead
        order.append(part.order[max(0, bisect_right(part.times, chosen) - 1)])
    return ComparedPart(tuple(order), tuple(range(len(order))), 1 / fps, first * base, part.length_s)

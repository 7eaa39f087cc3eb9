"""How pictures around cuts differ from the same pictures in one encode."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

__all__ = ["AROUND_FRAMES", "Dip", "Track", "dip_at", "dip_within"]

AROUND_FRAMES = 12
"""How many pictures before a cut, and after it, belong to the seam."""


@dataclass(frozen=True, slots=True)
class Track:
    """The values of each picture, in order of presentation."""

    psnr_db: Sequence[float]
    xpsnr_db: Sequence[float]
    bits: Sequence[int]


@dataclass(frozen=True, slots=True)
class Dip:
    """The difference of some pictures from one encode; below 0 if they are worse. ``bits`` is a ratio."""

    psnr_db: float
    xpsnr_db: float
    worst_psnr_db: float
    bits: float


def dip_at(track: Track, one: Track, cuts: Sequence[int], *, after: bool) -> Dip:
    """Return the difference of the pictures before all cuts, or after them; ``worst`` is that of the worst picture."""
    first = 0 if after else -AROUND_FRAMES
    return dip_within(track, one, [cut + first + place for cut in cuts for place in range(AROUND_FRAMES)])


def dip_within(track: Track, one: Track, pictures: Sequence[int]) -> Dip:
    """Return the difference of the pictures with these numbers; numbers that do not exist are left out."""
    places = [number for number in pictures if 0 <= number < len(one.bits)]
    psnr = [track.psnr_db[number] - one.psnr_db[number] for number in places]
    return Dip(
        psnr_db=mean(psnr),
        xpsnr_db=mean(track.xpsnr_db[number] - one.xpsnr_db[number] for number in places),
        worst_psnr_db=min(psnr),
        bits=sum(track.bits[number] for number in places) / sum(one.bits[number] for number in places),
    )

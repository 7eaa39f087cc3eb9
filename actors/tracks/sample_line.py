"""Makes a continuous line of samples from a track's decoded frames, counted from the first real sample.

Gaps become silence, overlaps are dropped, and a leap of the clock counts as a reset. Deviations of up to a tick, or of
up to 2 ms if a tick is shorter, are ignored.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
from av.audio.frame import AudioFrame
from numpy.typing import NDArray

from ..media.timeline import LONGEST_GAP_S, RESET_S

_TOLERANCE_S = Fraction(1, 500)
_SILENCE_SAMPLES = 48_000
_HALF = Fraction(1, 2)


@dataclass(slots=True)
class SampleLine:
    """The position of each decoded sample on the continuous line of samples."""

    start_s: Fraction | None
    end_s: Fraction | None
    begin: int | None = None  # the number of the first kept sample on the source's clock, at the rate of that sample
    end: int = 0  # the number of the next sample
    rate: int = 0  # rate of the last frame
    damaged_packets: int = 0
    clock_resets: int = 0
    _shift: int = 0
    _begin_rate: int = 0

    def place(self, frame: AudioFrame) -> Iterator[AudioFrame]:
        """Yield silence up to the beginning of ``frame``, then the kept part of ``frame``."""
        self._follow_rate(frame.sample_rate)
        at = self._position(frame)
        if self.begin is None:
            first = at if self.start_s is None else max(at, floor(self.start_s * self.rate + _HALF))
            if at + frame.samples <= first:
                return
            self.begin, self._begin_rate = first, self.rate
            self.end = first
        yield from self._silence(frame, at - self.end)
        yield from self._part(frame, at)

    @property
    def begin_s(self) -> Fraction:
        """The time of the first kept sample, on the source's clock; 0 if no sample is kept."""
        return Fraction(self.begin or 0, self._begin_rate or 1)

    def _follow_rate(self, rate: int) -> None:
        if rate != self.rate and self.rate:
            self.end, self._shift = (
                floor(Fraction(ticks * rate, self.rate) + _HALF) for ticks in (self.end, self._shift)
            )
        self.rate = rate

    def _position(self, frame: AudioFrame) -> int:
        if frame.pts is None or frame.time_base is None:
            return self.end
        stated = floor(frame.pts * Fraction(frame.time_base) * self.rate + _HALF) + self._shift
        if self.begin is None:
            return stated
        apart = stated - self.end
        if abs(apart) <= max(_TOLERANCE_S, Fraction(frame.time_base)) * self.rate:
            return self.end
        if apart < -RESET_S * self.rate or apart > LONGEST_GAP_S * self.rate:
            self.clock_resets += 1
            self._shift -= apart
            return self.end
        return stated

    def _silence(self, like: AudioFrame, samples: int) -> Iterator[AudioFrame]:
        samples = self._until_end(samples)
        while samples > 0:
            count = min(samples, _SILENCE_SAMPLES)
            yield _silent(like, count)
            samples -= count
            self.end += count

    def _part(self, frame: AudioFrame, at: int) -> Iterator[AudioFrame]:
        skip = max(0, self.end - at)
        count = self._until_end(frame.samples - skip)
        if count <= 0:
            return
        self.end += count
        yield frame if count == frame.samples else _cut(frame, skip, count)

    def _until_end(self, samples: int) -> int:
        if self.end_s is None:
            return samples
        return min(samples, floor(self.end_s * self.rate + _HALF) - self.end)


def _like(frame: AudioFrame, samples: NDArray[Any]) -> AudioFrame:
    made = AudioFrame.from_ndarray(samples, format=frame.format.name, layout=frame.layout.name)
    made.sample_rate = frame.sample_rate
    return made


def _silent(frame: AudioFrame, count: int) -> AudioFrame:
    channels = frame.layout.nb_channels
    shape = (channels, count) if frame.format.is_planar else (1, channels * count)
    # Silence is 0 in every sample format except unsigned bytes, whose middle is 128.
    level = 128 if frame.format.name.startswith("u8") else 0
    return _like(frame, np.full(shape, level, dtype=frame.to_ndarray().dtype))


def _cut(frame: AudioFrame, skip: int, count: int) -> AudioFrame:
    samples = frame.to_ndarray()
    step = 1 if frame.format.is_planar else frame.layout.nb_channels
    return _like(frame, np.ascontiguousarray(samples[:, skip * step : (skip + count) * step]))

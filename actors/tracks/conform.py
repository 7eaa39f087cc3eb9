"""Converts a source's frames to continuous audio with one sample format, layout and rate."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import floor

import numpy as np
from av.audio.fifo import AudioFifo
from av.audio.frame import AudioFrame
from av.audio.resampler import AudioResampler

from ...errors import EncoderFailed
from .downmix import Mixer
from .loudness import Gain
from .speakers import is_same_room, speakers

_HALF = Fraction(1, 2)
Shape = tuple[str, str, int]
"""Sample format, layout and rate."""


def shape_of(frame: AudioFrame) -> Shape:
    """Return the properties that all frames of one resampler, encoder or buffer must share."""
    return frame.format.name, frame.layout.name, frame.sample_rate


class Conformer:
    """Converts frames of any shape (format, layout and rate) to one shape; used by one thread.

    When the input's shape changes, a new mixer and resampler take over, and the output is padded or cut to the input's
    duration. Each output frame is checked, because PyAV checks no frame after one that needed no conversion, and PyAV's
    ``AudioFifo`` drops channels or reads past them if layouts differ. ``order`` is the order of the output's speakers,
    None for the layout's own order; ``gain_db`` changes the volume.
    """

    def __init__(
        self,
        sample_format: str,
        layout: str,
        rate: int,
        *,
        order: Sequence[str] | None = None,
        gain_db: Fraction = Fraction(0),
    ) -> None:
        self.shape: Shape = (sample_format, layout, rate)
        self.formats: list[tuple[str, int]] = []  # layouts and rates of the input, without repeats, in order
        self._order = tuple(order or speakers(layout))
        self._gain = Gain(gain_db) if gain_db else None
        self._taken: Shape | None = None
        self._mixer: Mixer | None = None
        self._resampler: AudioResampler | None = None
        self._taken_s = Fraction(0)
        self._given = 0

    def take(self, frame: AudioFrame) -> Iterator[AudioFrame]:
        """Take the next frame, and yield the output frames that are ready, without times."""
        if (shape := shape_of(frame)) != self._taken:
            yield from self._settled()
            self._follow(shape)
        self._taken_s += Fraction(frame.samples, frame.sample_rate)
        frame.pts = None
        mixed = frame if self._mixer is None else self._mixer.mix(frame)
        yield from self._resampled(mixed if self._gain is None else self._gain.apply(mixed))

    def finish(self) -> Iterator[AudioFrame]:
        """Yield the frames that the resampler still holds."""
        yield from self._settled() if len(self.formats) > 1 else self._resampled(None)

    def _follow(self, shape: Shape) -> None:
        _, layout, rate = self._taken = shape
        if (layout, rate) not in self.formats:
            self.formats.append((layout, rate))
        sample_format, target, target_rate = self.shape
        same = is_same_room(layout, target, self._order)
        self._mixer = None if same else Mixer(target, self._order)
        self._resampler = AudioResampler(sample_format, target, target_rate)

    def _settled(self) -> Iterator[AudioFrame]:
        """Yield the remaining samples of one shape; afterwards the output is as long as the input so far."""
        missing = floor(self._taken_s * self.shape[2] + _HALF) - self._given
        for ready in [] if self._resampler is None else self._resampler.resample(None):
            if ready.samples and missing > 0:
                kept = _beginning(ready, min(ready.samples, missing))
                missing -= kept.samples
                yield self._checked(kept)
        if missing > 0:
            yield self._checked(_silence(self.shape, missing))

    def _resampled(self, frame: AudioFrame | None) -> Iterator[AudioFrame]:
        for ready in [] if self._resampler is None else self._resampler.resample(frame):
            yield self._checked(ready)

    def _checked(self, frame: AudioFrame) -> AudioFrame:
        if shape_of(frame) != self.shape:
            message = f"the sound is {shape_of(frame)} instead of {self.shape}"
            raise EncoderFailed(
                message, "Leave the track out with --audio-track, and please report this with the input."
            )
        self._given += frame.samples
        frame.pts, frame.time_base = None, Fraction(1, frame.sample_rate)
        return frame


def _beginning(frame: AudioFrame, samples: int) -> AudioFrame:
    frame.pts = None
    buffer = AudioFifo()
    buffer.write(frame)
    found: AudioFrame = buffer.read(samples)  # type: ignore[assignment]  # None only if samples are missing
    return found


def _silence(shape: Shape, samples: int) -> AudioFrame:
    sample_format, layout, rate = shape
    zeros = np.zeros((1, samples * len(speakers(layout))))
    frame = AudioFrame.from_ndarray(zeros, format="dbl", layout=layout)
    frame.sample_rate = rate
    return AudioResampler(sample_format, layout, rate).resample(frame)[0]

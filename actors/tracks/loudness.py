"""Measures a track's loudness by EBU R 128 (ITU-R BS.1770), and finds the one gain that reaches a target."""

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import isfinite
from typing import Final

import av.error
import av.filter
import numpy as np
from av.audio.frame import AudioFrame
from av.audio.resampler import AudioResampler

from ...errors import EncoderFailed

TRUE_PEAK_DB: Final = Fraction(-1)
"""The highest true peak after the gain, in dBTP (EBU R 128, recommendation h)."""
_SILENCE_LUFS: Final = Fraction(-70)
"""BS.1770's absolute gate: the loudness of quieter sound is undefined."""
_PEAK_STEP: Final = 0.0005
"""Half of a unit in the last digit of the peak that FFmpeg's filter reports."""
_SAMPLES: Final = "dbl"


@dataclass(frozen=True, slots=True)
class Loudness:
    """A track's measured loudness, and its gain in dB."""

    integrated_lufs: Fraction | None  # None if the track is too quiet to measure
    true_peak_db: Fraction | None  # the true peak in dBTP, None for silence
    gain_db: Fraction
    limited: bool = False  # whether the true peak limits the gain: more gain would exceed ``TRUE_PEAK_DB``


class LoudnessMeter:
    """Measures a track's frames in order, with FFmpeg's ``ebur128``, in ``layout`` and at ``rate``.

    Used by one thread.
    """

    def __init__(self, layout: str, rate: int) -> None:
        self._resampler = AudioResampler(_SAMPLES, layout, rate)
        self._time_base = Fraction(1, rate)
        self._pushed = 0
        self._found: dict[str, str] = {}
        self._graph = av.filter.Graph()
        self._graph.threads = 1
        source = f"sample_rate={rate}:sample_fmt={_SAMPLES}:channel_layout={layout}:time_base={self._time_base}"
        self._graph.link_nodes(
            self._graph.add("abuffer", source),
            self._graph.add("ebur128", "metadata=1:peak=true:framelog=quiet"),
            self._graph.add("abuffersink"),
        ).configure()

    def push(self, frame: AudioFrame) -> None:
        """Measure the next samples; ``EncoderFailed`` if FFmpeg cannot measure them."""
        self._measure(self._resampler.resample(frame))

    def finish(self, target_lufs: Fraction) -> Loudness:
        """Return the loudness of all samples, and the gain to ``target_lufs``."""
        self._measure(self._resampler.resample(None))
        lufs = _decibels(self._found.get("lavfi.r128.I", ""))
        peak = float(self._found.get("lavfi.r128.true_peak", "0"))
        return settled(target_lufs, lufs, peak)

    def _measure(self, frames: list[AudioFrame]) -> None:
        try:
            for frame in frames:
                frame.pts, frame.time_base = self._pushed, self._time_base
                self._pushed += frame.samples
                self._graph.push(frame)
                self._pull()
        except (av.error.FFmpegError, ValueError) as error:
            message = f"the loudness cannot be measured: {error}"
            raise EncoderFailed(message, "Leave out --loudness, and please report this with the input.") from error

    def _pull(self) -> None:
        while True:
            try:
                self._found = dict(self._graph.pull().metadata)
            except (av.error.BlockingIOError, av.error.EOFError):
                return


def _decibels(text: str) -> Fraction | None:
    value = Decimal(text or "nan")
    return Fraction(value) if isfinite(value) else None


def settled(target_lufs: Fraction, measured_lufs: Fraction | None, true_peak: float) -> Loudness:
    """Return the gain from a measurement; ``true_peak`` is linear, and 1 means full scale."""
    peak_db = None if true_peak <= 0 else _in_db(true_peak)
    if measured_lufs is None or measured_lufs <= _SILENCE_LUFS:
        return Loudness(None, peak_db, Fraction(0))
    wanted = target_lufs - measured_lufs
    most = wanted if peak_db is None else TRUE_PEAK_DB - _in_db(true_peak + _PEAK_STEP)
    return Loudness(measured_lufs, peak_db, min(wanted, most), limited=most < wanted)


def _in_db(linear: float) -> Fraction:
    return Fraction((20 * Decimal(linear).log10()).quantize(Decimal("0.001")))


def factor(gain_db: Fraction) -> float:
    """Return the factor by which a gain multiplies samples, the same on every machine."""
    return float(Decimal(10) ** (Decimal(gain_db.numerator) / Decimal(gain_db.denominator) / 20))


class Gain:
    """Multiplies samples by one factor, in frames of any format; used by one thread."""

    def __init__(self, gain_db: Fraction) -> None:
        self._factor = factor(gain_db)
        self._resampler: AudioResampler | None = None
        self._shape: tuple[str, str, int] | None = None

    def apply(self, frame: AudioFrame) -> AudioFrame:
        """Return a frame of doubles, without a time."""
        shape = (frame.format.name, frame.layout.name, frame.sample_rate)
        if shape != self._shape or self._resampler is None:
            self._resampler, self._shape = AudioResampler(_SAMPLES, frame.layout, frame.sample_rate), shape
        samples = np.concatenate([ready.to_ndarray() for ready in self._resampler.resample(frame)], axis=1)
        louder = AudioFrame.from_ndarray(samples * self._factor, format=_SAMPLES, layout=frame.layout.name)
        louder.sample_rate = frame.sample_rate
        return louder

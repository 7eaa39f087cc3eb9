"""Mixing a track's channels to stereo or mono, by the coefficients of ITU-R BS.775-3, annex 4.

That has five channels; docs/containers.md says what becomes of others. Each sample is a sum in one fixed order, in
doubles, so it is the same on every processor.
"""

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Final

import numpy as np
from av.audio.frame import AudioFrame
from av.audio.layout import AudioLayout
from av.audio.resampler import AudioResampler
from numpy.typing import NDArray

from ...errors import Unsupported

_HALF_POWER: Final = sqrt(0.5)
_LEFT, _RIGHT, _CENTRE = (1.0, 0.0), (0.0, 1.0), (_HALF_POWER, _HALF_POWER)
_SURROUND_LEFT, _SURROUND_RIGHT = (_HALF_POWER, 0.0), (0.0, _HALF_POWER)
_SHARES: Final[Mapping[str, tuple[float, float]]] = {
    **dict.fromkeys(("FL", "FLC", "DL", "WL"), _LEFT),
    **dict.fromkeys(("FR", "FRC", "DR", "WR"), _RIGHT),
    "FC": _CENTRE,
    **dict.fromkeys(("BL", "SL", "TFL", "TBL", "TSL"), _SURROUND_LEFT),
    **dict.fromkeys(("BR", "SR", "TFR", "TBR", "TSR"), _SURROUND_RIGHT),
    # One channel behind is two at half of its power each.
    **dict.fromkeys(("BC", "TFC", "TBC", "TC"), (0.5, 0.5)),
    **dict.fromkeys(("LFE", "LFE2"), (0.0, 0.0)),
}
"""The part of each channel, by FFmpeg's name, in left and right, before all are scaled."""
_NAMES: Final = {1: "mono", 2: "stereo"}


def mix_matrix(names: Sequence[str], channels: int) -> tuple[tuple[float, ...], ...]:
    """Return for each of 1 or 2 output ``channels`` what it takes of each input channel.

    The largest sum of one output's coefficients is 1, so that nothing that fitted is clipped.

    Raises:
        Unsupported: a channel has no place in the room, or there is no sound but low-frequency effects.
    """
    unknown = [name for name in names if name not in _SHARES]
    rows: list[list[float]] = [[_SHARES[name][side] for name in names if name in _SHARES] for side in (0, 1)]
    if channels == 1:
        rows = [[_HALF_POWER * (left + right) for left, right in zip(*rows, strict=True)]]
    largest = max(sum(row) for row in rows)
    if unknown or not largest:
        message = f"the channels {', '.join(unknown or names)} cannot be mixed to {_NAMES[channels]}"
        raise Unsupported(message, "Use --audio-channels keep, or leave the track out with --audio-track.")
    return tuple(tuple(share / largest for share in row) for row in rows)


class Mixer:
    """Mixes frames of any format and layout to 1 or 2 ``channels``; used by one thread.

    A layout that names no speakers is taken for ``usual``, FFmpeg's layout for that number of channels.
    """

    def __init__(self, channels: int, usual: Mapping[int, str]) -> None:
        self.layout = _NAMES[channels]
        self._channels = channels
        self._usual = usual
        self._shape: tuple[str, str, int] | None = None
        self._packed: AudioResampler | None = None
        self._matrix: tuple[tuple[float, ...], ...] = ()

    def mix(self, frame: AudioFrame) -> AudioFrame:
        """Return a frame of doubles in the wanted layout, without a time; ``Unsupported`` as ``mix_matrix``."""
        shape = (frame.format.name, frame.layout.name, frame.sample_rate)
        if shape != self._shape or self._packed is None:
            self._matrix = mix_matrix(self._speakers(frame.layout), self._channels)
            self._packed = AudioResampler("dbl", frame.layout, frame.sample_rate)
            self._shape = shape
        samples = np.concatenate([self._samples(ready) for ready in self._packed.resample(frame)])
        mixed = AudioFrame.from_ndarray(self._mixed(samples).reshape(1, -1), format="dbl", layout=self.layout)
        mixed.sample_rate = frame.sample_rate
        return mixed

    def _speakers(self, layout: AudioLayout) -> list[str]:
        names = [channel.name for channel in layout.channels]
        usual = self._usual.get(layout.nb_channels)
        if usual is not None and layout.name.endswith(" channels"):
            names = [channel.name for channel in AudioLayout(usual).channels]
        return names

    @staticmethod
    def _samples(frame: AudioFrame) -> NDArray[np.float64]:
        return np.asarray(frame.to_ndarray(), dtype=np.float64).reshape(-1, frame.layout.nb_channels)

    def _mixed(self, samples: NDArray[np.float64]) -> NDArray[np.float64]:
        mixed = np.zeros((len(samples), self._channels))
        for side, row in enumerate(self._matrix):
            for channel, share in enumerate(row):
                if share:
                    mixed[:, side] += share * samples[:, channel]
        return mixed

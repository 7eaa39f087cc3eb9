"""Mixes a track's speakers to those of another layout; stereo and mono by ITU-R BS.775-3, annex 4.

docs/containers.md has the rules for other channels. Sums are in doubles and in a fixed order, so every processor gives
the same samples.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from math import sqrt
from typing import Final

import numpy as np
from av.audio.frame import AudioFrame
from av.audio.resampler import AudioResampler
from numpy.typing import NDArray

from ...errors import Unsupported
from .speakers import speakers

_HALF_POWER: Final = sqrt(0.5)
_LEFT, _RIGHT, _CENTRE = (1.0, 0.0), (0.0, 1.0), (_HALF_POWER, _HALF_POWER)
_SURROUND_LEFT, _SURROUND_RIGHT = (_HALF_POWER, 0.0), (0.0, _HALF_POWER)
_SHARES: Final[Mapping[str, tuple[float, float]]] = {
    **dict.fromkeys(("FL", "FLC", "DL", "WL", "BIL"), _LEFT),
    **dict.fromkeys(("FR", "FRC", "DR", "WR", "BIR"), _RIGHT),
    "FC": _CENTRE,
    **dict.fromkeys(("BL", "SL", "TFL", "TBL", "TSL", "BFL", "SDL", "SSL", "TTL"), _SURROUND_LEFT),
    **dict.fromkeys(("BR", "SR", "TFR", "TBR", "TSR", "BFR", "SDR", "SSR", "TTR"), _SURROUND_RIGHT),
    # A surround channel in the middle counts as a left and a right one, each with half of its power.
    **dict.fromkeys(("BC", "TFC", "TBC", "TC", "BFC"), (0.5, 0.5)),
    **dict.fromkeys(("LFE", "LFE2"), (0.0, 0.0)),
}
"""Each speaker's shares in front left and front right before scaling, keyed by FFmpeg's name of the speaker."""
_SAME_PLACE: Final[Mapping[str, str]] = {
    "SL": "BL",
    "SR": "BR",
    "BL": "SL",
    "BR": "SR",
    "LFE2": "LFE",
    "DL": "FL",
    "DR": "FR",
    "BIL": "FL",
    "BIR": "FR",
}
"""The replacement of a speaker that the layout lacks: 5.1 has surrounds at the side or at the back."""
_NEAR: Final[Mapping[str, tuple[Mapping[str, float], ...]]] = {
    "BC": ({"BL": _HALF_POWER, "BR": _HALF_POWER}, {"SL": _HALF_POWER, "SR": _HALF_POWER}),
    "TBC": ({"BL": 0.5, "BR": 0.5}, {"SL": 0.5, "SR": 0.5}),
    **dict.fromkeys(("TBL", "TSL", "SDL", "SSL", "TTL"), ({"BL": _HALF_POWER}, {"SL": _HALF_POWER})),
    **dict.fromkeys(("TBR", "TSR", "SDR", "SSR", "TTR"), ({"BR": _HALF_POWER}, {"SR": _HALF_POWER})),
    "BFC": ({"FC": _HALF_POWER},),
}
"""The speakers that replace a speaker which the layout lacks, best first; front speakers are the last resort."""
Matrix = tuple[tuple[float, ...], ...]


def mix_matrix(names: Sequence[str], target: Sequence[str]) -> Matrix:
    """Return for each speaker of ``target`` the coefficients of the input channels.

    The coefficients of one output sum to 1 at most, so mixing never clips. ``Unsupported`` if a channel's position is
    unknown, or all channels are low-frequency effects.
    """
    unknown = [name for name in names if name not in _SHARES]
    is_mono = tuple(target) == ("FC",)
    columns = [_places(name, names, ("FL", "FR") if is_mono else target) for name in names if name in _SHARES]
    rows = [[column.get(speaker, 0.0) for column in columns] for speaker in (("FL", "FR") if is_mono else target)]
    if is_mono:
        rows = [[_HALF_POWER * (left + right) for left, right in zip(*rows, strict=True)]]
    largest = max(sum(row) for row in rows)
    if unknown or not largest:
        where = {("FC",): "mono", ("FL", "FR"): "stereo"}.get(tuple(target), "+".join(target))
        message = f"the channels {', '.join(unknown or names)} cannot be mixed to {where}"
        raise Unsupported(message, "Use --audio copy, or leave the track out with --audio-track.")
    return tuple(tuple(share / largest for share in row) for row in rows)


def _places(name: str, names: Sequence[str], target: Sequence[str]) -> dict[str, float]:
    """Return the shares of one input channel in the speakers of ``target``."""
    if name in target:
        return {name: 1.0}
    same = _SAME_PLACE.get(name)
    if same in target and same is not None:
        return {same: _HALF_POWER if same in names else 1.0}
    for near in _NEAR.get(name, ()):
        if all(speaker in target for speaker in near):
            return dict(near)
    return {side: share for side, share in zip(("FL", "FR"), _SHARES[name], strict=True) if share and side in target}


def mixed_speakers(names: Sequence[str], target: Sequence[str]) -> tuple[str, ...]:
    """Return the speakers of ``names`` that ``target`` lacks, which are mixed into others or left out.

    A single channel counts as kept in every layout of several speakers, unless it has only low-frequency effects.
    """
    if len(names) == 1 and len(target) > 1 and any(_SHARES.get(names[0], ())):
        return ()
    places = [_places(name, names, target) if name in _SHARES else {} for name in names]
    owners = Counter(speaker for place in places for speaker, share in place.items() if share == 1)
    return tuple(
        name
        for name, place in zip(names, places, strict=True)
        if 1 not in place.values() or (owners[next(iter(place))] > 1 and not (name in place and names.count(name) == 1))
    )


def encoded_layout(layouts: Collection[str], stated: Collection[str]) -> str:
    """Return the ``stated`` layout that mixes the fewest speakers; among equals, the layout that drops the fewest."""

    def cost(target: str) -> tuple[int, int, int]:
        wanted = speakers(target)
        mixed = [(name, each) for each in map(speakers, set(layouts)) for name in mixed_speakers(each, wanted)]
        left_out = sum(not _places(name, each, wanted) for name, each in mixed if name in _SHARES)
        return len(mixed), left_out, len(wanted)

    return min(stated, key=cost)


class Mixer:
    """Mixes frames to the speakers of one ``layout``, in ``order`` (None: the layout's order). Used by one thread."""

    def __init__(self, layout: str, order: Sequence[str] | None = None) -> None:
        self.layout = layout
        self._target = tuple(order or speakers(layout))
        self._shape: tuple[str, str, int] | None = None
        self._packed: AudioResampler | None = None
        self._matrix: Matrix = ()

    def mix(self, frame: AudioFrame) -> AudioFrame:
        """Return a frame of doubles in the wanted layout, without a time; ``Unsupported`` as for ``mix_matrix``."""
        shape = (frame.format.name, frame.layout.name, frame.sample_rate)
        if shape != self._shape or self._packed is None:
            self._matrix = mix_matrix(speakers(frame.layout.name), self._target)
            self._packed = AudioResampler("dbl", frame.layout, frame.sample_rate)
            self._shape = shape
        samples = np.concatenate([self._samples(ready) for ready in self._packed.resample(frame)])
        mixed = AudioFrame.from_ndarray(self._mixed(samples).reshape(1, -1), format="dbl", layout=self.layout)
        mixed.sample_rate = frame.sample_rate
        return mixed

    @staticmethod
    def _samples(frame: AudioFrame) -> NDArray[np.float64]:
        return np.asarray(frame.to_ndarray(), dtype=np.float64).reshape(-1, frame.layout.nb_channels)

    def _mixed(self, samples: NDArray[np.float64]) -> NDArray[np.float64]:
        mixed = np.zeros((len(samples), len(self._target)))
        for side, row in enumerate(self._matrix):
            for channel, share in enumerate(row):
                if share:
                    mixed[:, side] += share * samples[:, channel]
        return mixed

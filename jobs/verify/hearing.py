"""Decodes a sound track; keeps each speaker's sound in a few windows, the track's end, and how many packets fail."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import Final, TypeAlias

import numpy as np
from av.audio.frame import AudioFrame
from av.audio.layout import AudioLayout
from numpy.typing import NDArray

from .sound_tracks import SoundTrack, decoded_sound, frame_start_s

_Sound: TypeAlias = NDArray[np.float32]

WINDOWS: Final = 8
MOST_GAPS: Final = 8
WINDOW_S: Final = Fraction(1)
GAP_S: Final = Fraction(1, 50)  # shorter gaps come from rounding or the codec
GAP_EDGE_S: Final = Fraction(1, 20)  # how far an encoder spreads sound into a gap
ROUNDED_S: Final = Fraction(1, 1000)  # how far ticks of a millisecond may move a frame
GRID_HZ: Final = 16_000
_WINDOW_SAMPLES: Final = int(WINDOW_S * GRID_HZ)
LFE: Final = "LFE"
_LFE_HZ: Final = 120  # codecs drop higher frequencies
_MOST_USUAL: Final = 8  # the most channels for which there are standard layouts
_UNNAMED: Final = frozenset({"NONE", "UNK"})
_SIDES: Final = {"SL": "BL", "SR": "BR"}


@dataclass(slots=True)
class Heard:
    """A decoded track, with windows sampled at ``GRID_HZ``."""

    windows: list[dict[str, _Sound]]  # each window's sound by speaker
    end_s: Fraction = Fraction(0)
    layouts: list[tuple[str, ...]] = field(default_factory=list)  # distinct layouts, as names of speakers
    rates_hz: list[int] = field(default_factory=list)  # distinct sample rates
    failed: int = 0  # packets that do not decode

    @property
    def speakers(self) -> frozenset[str]:
        """All speakers of the track, by the names in ``aliases``."""
        return frozenset(aliases(self.layouts).values())

    def mono(self, window: int) -> _Sound:
        """Return the mean of all speakers in a window."""
        sounds = list(self.windows[window].values())
        return np.mean(sounds, axis=0, dtype=np.float32) if sounds else np.zeros(_WINDOW_SAMPLES, np.float32)

    def sounds(self, window: int) -> dict[str, _Sound]:
        """Return each speaker's sound in a window, by the names in ``aliases``."""
        names = aliases(self.layouts)
        return {names[name]: sound for name, sound in self.windows[window].items()}

    def levels(self, window: int) -> dict[str, float]:
        """Return the RMS of each speaker in a window; for LFE only low frequencies count."""
        return {name: _level(name, sound) for name, sound in self.sounds(window).items()}


def aliases(layouts: Sequence[Sequence[str]]) -> dict[str, str]:
    """Map each speaker to one name: side speakers count as back speakers unless the track has both."""
    names = {name for layout in layouts for name in layout}
    only_sides = not names & set(_SIDES.values())
    return {name: _SIDES.get(name, name) if only_sides else name for name in names}


def hear(track: SoundTrack, starts: Sequence[Fraction], end_s: Fraction | None = None) -> Heard:
    """Decode a track, with a window of ``WINDOW_S`` at each of ``starts``, in seconds after the first picture.

    Frames that start at or after ``end_s``, the end of a part, are left out of windows.
    """
    heard = Heard([{} for _ in starts])
    ends = [start + WINDOW_S for start in starts]

    def failed(_: object) -> None:
        heard.failed += 1

    for frame in decoded_sound(track.url, track.number, failed):
        begin_s = frame_start_s(frame) - track.zero_s
        if abs(begin_s - heard.end_s) <= ROUNDED_S + Fraction(frame.time_base or 0):
            # Frame times are rounded to coarse ticks; sound has no gaps, so the frame begins where the last one ended.
            begin_s = heard.end_s
        heard.end_s = begin_s + Fraction(frame.samples, frame.sample_rate)
        names = _names(frame)
        if names not in heard.layouts:
            heard.layouts.append(names)
        if frame.sample_rate not in heard.rates_hz:
            heard.rates_hz.append(frame.sample_rate)
        is_left_out = end_s is not None and begin_s >= end_s
        touched = [] if is_left_out else [n for n, end in enumerate(ends) if begin_s < end and heard.end_s > starts[n]]
        channels = _channels(frame) if touched else ()
        for n in touched:
            for name, samples in zip(names, channels, strict=False):
                sound = heard.windows[n].setdefault(name, np.zeros(_WINDOW_SAMPLES, np.float32))
                _lay(sound, float(begin_s - starts[n]), samples, frame.sample_rate)
    return heard


def _names(frame: AudioFrame) -> tuple[str, ...]:
    """Return the names of a frame's speakers: those stated, otherwise those of the standard layout, or numbers."""
    names = tuple(channel.name for channel in frame.layout.channels)
    if len(set(names)) == len(names) and not _UNNAMED & set(names):
        return names
    count = frame.layout.nb_channels
    usual = count <= _MOST_USUAL
    return tuple(c.name for c in AudioLayout(f"{count}c").channels) if usual else tuple(f"#{n}" for n in range(count))


def _channels(frame: AudioFrame) -> _Sound:
    samples = frame.to_ndarray()
    channels = samples if frame.format.is_planar else samples.reshape(-1, frame.layout.nb_channels).T
    found = channels.astype(np.float32)
    if samples.dtype.kind != "f":
        full = np.float32(2 ** (8 * samples.dtype.itemsize - 1))
        # 8-bit samples are unsigned, with silence in the middle.
        found = (found - full) / full if samples.dtype.kind == "u" else found / full
    return found


def _lay(window: _Sound, offset_s: float, samples: _Sound, rate_hz: int) -> None:
    """Resample ``samples``, which start ``offset_s`` after the start of the window, into the window."""
    first = max(0, ceil(offset_s * GRID_HZ))
    last = min(len(window), ceil((offset_s + len(samples) / rate_hz) * GRID_HZ))
    places = (np.arange(first, last) / GRID_HZ - offset_s) * rate_hz
    window[first:last] = np.interp(places, np.arange(len(samples)), samples)


def _level(name: str, sound: _Sound) -> float:
    if name != LFE:
        return float(np.sqrt(np.mean(sound**2)))
    low = np.fft.rfft(sound)[: int(_LFE_HZ * WINDOW_S) + 1]
    return float(np.sqrt(2 * np.sum(np.abs(low) ** 2)) / len(sound))


def gaps_of(track: SoundTrack) -> list[tuple[Fraction, Fraction]]:
    """Return the start and end of gaps between packets, the longest first."""
    gaps = []
    end_s: Fraction | None = None
    for time_s, lasts_s in zip(track.heard_s, track.lasts_s, strict=True):
        if time_s is None:
            continue
        if end_s is not None and time_s - end_s > GAP_S + 2 * track.tick_s:
            gaps.append((end_s, time_s))
        end_s = time_s + lasts_s if lasts_s else None
    return sorted(gaps, key=lambda gap: gap[0] - gap[1])[:MOST_GAPS]


def window_starts(track: SoundTrack, gaps: Sequence[tuple[Fraction, Fraction]]) -> list[Fraction]:
    """Return the starts of the windows: some spread over the track, and one after each gap."""
    known = [time for time in track.times_s if time is not None]
    if not known:
        return []
    first, last = max(known[0], Fraction(0)), known[-1]
    step = max(last - first - WINDOW_S, Fraction(0)) / max(WINDOWS - 1, 1)
    return sorted({first + n * step for n in range(WINDOWS)} | {end for _, end in gaps if end >= 0})


def speakers_that_differ(
    was: Mapping[str, float], now: Mapping[str, float], *, gain: float, least: float, times: float
) -> list[str]:
    """Return the speakers whose level differs from ``gain`` times the old level by more than a factor of ``times``.

    Levels below ``least`` are ignored. Mono may move from the centre to left and right.
    """
    if set(was) == {"FC"} and {"FL", "FR"} <= set(now) and now.get("FC", 0.0) < least:
        was = {"FL": was["FC"], "FR": was["FC"]}
    found = []
    for name in sorted(set(was) | set(now)):
        before, after = was.get(name, 0.0) * gain, now.get(name, 0.0)
        if max(before, after) > least and not before / times <= after <= before * times:
            found.append(name)
    return found

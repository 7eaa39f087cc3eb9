"""Audio: copied tracks bit for bit and packet for packet in time, encoded ones by what is heard and when."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor

import numpy as np
from av.audio.frame import AudioFrame
from numpy.typing import NDArray

from ...actors.media.timeline import RESET_S
from .loudness import check_loudness
from .sound_tracks import SoundTrack, decoded_sound, frame_start_s, read_tracks
from .streams import Alignment
from .verdict import Check, check, not_applicable

OFFSET_S = Fraction(1, 1000)
"""How far sound may move against the pictures."""
WINDOWS = 8
WINDOW_S = Fraction(1)
LAG_S = 0.05
"""How far apart two encodings of one sound are looked for."""
LIKENESS = 0.4
"""The least correlation of two encodings of one sound."""
_AS_ALIKE = 0.99
"""A tone is alike at every period: of lags that are nearly as alike as the best, the shortest counts."""
_SILENCE = 1e-3
_HALF = Fraction(1, 2)
_GRID_HZ = 16_000
_AAC_FRAME_SAMPLES = 1024


def check_audio(source: str, output: str, alignment: Alignment) -> list[Check]:
    """Check every audio track that was to be carried.

    Raises:
        InputError: one of the files cannot be read.
    """
    wanted = read_tracks(source, alignment.source_zero_s, alignment.tracks)
    found = read_tracks(output, alignment.output_zero_s, None)
    start = _check_start(found, alignment)
    if not alignment.output_holds_tracks:
        return [start, not_applicable("tracks.audio", "the container holds one video track")] if wanted else [start]
    checks = [start, check("tracks.audio", len(wanted), len(found))]
    kept = [(number, track) for number, track in enumerate(wanted) if track.index not in alignment.dropped]
    for (number, left), right in zip(kept, found, strict=False):
        name = f"audio.{number}"
        if alignment.part_s is not None and not right.sums:
            checks.append(_check_silent(name, left, alignment.part_s))
            continue
        # An encoder never gives the same bytes: where most packets are the source's, the track is a copy.
        shared = len(set(left.sums) & set(right.sums)) > len(set(right.sums)) // 2
        may_be_copy = left.codec == right.codec and left.index not in alignment.encoded
        if may_be_copy and (left.digest == right.digest or alignment.trimmed or shared):
            checks += _check_copied(name, left, right, alignment)
        else:
            checks += _check_encoded(name, left, right, alignment)
            if left.index in alignment.loudness:
                checks.append(check_loudness(name, right, alignment.loudness[left.index]))
        checks.append(_check_offset(name, left, right, alignment))
    return checks


def _check_start(found: Sequence[SoundTrack], alignment: Alignment) -> Check:
    """Check that the output starts at 0."""
    if not (alignment.output_is_isobmff or alignment.output_is_matroska):
        return not_applicable("stream.start", "the container starts where its format lets it")
    firsts = [(track.first_sample_s, next(iter(track.times_s), None)) for track in found]
    start = begin_s(alignment.output_zero_s, firsts, hides_early=alignment.output_is_isobmff)
    return check("stream.start", "0 s", f"{float(start):.6f} s", passed=abs(start) <= OFFSET_S)


def begin_s(
    frame_s: Fraction, sounds: Sequence[tuple[Fraction | None, Fraction | None]], *, hides_early: bool
) -> Fraction:
    """Return when a file begins: with its first frame or its first sample, or with a packet that decodes to none.

    Args:
        frame_s: when its first frame is shown.
        sounds: of each track its first sample and its first packet, after the first frame; a packet before 0 is hidden.
        hides_early: whether samples before 0 are hidden too, as by edit lists.
    """
    samples = [frame_s + sample for sample, _ in sounds if sample is not None]
    samples = [max(sample, Fraction(0)) for sample in samples] if hides_early else samples
    packets = [frame_s + packet for _, packet in sounds if packet is not None]
    return min([frame_s, *samples, *(packet for packet in packets if packet >= 0)])


def _check_silent(name: str, left: SoundTrack, part_s: Fraction) -> Check:
    """Check that an output's track without packets is so because the source has none in the part asked for."""
    lost = sum(time is not None and 0 <= time < part_s for time in left.times_s)
    return check(f"{name}.payload", "0 packets in the part asked for", f"{lost} lost", passed=not lost)


def _check_copied(name: str, left: SoundTrack, right: SoundTrack, alignment: Alignment) -> list[Check]:
    """Hold the packets of a copied track against the source's: the same bytes, at the same times."""
    matched = _matched_times(left, right, alignment)
    same = matched is not None
    pairs = enumerate(zip(left.sums, right.sums, strict=False))
    differs = next((n for n, (a, b) in pairs if a != b), min(len(left.sums), len(right.sums)))
    payload = check(
        f"{name}.payload",
        f"{left.bytes_total} bytes in {len(left.sums)} packets",
        f"{right.bytes_total} bytes in {len(right.sums)} packets"
        + ("" if same else f", differing from packet {differs} on"),
        passed=same,
        detail="copied bit for bit" if same else "",
    )
    if left.codec.startswith("pcm_") or matched is None:
        return [payload]
    moved = [abs(a - b) for a, b in matched if a is not None and b is not None]
    said = f"the most {float(max(moved, default=Fraction(0)) * 1000):.3f} ms"
    # What the source's coarse ticks have rounded may lie half a tick elsewhere.
    allowed_s = OFFSET_S + (left.tick_s / 2 if left.tick_s * left.rate_hz > 1 else 0)
    return [payload, check(f"{name}.times", "within 1 ms", said, passed=all(step <= allowed_s for step in moved))]


def _matched_times(
    left: SoundTrack, right: SoundTrack, alignment: Alignment
) -> list[tuple[Fraction | None, Fraction | None]] | None:
    """Return when each packet of a copy is heard in the source and in the output; None if the bytes differ."""
    if left.digest == right.digest:
        # FFmpeg divides damaged sound of some codecs into other packets, by container.
        source_s = dict(zip(left.begins, left.heard_s, strict=True))
        found = zip(right.begins, right.heard_s, strict=True)
        return [(source_s[begin], time_s) for begin, time_s in found if begin in source_s]
    if alignment.part_s is None:
        return None
    first = find_run(left.sums, left.times_s, right.sums, next(iter(right.times_s), None))
    kept = find_kept(left.sums, left.times_s, right.sums, alignment.part_s) if first is None else None
    places: Sequence[int] = (kept or ()) if first is None else range(first, first + len(right.sums))
    return [(left.heard_s[a], b) for a, b in zip(places, right.heard_s, strict=True)] if places else None


def find_kept(
    whole: Sequence[int], times_s: Sequence[Fraction | None], part: Sequence[int], part_s: Fraction
) -> list[int] | None:
    """Return the places of ``part`` in a track whose clock steps back, None where it lacks one of [0, ``part_s``).

    Such a track leaves a part and comes back to it: packets outside it may be missing between others.
    """
    kept: list[int] = []
    for place, (value, time_s) in enumerate(zip(whole, times_s, strict=True)):
        if len(kept) < len(part) and value == part[len(kept)]:
            kept.append(place)
        elif time_s is None or 0 <= time_s < part_s:
            return None
    return kept if len(kept) == len(part) else None


def find_run(
    whole: Sequence[int], times_s: Sequence[Fraction | None], part: Sequence[int], begin_s: Fraction | None
) -> int | None:
    """Return where in ``whole`` the packets of ``part`` are, None where it has no such run.

    Silence repeats itself: of several such places, the one whose time is nearest to ``begin_s``, when the part begins.
    """
    starts = [place for place, value in enumerate(whole) if part and value == part[0]]
    if begin_s is not None:
        starts.sort(key=lambda place: abs((times_s[place] or 0) - begin_s))
    return next((place for place in starts if list(whole[place : place + len(part)]) == list(part)), None)


def _check_offset(name: str, left: SoundTrack, right: SoundTrack, alignment: Alignment) -> Check:
    """Check that the first sample is heard when it was, counted from the first frame."""
    name = f"{name}.offset"
    if left.first_sample_s is None or right.first_sample_s is None:
        return not_applicable(name, "no sample of the track decodes")
    if alignment.trimmed:
        return not_applicable(name, "a part was asked for: a packet that straddles its start is kept whole")
    moved = abs(left.first_sample_s - right.first_sample_s)
    if moved > OFFSET_S and alignment.output_is_ts and _is_priming(left, right, left.first_sample_s - moved):
        return not_applicable(name, "a transport stream cannot say which samples are priming")
    expected, found = (f"{float(track.first_sample_s or 0) * 1000:.3f} ms" for track in (left, right))
    return check(name, expected, found, passed=moved <= OFFSET_S, held="the first sample is heard when it was")


def _is_priming(left: SoundTrack, right: SoundTrack, first_sample_s: Fraction) -> bool:
    """Return whether what is heard before the source's first sample is what an encoder put there: a frame at most."""
    frame_s = Fraction(max(right.frame_samples, _AAC_FRAME_SAMPLES), right.rate_hz)
    encoded = (
        right.first_sample_s == first_sample_s and (left.first_sample_s or 0) - first_sample_s <= frame_s + OFFSET_S
    )
    return left.digest == right.digest or encoded


@dataclass(slots=True)
class _Heard:
    """What decoding a track gives: where it ends, and the sound in a few windows, mixed down, on one grid."""

    end_s: Fraction
    windows: list[NDArray[np.float32]]


def _check_encoded(name: str, left: SoundTrack, right: SoundTrack, alignment: Alignment) -> list[Check]:
    """Hold what is heard of an encoded track against what was heard of the source's."""
    starts = _window_starts(right if alignment.trimmed else left)
    was, now = _hear(left, starts), _hear(right, starts)
    frame_s = Fraction(
        max(left.frame_samples, right.frame_samples, _AAC_FRAME_SAMPLES), min(left.rate_hz, right.rate_hz)
    )
    ends = check(
        f"{name}.duration",
        f"ends at {float(was.end_s):.3f} s within {float(frame_s) * 1000:.0f} ms",
        f"{float(now.end_s):.3f} s",
        passed=abs(was.end_s - now.end_s) <= frame_s + OFFSET_S,
        detail=f"{left.codec} encoded as {right.codec}",
    )
    if alignment.trimmed:
        ends = not_applicable(f"{name}.duration", "a part was asked for")
    return [ends, *_check_sound(name, was, now)]


def _check_sound(name: str, was: _Heard, now: _Heard) -> list[Check]:
    # In the quiet windows an encoder's noise drowns the sound.
    loudness = [float(np.sqrt(np.mean(window**2))) for window in was.windows]
    least = max(_SILENCE, max(loudness, default=0.0) / 4)
    triples = zip(was.windows, now.windows, loudness, strict=True)
    found = [_lag(before, after) for before, after, loud in triples if loud >= least]
    if not found:
        return [not_applicable(f"{name}.sound", "nothing but silence in the windows listened to")]
    late = max((lag for lag, _ in found), key=abs)
    alike = min(likeness for _, likeness in found)
    return [
        check(
            f"{name}.sound",
            f"in {len(found)} windows: within 1 ms, correlation at least {LIKENESS}",
            f"{late * 1000:+.3f} ms, correlation {alike:.2f}",
            passed=abs(late) <= float(OFFSET_S) and alike >= LIKENESS,
        )
    ]


def _window_starts(track: SoundTrack) -> list[Fraction]:
    known = [time for time in track.times_s if time is not None]
    if not known:
        return []
    first, last = max(known[0], Fraction(0)), known[-1]
    step = max(last - first - WINDOW_S, Fraction(0)) / max(WINDOWS - 1, 1)
    return sorted({first + n * step for n in range(WINDOWS)})


def _hear(track: SoundTrack, starts: Sequence[Fraction]) -> _Heard:
    heard = _Heard(Fraction(0), [np.zeros(int(WINDOW_S * _GRID_HZ), np.float32) for _ in starts])
    for frame in decoded_sound(track.url, track.number):
        begin_s = frame_start_s(frame) - track.zero_s
        if abs(begin_s - heard.end_s) <= Fraction(frame.time_base or 0):
            begin_s = heard.end_s  # a container with coarse ticks rounds each frame's time, and not the sound's
        end_s = begin_s + Fraction(frame.samples, frame.sample_rate)
        late_s = heard.end_s - begin_s
        skip = floor(late_s * frame.sample_rate + _HALF) if 0 < late_s < RESET_S else 0
        if skip >= frame.samples:
            continue  # what overlaps sound ahead of it is not heard
        begin_s, heard.end_s = begin_s + Fraction(skip, frame.sample_rate), end_s
        touched = [n for n, start in enumerate(starts) if begin_s < start + WINDOW_S and end_s > start]
        if touched:
            mono = _mono(frame)[skip:]
            for n in touched:
                _lay(heard.windows[n], float(begin_s - starts[n]), mono, frame.sample_rate)
    return heard


def _mono(frame: AudioFrame) -> NDArray[np.float32]:
    samples = frame.to_ndarray()
    channels = (samples if frame.format.is_planar else samples.reshape(-1, frame.layout.nb_channels).T).astype(
        np.float32
    )
    if samples.dtype.kind != "f":
        full = np.float32(2 ** (8 * samples.dtype.itemsize - 1))
        # 8-bit samples are unsigned, with silence in the middle.
        channels = (channels - full) / full if samples.dtype.kind == "u" else channels / full
    mixed: NDArray[np.float32] = channels.mean(axis=0, dtype=np.float32)
    return mixed


def _lay(window: NDArray[np.float32], offset_s: float, mono: NDArray[np.float32], rate_hz: int) -> None:
    """Put the part of ``mono``, which begins ``offset_s`` after the window, onto the window's grid."""
    first = max(0, int(np.ceil(offset_s * _GRID_HZ)))
    last = min(len(window), int(np.ceil((offset_s + len(mono) / rate_hz) * _GRID_HZ)))
    places = (np.arange(first, last) / _GRID_HZ - offset_s) * rate_hz
    window[first:last] = np.interp(places, np.arange(len(mono)), mono)


def _lag(first: NDArray[np.float32], second: NDArray[np.float32]) -> tuple[float, float]:
    """Return by how many seconds ``second`` is late, and how alike the two are there (1: equal up to loudness)."""
    size = 2 * len(first)
    product = np.fft.rfft(second, size) * np.conj(np.fft.rfft(first, size))
    correlation = np.fft.irfft(product, size)
    reach = int(LAG_S * _GRID_HZ)
    around = np.concatenate([correlation[-reach:], correlation[: reach + 1]])
    alike = np.flatnonzero(around >= _AS_ALIKE * around.max())
    best = int(alike[np.argmin(np.abs(alike - reach))])
    energy = float(np.sqrt(np.sum(first.astype(np.float64) ** 2) * np.sum(second.astype(np.float64) ** 2)))
    return (best - reach) / _GRID_HZ, float(around[best]) / energy if energy else 0.0

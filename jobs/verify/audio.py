"""Checks audio: the packets of copies, and the sound, times and speakers of all tracks."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from .hearing import GAP_EDGE_S, GRID_HZ, LFE, WINDOW_S, Heard, gaps_of, hear, speakers_that_differ, window_starts
from .sound_tracks import SoundTrack, check_loudness, read_tracks
from .streams import Alignment
from .verdict import Check, check, not_applicable

OFFSET_S = Fraction(1, 1000)  # the largest shift of sound against pictures
LAG_S = 0.05  # the largest lag at which sounds are compared
LIKENESS = 0.4  # the minimum correlation of two encodings of the same sound
_PERIODIC = 0.9  # a correlation of at least this part of the best one counts as equal
_SILENCE = 1e-3  # RMS below which a window is silent
_QUIET_PART = 1 / 20  # speakers below this fraction of the loudest are not compared, because codecs spread noise
_LEVEL_TIMES = 2  # the largest allowed factor between a speaker's levels: 6 dB
_OPUS_HZ = 48_000
_ENOUGH_HZ = 44_100  # an output may have any rate from this one up
_AAC_FRAME_SAMPLES = 1024

# the RMS of each speaker, before and after, in each window
_Levels: TypeAlias = Sequence[tuple[dict[str, float], dict[str, float]]]


def check_audio(source: str, output: str, alignment: Alignment) -> list[Check]:
    """Check every audio track that the output should have."""
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
            lost = sum(time is not None and 0 <= time < alignment.part_s for time in left.times_s)
            none = "0 packets in the requested part"
            checks.append(check(f"{name}.payload", none, f"{lost} lost", passed=not lost))
            continue
        # Encoders never reproduce the source's bytes, so the track is a copy if most packets are equal.
        shared = len(set(left.sums) & set(right.sums)) > len(set(right.sums)) // 2
        may_be_copy = left.codec == right.codec and left.index not in alignment.encoded
        # If silence fills gaps in PCM, the output rightly has more bytes, so sounds are compared.
        may_be_part = (alignment.trimmed or shared) and not (left.bytes_a_second and gaps_of(left))
        if may_be_copy and (left.digest == right.digest or may_be_part):
            checks += _check_copied(name, left, right, alignment)
            checks += _check_heard(name, left, right, alignment, copied=True)
        else:
            checks += _check_heard(name, left, right, alignment, copied=False)
            if left.index in alignment.loudness:
                checks.append(check_loudness(name, right, alignment.loudness[left.index]))
        checks.append(_check_offset(name, left, right, alignment))
    return checks


def _check_start(found: Sequence[SoundTrack], alignment: Alignment) -> Check:
    if not (alignment.output_is_isobmff or alignment.output_is_matroska):
        return not_applicable("stream.start", "the container's format decides where the stream starts")
    firsts = [(track.first_sample_s, next(iter(track.times_s), None)) for track in found]
    start = begin_s(alignment.output_zero_s, firsts, hides_early=alignment.output_is_isobmff)
    return check("stream.start", "0 s", f"{float(start):.6f} s", passed=abs(start) <= OFFSET_S)


def begin_s(
    frame_s: Fraction, sounds: Sequence[tuple[Fraction | None, Fraction | None]], *, hides_early: bool
) -> Fraction:
    """Return when a file starts: at its first frame (``frame_s``), first sample, or first undecodable packet.

    ``sounds`` has the first sample and the first packet of each track, relative to the first frame. Packets before 0
    are hidden; with ``hides_early`` (edit lists) samples before 0 are hidden too.
    """
    samples = [frame_s + sample for sample, _ in sounds if sample is not None]
    samples = [max(sample, Fraction(0)) for sample in samples] if hides_early else samples
    packets = [frame_s + packet for _, packet in sounds if packet is not None]
    return min([frame_s, *samples, *(packet for packet in packets if packet >= 0)])


def _check_copied(name: str, left: SoundTrack, right: SoundTrack, alignment: Alignment) -> list[Check]:
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
    if matched is None:
        return [payload]
    moved = [abs(a - b) for a, b in matched if a is not None and b is not None]
    said = f"{float(max(moved, default=Fraction(0)) * 1000):.3f} ms at most"
    # Times rounded to the source's coarse ticks may differ by half a tick.
    allowed_s = OFFSET_S + (left.tick_s / 2 if left.tick_s * left.rate_hz > 1 else 0)
    return [payload, check(f"{name}.times", "within 1 ms", said, passed=all(step <= allowed_s for step in moved))]


def _matched_times(
    left: SoundTrack, right: SoundTrack, alignment: Alignment
) -> list[tuple[Fraction | None, Fraction | None]] | None:
    """Return when each packet of a copy is heard in source and output; None if the bytes differ."""
    if left.digest == right.digest and left.begins == right.begins:
        return list(zip(left.heard_s, right.heard_s, strict=True))
    if left.digest == right.digest:
        # FFmpeg splits damaged sound of some codecs differently for each container.
        found = zip(right.begins, right.heard_s, strict=True)
        return [(time_s, after) for begin, after in found if (time_s := _time_of(left, begin)) is not None]
    if alignment.part_s is None:
        return None
    first = find_run(left.sums, left.times_s, right.sums, next(iter(right.times_s), None))
    kept = find_kept(left.sums, left.times_s, right.sums, alignment.part_s) if first is None else None
    places: Sequence[int] = (kept or ()) if first is None else range(first, first + len(right.sums))
    return [(left.heard_s[a], b) for a, b in zip(places, right.heard_s, strict=True)] if places else None


def _time_of(track: SoundTrack, byte: int) -> Fraction | None:
    """Return when a byte of a track is heard; None for a byte inside a packet, unless the track is PCM."""
    place = bisect_right(track.begins, byte) - 1
    time_s, inside = (track.heard_s[place], byte - track.begins[place]) if place >= 0 else (None, 0)
    if time_s is None or (inside and not track.bytes_a_second):
        return None
    return time_s + (inside / track.bytes_a_second if inside else 0)


def find_kept(
    whole: Sequence[int], times_s: Sequence[Fraction | None], part: Sequence[int], part_s: Fraction
) -> list[int] | None:
    """Return the places of ``part`` in a track whose clock steps back; None if a packet in [0, ``part_s``) is missing.

    Such a clock may leave the part and return to it, so packets outside the part may be missing in between.
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
    """Return the place in ``whole`` where the packets of ``part`` start; None if there is no such place.

    Silence repeats, so there may be several places. The place nearest in time to ``begin_s`` is returned.
    """
    starts = [place for place, value in enumerate(whole) if part and value == part[0]]
    if begin_s is not None:
        starts.sort(key=lambda place: abs((times_s[place] or 0) - begin_s))
    return next((place for place in starts if list(whole[place : place + len(part)]) == list(part)), None)


def _check_offset(name: str, left: SoundTrack, right: SoundTrack, alignment: Alignment) -> Check:
    name = f"{name}.offset"
    if left.first_sample_s is None or right.first_sample_s is None:
        return not_applicable(name, "no sample of the track decodes")
    if alignment.trimmed:
        return not_applicable(name, "a part was requested: a packet across the start of the part is kept whole")
    moved = abs(left.first_sample_s - right.first_sample_s)
    if moved > OFFSET_S and alignment.output_is_ts and _is_priming(left, right, left.first_sample_s - moved):
        return not_applicable(name, "a transport stream cannot say which samples are priming")
    expected, found = (f"{float(track.first_sample_s or 0) * 1000:.3f} ms" for track in (left, right))
    return check(name, expected, found, passed=moved <= OFFSET_S, held="the first sample is heard at the same time")


def _is_priming(left: SoundTrack, right: SoundTrack, first_sample_s: Fraction) -> bool:
    """Return whether sound before the source's first sample is priming, which lasts for one frame at most."""
    frame_s = Fraction(max(right.frame_samples, _AAC_FRAME_SAMPLES), right.rate_hz)
    encoded = (
        right.first_sample_s == first_sample_s and (left.first_sample_s or 0) - first_sample_s <= frame_s + OFFSET_S
    )
    return left.digest == right.digest or encoded


def _check_heard(
    name: str, left: SoundTrack, right: SoundTrack, alignment: Alignment, *, copied: bool
) -> Iterator[Check]:
    """Compare the decoded sound of both files. For a copy, the packets already prove when the sound ends."""
    gaps = gaps_of(left)
    starts = window_starts(right if alignment.trimmed else left, () if alignment.trimmed else gaps)
    held = [] if alignment.trimmed else [begin + GAP_EDGE_S for begin, end in gaps if end - begin > 3 * GAP_EDGE_S]
    now = hear(right, [*starts, *held])
    was = hear(left, [*starts, *held], now.end_s if alignment.trimmed else None)
    if not copied:
        yield _check_duration(name, left, right, was, now, trimmed=alignment.trimmed)
    # In a container that does not separate packets, a damaged header may join two packets; the bytes stay the same.
    is_joined = left.digest == right.digest and len(right.sums) < len(left.sums)
    joined = "the same bytes in fewer packets" if is_joined else ""
    at_most, passed = f"at most {was.failed} packets fail", now.failed <= was.failed
    yield check(f"{name}.decodes", at_most, now.failed, passed=passed, unless="" if passed else joined)
    amplified = left.index in alignment.loudness
    checks = [_check_sound(name, was, now, range(len(starts)))]
    checks += _check_speakers(name, was, now, range(len(starts)), amplified=amplified)
    # The result of decoding damage depends on the boundaries of packets.
    yield from (not_applicable(each.name, joined) if each.failed and joined and was.failed else each for each in checks)
    yield _check_rate(name, left, right, was, now)
    if held:
        lengths = {begin + GAP_EDGE_S: end - begin - 2 * GAP_EDGE_S for begin, end in gaps}
        yield _check_gaps(name, was, now, [(len(starts) + n, lengths[begin]) for n, begin in enumerate(held)])


def _check_duration(name: str, left: SoundTrack, right: SoundTrack, was: Heard, now: Heard, *, trimmed: bool) -> Check:
    frame_samples = max(left.frame_samples, right.frame_samples, _AAC_FRAME_SAMPLES)
    frame_s = Fraction(frame_samples, min(left.rate_hz, right.rate_hz))
    return check(
        f"{name}.duration",
        f"ends at {float(was.end_s):.3f} s within {float(frame_s) * 1000:.0f} ms",
        f"{float(now.end_s):.3f} s",
        passed=abs(was.end_s - now.end_s) <= frame_s + OFFSET_S,
        detail=f"{left.codec} encoded as {right.codec}",
        unless="a part was requested" if trimmed else "",
    )


def _check_sound(name: str, was: Heard, now: Heard, windows: Sequence[int]) -> Check:
    before, after = ([each.mono(n) for n in windows] for each in (was, now))
    # In quiet windows, an encoder's noise masks the sound.
    loudness = [float(np.sqrt(np.mean(window**2))) for window in before]
    least = max(_SILENCE, max(loudness, default=0.0) / 4)
    triples = zip(before, after, loudness, strict=True)
    found = [_lag(first, second) for first, second, loud in triples if loud >= least]
    if not found:
        return not_applicable(f"{name}.sound", "only silence in the compared windows")
    late = max((lag for lag, _ in found), key=abs)
    alike = min(likeness for _, likeness in found)
    expected = f"in {len(found)} windows: within 1 ms, correlation at least {LIKENESS}"
    passed = abs(late) <= float(OFFSET_S) and alike >= LIKENESS
    return check(f"{name}.sound", expected, f"{late * 1000:+.3f} ms, correlation {alike:.2f}", passed=passed)


def _check_speakers(name: str, was: Heard, now: Heard, windows: Sequence[int], *, amplified: bool) -> Iterator[Check]:
    wanted, found = was.speakers, now.speakers
    if not wanted:
        for each in ("layout", "speakers"):
            yield not_applicable(f"{name}.{each}", "no sample of the source's track decodes")
        return
    alone = {"FC"} if len(was.layouts) > 1 and ("FC",) in was.layouts else set()
    named = not any(each.startswith("#") for each in wanted | found)
    levels = [(was.levels(n), now.levels(n)) for n in windows]
    # If a codec lacks a layout, a larger layout whose extra speakers are silent is fine.
    further = found - wanted if len(found) > max(len(wanted), 2 if alone else 0) else set()
    heard = [after for _, after in levels if after]
    is_silent = all(after.get(each, 0.0) <= _QUIET_PART * max(after.values()) for after in heard for each in further)
    same = wanted - alone <= found and is_silent
    same = same if named else max(map(len, was.layouts), default=0) == max(map(len, now.layouts), default=0)
    texts = [" ".join(sorted(each)) or "none" for each in (wanted, found)]
    yield check(f"{name}.layout", *texts, passed=same)
    if not named and {*was.layouts} != {*now.layouts}:
        yield not_applicable(f"{name}.speakers", "one of the files does not name its speakers")
        return
    before, after = (sum(level**2 for pair in levels for level in pair[side].values()) for side in (0, 1))
    gain = float((after / before) ** 0.5) if amplified and before else 1.0
    yield _check_levels(f"{name}.speakers", levels, gain, _exchanged(was, now, levels))


def _exchanged(was: Heard, now: Heard, levels: _Levels) -> dict[str, str]:
    """Return the speakers whose sound moved, as {speaker: the speaker that has this sound now}."""
    found: dict[str, str] = {}
    for window, (before, after) in enumerate(levels):
        least = max(_SILENCE, max(before.values(), default=0.0) / 4)
        loud = [name for name in before if before[name] >= least and len(before) > 1]
        first, second = was.sounds(window), now.sounds(window)
        for name in loud:
            own = _lag(first[name], second[name])[1] if name in after else 0.0
            if own < LIKENESS and name not in found:
                others = {each: _lag(first[name], second[each])[1] for each in after if each not in (name, LFE)}
                likest = max(others, key=others.__getitem__, default="")
                if likest and others[likest] >= max(2 * own, LIKENESS) and name in after:
                    found[name] = likest
    return found


def _check_levels(name: str, levels: _Levels, gain: float, exchanged: dict[str, str]) -> Check:
    wrong: dict[str, int] = {}
    for place, (before, after) in enumerate(levels):
        least = max(_SILENCE, _QUIET_PART * max([*before.values(), *after.values()], default=0.0))
        for speaker in speakers_that_differ(before, after, gain=gain, least=least, times=_LEVEL_TIMES):
            wrong.setdefault(speaker, place)
    pairs = [(speaker, *(side.get(speaker, 0.0) for side in levels[place])) for speaker, place in wrong.items()]
    louder = [f"{speaker} {before:.4f} became {after:.4f}" for speaker, before, after in pairs]
    moved = [f"{speaker} is heard from {other}" for speaker, other in exchanged.items()]
    found = ", ".join([*louder, *moved])
    return check(name, "each speaker's own sound, within 6 dB", found or "the same", passed=not found)


def _check_rate(name: str, left: SoundTrack, right: SoundTrack, was: Heard, now: Heard) -> Check:
    if not was.rates_hz and not now.rates_hz:
        return not_applicable(f"{name}.rate", "no sample of the track decodes")
    wanted = sorted({_OPUS_HZ} if right.codec == "opus" else {*was.rates_hz, left.rate_hz})
    enough = min(wanted[-1], _ENOUGH_HZ)
    passed = now.rates_hz in ([right.rate_hz], []) and (right.rate_hz in wanted or right.rate_hz >= enough)
    lower = [f"{rate} Hz" for rate in wanted if rate < enough]
    expected = f"{' or '.join([*lower, f'at least {enough} Hz'])}, throughout"
    return check(f"{name}.rate", expected, f"{right.rate_hz} Hz stated, {now.rates_hz} heard", passed=passed)


def _check_gaps(name: str, was: Heard, now: Heard, gaps: Sequence[tuple[int, Fraction]]) -> Check:
    filled = []
    for window, length_s in gaps:
        samples = int(min(length_s, WINDOW_S) * GRID_HZ)
        before, after = (float(np.sqrt(np.mean(each.mono(window)[:samples] ** 2))) for each in (was, now))
        if before < _SILENCE <= after:
            filled.append(window)
    found = f"sound in {len(filled)}" if filled else "silence in all"
    return check(f"{name}.gaps", f"silence in {len(gaps)} gaps", found, passed=not filled)


def _lag(first: NDArray[np.float32], second: NDArray[np.float32]) -> tuple[float, float]:
    """Return the delay of ``second`` in seconds, and the correlation at that delay: 1 if only the loudness differs."""
    size = 2 * len(first)
    product = np.fft.rfft(second, size) * np.conj(np.fft.rfft(first, size))
    correlation = np.fft.irfft(product, size)
    reach = int(LAG_S * GRID_HZ)
    around = np.concatenate([correlation[-reach:], correlation[: reach + 1]])
    best = int(np.argmax(around))
    near = slice(reach - int(OFFSET_S * GRID_HZ), reach + int(OFFSET_S * GRID_HZ) + 1)
    if around[near].max() >= _PERIODIC * around[best]:
        # A tone repeats, so the smallest of equally good delays is taken.
        best = near.start + int(np.argmax(around[near]))
    energy = float(np.sqrt(np.sum(first.astype(np.float64) ** 2) * np.sum(second.astype(np.float64) ** 2)))
    return (best - reach) / GRID_HZ, float(around[best]) / energy if energy else 0.0

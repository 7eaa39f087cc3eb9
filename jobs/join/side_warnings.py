"""Warnings about differences of the other tracks from the source."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from fractions import Fraction
from math import floor

from ...actors.tracks.audio import EncodedTrack
from ...actors.tracks.downmix import mixed_speakers
from ...actors.tracks.loudness import TRUE_PEAK_DB, Loudness
from ...actors.tracks.speakers import speakers
from ...cluster.grouping import counted
from ..carry.carry import CarryPlan
from ..carry.sound import SPEAKER_CHECKS, layouts, remixed
from ..carry.track_plan import SoundKey, content_checks
from ..report.report import Warning_
from ..source.tracks import Track
from .counted_sound import CountedSound
from .side_packets import UNHEARD_S, AudioPipe, CuePipe, Interval, Pipe

_HALF = Fraction(1, 2)


def side_warnings(
    plan: CarryPlan,
    pipes: Iterable[Pipe],
    encoded: Mapping[SoundKey, EncodedTrack],
    silent: Collection[SoundKey],
    interval: Interval,
) -> list[Warning_]:
    """Return warnings about finished tracks.

    ``pipes`` have the copied tracks and ``encoded`` the encoded ones; tracks in ``silent`` have no output packet.
    """
    copied = list(pipes)
    found = [warning for pipe in copied for warning in _of_pipe(plan, pipe)]
    found += [warning for (index, _), track in encoded.items() for warning in _of_encoded(plan, index, track)]
    found += [_dropped(plan, f"audio track {index}", "audio") for index, _ in silent if not plan.container.empty_tracks]
    if not plan.container.edit_lists or interval.start_s is not None:
        return list(dict.fromkeys(found))
    late = {pipe.track.index: _priming_heard_s(pipe) for pipe in copied if isinstance(pipe, AudioPipe)}
    late |= {index: _encoded_priming_heard_s(track, interval) for (index, _), track in encoded.items()}
    # Edit lists hide samples before 0, but FFmpeg's muxer writes no edit list for a track that begins later.
    for index, heard_s in late.items():
        if heard_s > UNHEARD_S:
            priming = f"{float(heard_s) * 1000:.1f} ms of its encoder's own samples"
            message = f"audio track {index} begins late, after {priming}"
            checks = content_checks(plan.tracks, index, "offset")
            found.append(Warning_(code="priming-heard", message=message, checks=checks))
    return list(dict.fromkeys(found))  # several encodings of one track may have equal warnings


def _of_pipe(plan: CarryPlan, pipe: Pipe) -> Iterator[Warning_]:
    checks = content_checks(plan.tracks, pipe.track.index)
    if pipe.resets:
        message = f"the clock of {pipe.track.name} was reset {pipe.resets} times; later packets follow without a gap"
        moved = content_checks(plan.tracks, pipe.track.index, "times", "offset")
        yield Warning_(code="clock-reset", message=message, checks=moved if isinstance(pipe, AudioPipe) else checks)
    if isinstance(pipe, AudioPipe) and pipe.hidden:
        message = f"{pipe.hidden} packets of {pipe.track.name} are left out: the source's edit list hides them"
        yield Warning_(code="audio-hidden", message=message, checks=checks)
    if isinstance(pipe, AudioPipe) and pipe.damaged:
        message = (
            f"{pipe.damaged} packets of {pipe.track.name} are left out: their headers are damaged, "
            f"and .{plan.container.name} requires headers"
        )
        begins = ("stream.start",) if pipe.begins_damaged else ()
        yield Warning_(code="audio-damaged", message=message, checks=(*checks, *begins))
    if isinstance(pipe, AudioPipe) and pipe.moved:
        message = f"{pipe.moved} packets of {pipe.track.name} overlap earlier ones, and were moved after them"
        late = content_checks(plan.tracks, pipe.track.index, "times")
        yield Warning_(code="audio-disorder", message=message, checks=late)
    if isinstance(pipe, AudioPipe) and pipe.counted is not None:
        yield from _of_counted(plan, pipe.track, pipe.counted)
    if not isinstance(pipe, CuePipe) and pipe.is_empty and not plan.container.empty_tracks:
        yield _dropped(plan, pipe.track.name, "audio" if isinstance(pipe, AudioPipe) else "video")
    if isinstance(pipe, CuePipe) and pipe.crowded:
        message = (
            f"{pipe.crowded} cues of {pipe.track.name} overlap others or have no duration: "
            f".{plan.container.name} shows one at a time, "
            f"{'with the text of all' if pipe.target else 'so a cue ends when the next begins'}"
        )
        yield Warning_(code="subtitle-overlap", message=message, checks=checks)


def _of_counted(plan: CarryPlan, track: Track, line: CountedSound) -> Iterator[Warning_]:
    """Yield warnings about silence that was added, and about samples that were left out."""
    counts = f".{plan.container.name} counts the samples of PCM, and states no times for them"
    if line.gaps:
        length_s = line.silent_samples / line.sample_rate
        message = f"{counted(line.gaps, 'gap')} in {track.name} became {length_s:.3f} s of silence: {counts}"
        yield Warning_(code="audio-gap-filled", message=message, checks=())
    if line.dropped_samples:
        length_s = line.dropped_samples / line.sample_rate
        message = f"{length_s:.3f} s of {track.name} are left out, because they overlap earlier samples: {counts}"
        yield Warning_(code="audio-overlap", message=message, checks=content_checks(plan.tracks, track.index))


def _dropped(plan: CarryPlan, name: str, kind: str) -> Warning_:
    message = f"nothing of {name} is in the output, and .{plan.container.name} cannot hold an empty track"
    code = "audio-dropped" if kind == "audio" else "video-track-dropped"
    return Warning_(code=code, message=message, checks=(f"tracks.{kind}",))


def _of_encoded(plan: CarryPlan, index: int, track: EncodedTrack) -> Iterator[Warning_]:
    checks = content_checks(plan.tracks, index, "sound", "duration", "offset")
    if track.clock_resets:
        message = (
            f"the clock of audio track {index} was reset {track.clock_resets} times; later packets follow without a gap"
        )
        yield Warning_(code="clock-reset", message=message, checks=checks)
    if track.damaged_packets:
        message = f"{track.damaged_packets} packets of audio track {index} could not be decoded and are silent"
        yield Warning_(code="audio-damaged", message=message, checks=checks)
    yield from _of_unplanned_layouts(plan, index, track)
    if track.loudness is not None:
        yield from _of_loudness(index, track.loudness)


def _of_unplanned_layouts(plan: CarryPlan, index: int, track: EncodedTrack) -> Iterator[Warning_]:
    """Yield warnings about layouts that the source's headers did not announce and that had to be mixed."""
    planned = next(each for each in plan.tracks if each.track.index == index)
    found = {layout for layout, _ in track.formats} if planned.channels is None else set()
    for layout in sorted(found - {*layouts(planned.track)}):
        if mixed := mixed_speakers(speakers(layout), speakers(track.layout)):
            message = remixed(planned.track.name, track.codec, layout, track.layout, mixed)
            checks = content_checks(plan.tracks, index, *SPEAKER_CHECKS)
            yield Warning_(code="audio-remixed", message=message, checks=checks)


def _of_loudness(index: int, loudness: Loudness) -> Iterator[Warning_]:
    if loudness.integrated_lufs is None:
        message = f"audio track {index} is too quiet to measure and stays as it is"
        yield Warning_(code="loudness-unknown", message=message, checks=())
    elif loudness.limited:
        message = (
            f"the gain of audio track {index} is limited to {float(loudness.gain_db):+.1f} dB, for a true peak of "
            f"{float(TRUE_PEAK_DB):g} dBTP; it is now at {float(loudness.integrated_lufs + loudness.gain_db):.1f} LUFS"
        )
        yield Warning_(code="loudness-limited", message=message, checks=())


def _priming_heard_s(pipe: AudioPipe) -> Fraction:
    audio = pipe.track.audio
    if audio is None or pipe.first is None:
        return Fraction(0)
    return Fraction(min(audio.priming_samples, pipe.first + audio.priming_samples), audio.sample_rate)


def _encoded_priming_heard_s(track: EncodedTrack, interval: Interval) -> Fraction:
    if not len(track.pts):
        return Fraction(0)
    first = int(track.pts[0]) - floor(interval.origin_s / track.time_base + _HALF)
    return min(track.initial_padding, first + track.initial_padding) * track.time_base

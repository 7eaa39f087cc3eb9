"""Sound whose format changes, or whose layout the codec or container cannot state."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from codecfleet.actors.bitstream.sound_headers import SoundHeader
from codecfleet.jobs.carry.carry import CarryPlan, plan_carry
from codecfleet.jobs.carry.containers import container_for
from codecfleet.jobs.carry.track_plan import Action
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.jobs.source.sound_life import SoundFormat, in_part, in_words
from codecfleet.jobs.source.tracks import AudioTrack, SourceDescription, Track, TrackKind

CHANNELS = {"mono": 1, "stereo": 2, "2.1": 3, "4.1": 5, "5.1": 6, "6.1": 7, "16 channels": 16, "11 channels": 11}


def sound(codec: str, *parts: tuple[str, int], layout: str = "stereo") -> Track:
    """A sound track with these layouts and rates in turn, two seconds each."""
    layout, rate = parts[0] if parts else (layout, 48_000)
    formats = tuple(
        SoundFormat(Fraction(2 * number), rate, layout, SoundHeader(rate, layout))
        for number, (layout, rate) in enumerate(parts)
    )
    audio = AudioTrack(rate, CHANNELS[layout], layout, 1024, 0)
    return Track(index=1, kind=TrackKind.AUDIO, codec=codec, time_base=Fraction(1, 1000), audio=audio, formats=formats)


def plan(track: Track, output: str, source_format: str = "mpegts", **asked: Any) -> CarryPlan:
    """Return the plan for a source with this track; the times limit the part."""
    part = asked.pop("start_s", None), asked.pop("end_s", None)
    video = Track(index=0, kind=TrackKind.VIDEO, codec="h264", time_base=Fraction(1, 1000))
    source = in_part(SourceDescription(url="in", format=source_format, tracks=(video, track)), *part, Fraction(0))
    return plan_carry(source, TranscodeSpec(source="in", output=output, **asked), container_for(output))


def codes(carried: CarryPlan) -> list[str]:
    """The codes of the losses, then those of the changes."""
    return [each.code for each in (*carried.losses, *carried.changes)]


TO_SURROUND = (("stereo", 48_000), ("5.1", 48_000))
TO_44 = (("stereo", 48_000), ("stereo", 44_100))


@pytest.mark.parametrize(
    ("codec", "parts", "output", "source_format", "is_copied"),
    [
        ("ac3", TO_SURROUND, "a.mp4", "mpegts", True),
        ("ac3", TO_44, "a.mkv", "mpegts", False),
        ("ac3", TO_44, "a.ts", "mpegts", True),
        ("aac", TO_SURROUND, "a.ts", "mpegts", True),
        ("aac", TO_SURROUND, "a.mp4", "mpegts", False),
        ("aac", TO_SURROUND, "a.mkv", "mpegts", False),
        ("aac", TO_SURROUND, "a.mp4", "mov,mp4", True),
        ("aac", TO_SURROUND, "a.ts", "mov,mp4", False),
        ("alac", TO_SURROUND, "a.mkv", "mov,mp4", False),
    ],
)
def test_changing_sound_is_copied_where_each_packet_says_what_it_is(
    codec: str, parts: Any, output: str, source_format: str, *, is_copied: bool
) -> None:
    """Sound whose format changes is copied if each packet states its format, otherwise encoded; the change is named."""
    carried = plan(sound(codec, *parts), output, source_format)

    assert [each.action for each in carried.tracks] == [Action.COPY if is_copied else Action.ENCODE]
    assert codes(carried) == [*([] if is_copied else ["audio-converted"]), "audio-format-changes"]
    assert "from 2.000 s on" in carried.changes[0].message
    works = carried.audio_works("job", "in").values()
    assert [work.later for work in works] == ([] if is_copied else [parts])


@pytest.mark.parametrize(
    ("start_s", "end_s", "action", "later"),
    [
        (None, Fraction(2), Action.COPY, ()),
        (Fraction(1), Fraction(3), Action.ENCODE, TO_SURROUND),
        (Fraction(2), None, Action.ENCODE, TO_SURROUND[1:]),
    ],
)
def test_only_the_formats_of_the_part_count(
    start_s: Fraction | None, end_s: Fraction | None, action: Action, later: Any
) -> None:
    """A part before the change has one format; a part after it has another one than the track's header."""
    carried = plan(sound("aac", *TO_SURROUND), "a.mp4", start_s=start_s, end_s=end_s)

    assert [each.action for each in carried.tracks] == [action]
    assert [work.later for work in carried.audio_works("job", "in").values()] == ([later] if later else [])


@pytest.mark.parametrize(
    ("codec", "layout", "output", "asked", "expected"),
    [
        ("flac", "6.1", "a.mkv", "aac", ["audio-remixed"]),
        ("flac", "6.1", "a.mkv", "opus", []),
        ("flac", "6.1", "a.ts", "opus", ["audio-remixed"]),
        ("opus", "6.1", "a.ts", "copy", ["audio-converted", "audio-remixed"]),
        ("flac", "2.1", "a.mp4", "aac", []),
        ("flac", "2.1", "a.mp4", "copy", ["layout-dropped"]),
        ("flac", "5.1", "a.mp4", "copy", []),
        ("pcm_s16le", "2.1", "a.mkv", "copy", ["layout-dropped"]),
        ("pcm_s16le", "5.1", "a.mkv", "copy", []),
        ("pcm_s16le", "2.1", "a.mov", "copy", []),
        ("pcm_s16le", "16 channels", "a.mov", "copy", []),
        ("pcm_s16le", "16 channels", "a.mp4", "copy", ["layout-assumed"]),
        ("pcm_s16le", "11 channels", "a.mp4", "copy", ["audio-converted", "audio-remixed"]),
        ("pcm_s16le", "16 channels", "a.ts", "copy", ["audio-converted", "audio-remixed"]),
    ],
)
def test_speakers_that_are_not_stated_are_named(
    codec: str, layout: str, output: str, asked: str, expected: list[str]
) -> None:
    """Speakers that a container cannot state are named before the work, with a code for each kind of loss."""
    assert codes(plan(sound(codec, layout=layout), output, audio=asked)) == expected


def test_the_clock_that_steps_back_hides_no_format() -> None:
    """If the clock steps back, all formats of the track count, because their times in the part are unknown."""
    track = sound("aac", *TO_SURROUND)
    (first, second) = track.formats
    formats = (first, SoundFormat(Fraction(-5), second.sample_rate, second.layout, second.header))
    described = SourceDescription(url="in", format="mpegts", tracks=(replace(track, formats=formats),))
    assert in_part(described, None, Fraction(1)).tracks[0].formats == formats


@pytest.mark.parametrize(
    ("first_s", "words"),
    [(Fraction(1, 2), "from 1.500 s on 5.1 at 48000 Hz"), (None, "stereo at 48000 Hz, then 5.1 at 48000 Hz")],
)
def test_changes_are_told_from_the_first_picture_on(first_s: Fraction | None, words: str) -> None:
    """Changes have times from the first picture on; after a clock reset no time is stated."""
    described = SourceDescription(url="in", format="mpegts", tracks=(sound("ac3", *TO_SURROUND),))
    (track,) = in_part(described, None, None, first_s).tracks
    assert words in in_words(track.formats)

from fractions import Fraction
from typing import Any

import pytest
from av.stream import Disposition
from pydantic import ValidationError

from codecfleet.errors import Unsupported
from codecfleet.jobs.carry.carry import CarryPlan, plan_carry
from codecfleet.jobs.carry.containers import container_for
from codecfleet.jobs.carry.track_plan import Action, PictureTimes, content_checks
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.jobs.source.tracks import Attachment, AudioTrack, Chapter, SourceDescription, Track, TrackKind

TICK = Fraction(1, 1000)
STEREO = AudioTrack(48_000, 2, "stereo", 1024, 0)


def video(index: int = 0, codec: str = "h264", rate: Fraction | None = Fraction(25), **more: Any) -> Track:
    """A video track."""
    return Track(index=index, kind=TrackKind.VIDEO, codec=codec, time_base=TICK, frame_rate=rate, **more)


def audio(index: int = 1, codec: str = "aac", start_s: Fraction = Fraction(0), **more: Any) -> Track:
    """A stereo audio track."""
    more = {"audio": STEREO, **more}
    return Track(index=index, kind=TrackKind.AUDIO, codec=codec, time_base=TICK, start_s=start_s, **more)


def track(index: int, kind: TrackKind, codec: str | None = None, tag: str = "", **more: Any) -> Track:
    """Any other track."""
    return Track(index=index, kind=kind, codec=codec, time_base=TICK, tag=tag, **more)


def plan(*tracks: Track, output: str = "out.mp4", **asked: Any) -> CarryPlan:
    """Return the plan for a source with these tracks; ``asked`` belongs to the source's description or the request."""
    about = {key: asked.pop(key) for key in ("tags", "chapters") if key in asked}
    pictures = PictureTimes(skipped_s=asked.pop("skipped_s", Fraction(0)))
    source = SourceDescription(url="in", format="mov,mp4", tracks=tracks, **about)
    spec = TranscodeSpec(source="in", output=output, **asked)
    return plan_carry(source, spec, container_for(output), pictures=pictures)


def codes(carried: CarryPlan) -> list[str]:
    """Return the codes of the losses."""
    return [loss.code for loss in carried.losses]


SURROUND = AudioTrack(48_000, 6, "5.1(side)", 1024, 0)


@pytest.mark.parametrize(
    ("codec", "output", "becomes"),
    [
        *(("aac", f"a.{name}", None) for name in ("mp4", "mov", "mkv", "ts")),
        *(
            ("aac", "a.webm", "opus"),
            ("vorbis", "a.mp4", "aac"),
            ("opus", "a.mov", "aac"),
            ("pcm_s16le", "a.ts", "aac"),
        ),
    ],
)
def test_audio_that_fits_is_copied_and_other_is_encoded_and_named(codec: str, output: str, becomes: str | None) -> None:
    """Audio that fits is copied without a note; other audio is encoded as one track, and the report names it."""
    carried = plan(video(codec="vp9"), audio(codec=codec), output=output)

    assert [(t.action, t.codec) for t in carried.tracks] == [
        (Action.ENCODE if becomes else Action.COPY, becomes or codec)
    ]
    assert codes(carried) == (["audio-converted"] if becomes else [])
    assert list(carried.audio_works("job", "in")) == ([(1, 0)] if becomes else [])


@pytest.mark.parametrize(
    ("asked", "works", "said"),
    [
        ({"audio": "aac"}, {2: (None, None)}, "aac was requested"),
        ({"audio": "aac", "audio_bitrate_bps": 160_000}, {1: (160_000, None), 2: (160_000, None)}, "aac at 160 kbit/s"),
        ({"audio": "aac", "loudness_lufs": -23}, {1: (None, -23), 2: (None, -23)}, "aac at -23 LUFS was requested"),
    ],
)
def test_what_is_asked_for_is_no_loss(asked: dict[str, Any], works: dict[int, object], said: str) -> None:
    """A track that already has the requested codec stays as it is, unless a bitrate or loudness is requested."""
    carried = plan(video(), audio(1), audio(2, "ac3", audio=SURROUND), **asked)

    found = carried.audio_works("job", "in")
    assert {index: (work.bit_rate_bps, work.loudness_lufs) for (index, _), work in found.items()} == works
    assert {(work.codec, work.channels) for work in found.values()} == {("aac", None)}
    assert carried.tracks[1].reason.startswith(said)
    assert not carried.losses
    assert not carried.choices


@pytest.mark.parametrize(
    ("asked", "kept", "lost"),
    [
        ({"audio_tracks": (0, 2)}, [True, False, False], ["audio-dropped"]),
        ({"audio_tracks": (0,)}, [True, False, False], []),
        ({"audio": "none"}, [False, False, False], []),
    ],
)
def test_leaving_tracks_out_as_asked_is_no_loss(asked: dict[str, Any], kept: list[bool], lost: list[str]) -> None:
    """Tracks left out on request are no loss; a requested track without a sample description is a loss."""
    carried = plan(video(), audio(1), audio(2), audio(3, codec="", audio=None, decodable=False), **asked)

    assert [t.action is Action.COPY for t in carried.tracks] == kept
    assert codes(carried) == lost


def test_what_has_the_channels_asked_for_is_copied() -> None:
    """Only tracks with other channels are mixed, and the change of their sound is declared for verify."""
    carried = plan(video(), audio(1), audio(2, audio=SURROUND), audio(3, "ac3"), audio="aac", audio_channels="stereo")

    assert [t.action for t in carried.tracks] == [Action.COPY, Action.ENCODE, Action.ENCODE]
    assert {key: work.channels for key, work in carried.audio_works("job", "in").items()} == {(2, 0): 2, (3, 0): None}
    assert [(choice.code, choice.checks) for choice in carried.choices] == [
        ("audio-mixed", ("audio.1.sound", "audio.1.layout", "audio.1.speakers"))
    ]
    assert not carried.losses


@pytest.mark.parametrize(
    ("codec", "rate_bps", "channels", "said"),
    [
        ("aac", 95_999, "keep", "96 to 1728 kbit/s for 6 channels"),
        ("aac", 1_728_001, "keep", "96 to 1728 kbit/s"),
        ("aac", 600_000, "stereo", "32 to 576 kbit/s for 2 channels"),
        ("opus", 300_000, "mono", "6 to 256 kbit/s for 1 channel of audio track 1"),
    ],
)
def test_bitrates_that_an_encoder_does_not_give_are_refused(
    codec: str, rate_bps: int, channels: str, said: str
) -> None:
    """A bitrate that the encoder cannot have for these channels is refused in one line with the possible ones."""
    with pytest.raises(Unsupported, match=said):
        plan(
            video(),
            audio(codec="ac3", audio=SURROUND),
            audio=codec,
            audio_bitrate_bps=rate_bps,
            audio_channels=channels,
        )


@pytest.mark.parametrize("audio_mode", ["copy", "none"])
@pytest.mark.parametrize("asked", [{"audio_bitrate_bps": 128_000}, {"audio_channels": "mono"}, {"loudness_lufs": -23}])
def test_what_is_not_encoded_has_neither_bitrate_nor_mix(audio_mode: str, asked: dict[str, object]) -> None:
    """A bitrate or channels for copied sound are refused."""
    with pytest.raises(ValidationError, match="needs `audio` aac or opus"):
        plan(video(), audio(), audio=audio_mode, **asked)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"output": "a.webm", "audio": "aac"}, "webm cannot hold aac audio. Use --audio copy or --audio opus"),
        ({"audio_tracks": (2,)}, "no audio track 2: it has 1"),
    ],
)
def test_audio_that_cannot_be_is_refused(asked: dict[str, Any], said: str) -> None:
    """If the container cannot hold a codec, the error lists codecs that it can hold. A missing track is refused too."""
    with pytest.raises(Unsupported, match=said):
        plan(video(codec="vp9"), audio(), **asked)


def test_text_subtitles_are_converted_and_bitmaps_named_as_lost() -> None:
    """mp4 converts text to mov_text and drops bitmaps; Matroska keeps all subtitles but mov_text as they are."""
    carried = plan(
        video(),
        track(1, TrackKind.SUBTITLE, "ass"),
        track(2, TrackKind.SUBTITLE, "mov_text"),
        track(3, TrackKind.SUBTITLE, "hdmv_pgs_subtitle"),
    )

    assert [(t.action, t.codec) for t in carried.tracks] == [
        (Action.CONVERT, "mov_text"),
        (Action.COPY, "mov_text"),
        (Action.DROP, None),
    ]
    assert codes(carried) == ["subtitle-converted", "subtitle-dropped"]
    found = ("ass", "subrip", "webvtt", "hdmv_pgs_subtitle", "dvb_subtitle", "mov_text")
    carried = plan(video(), *(track(n, TrackKind.SUBTITLE, codec) for n, codec in enumerate(found, 1)), output="a.mkv")
    assert [t.codec for t in carried.tracks] == [*found[:-1], "subrip"]


def test_a_raw_bitstream_loses_everything_else() -> None:
    """Each loss is named once, with a stable code."""
    carried = plan(
        video(),
        audio(),
        track(2, TrackKind.ATTACHMENT, attachment=Attachment("a.ttf", "font/ttf", 9)),
        output="a.h264",
        chapters=(Chapter(Fraction(0), Fraction(1)),),
        tags=(("title", "A"),),
    )

    assert codes(carried) == ["audio-dropped", "attachment-dropped", "chapters-dropped", "tags-dropped"]


def test_further_video_tracks_are_copied_where_they_fit() -> None:
    """The chosen track is encoded, and other video tracks are copied; Apple's metadata tracks are lost."""
    carried = plan(video(0), video(1), video(2, "theora"), track(3, TrackKind.DATA, tag="mebx"), video_track=1)

    assert carried.video is not None
    assert carried.video.index == 1
    assert [r.action for r in carried.reports] == ["copied", "dropped", "dropped"]
    assert codes(carried) == ["video-track-dropped", "data-track-dropped"]


@pytest.mark.parametrize(
    ("stated", "rate", "counts", "skipped_s", "written"),
    [
        ("10:00:00:00", Fraction(25), None, Fraction(0), "10:00:00:00"),
        ("10:00:00:00", Fraction(7), None, Fraction(0), None),
        ("10:00:00:00", Fraction(25), None, Fraction(2), "10:00:02:00"),
        ("00:00:58;00", Fraction(30_000, 1001), None, Fraction(2002, 1000), "00:01:00;02"),
        ("10:00:00:29", Fraction(60_000, 1001), Fraction(30_000, 1001), Fraction(0), "10:00:00:58"),
        ("10:00:00:00", Fraction(50), Fraction(25), Fraction(1, 2), "10:00:00:25"),
        ("10:00:00;00", Fraction(25), None, Fraction(0), None),
        ("10:00:00:00", Fraction(25), Fraction(30), Fraction(0), None),
    ],
)
def test_a_timecode_is_that_of_the_first_picture(
    stated: str, rate: Fraction, counts: Fraction | None, skipped_s: Fraction, written: str | None
) -> None:
    """The timecode moves on with ``--start`` and counts the output's pictures; one that cannot be counted is named."""
    counting = track(1, TrackKind.DATA, tag="tmcd", tags=(("timecode", stated),), frame_rate=counts)
    carried = plan(video(rate=rate), counting, skipped_s=skipped_s)

    assert carried.video_tags.get("timecode") == written
    assert codes(carried) == ([] if written else ["timecode-dropped"])


def test_matroska_keeps_a_timecode_that_nothing_counts_but_cannot_move_it() -> None:
    """Matroska keeps a timecode as text, but cannot move it to a later picture."""
    stated = (("TIMECODE", "ten o'clock"),)
    assert plan(video(), tags=stated, output="a.mkv").video_tags["timecode"] == "ten o'clock"
    assert codes(plan(video(), tags=stated, output="a.mkv", skipped_s=Fraction(1))) == ["timecode-dropped"]


def test_a_chapter_track_is_not_a_loss_where_chapters_are_kept() -> None:
    """QuickTime's chapter track is no loss, because it becomes chapters."""
    chapters = (Chapter(Fraction(0), Fraction(1)),)
    carried = plan(video(), track(1, TrackKind.DATA, tag="text"), chapters=chapters)

    assert carried.tracks[0].codec == "chapters"
    assert carried.chapters == chapters
    assert not carried.losses


def test_the_earliest_kept_track_decides_where_the_output_starts() -> None:
    """The output starts with the earliest kept track; dropped tracks do not count."""
    early, late = audio(1, start_s=Fraction(-1)), audio(2, start_s=Fraction(1, 2))

    assert plan(video(), early, late, audio_tracks=(1,)).first_presentation_s == Fraction(1, 2)
    assert plan(video(), early, late).first_presentation_s == Fraction(-1)
    assert plan(video(), early, audio="none").first_presentation_s is None


def test_tags_about_the_old_file_are_left_out_silently() -> None:
    """Tags about the old file (brand, muxer, statistics) are left out silently; a title is kept."""
    noise = (("major_brand", "isom"), ("ENCODER", "x"), ("_STATISTICS_TAGS-eng", "BPS"), ("BPS-eng", "1"))
    carried = plan(video(), tags=(*noise, ("TITLE", "A"), ("creation_time", "2020")))

    assert carried.tags == (("title", "A"), ("creation_time", "2020"))
    assert "use_metadata_tags" not in carried.muxer_options(Fraction(1, 12_800))["movflags"]


def test_unusual_tags_need_keys_of_their_own() -> None:
    """mp4 cannot have free keys beside cover art, so such tags are named as lost; Matroska's names have no spaces."""
    tags = (("com.apple.quicktime.make", "A"),)
    cover = track(1, TrackKind.COVER, "mjpeg")

    assert plan(video(), tags=tags).muxer_options(Fraction(1, 12_800))["movflags"].endswith("+use_metadata_tags")
    assert codes(plan(video(), tags=tags)) == []
    assert codes(plan(video(), cover, tags=tags)) == ["tags-dropped"]
    assert codes(plan(video(), tags=(("a key", "v"), ("title", "t")), output="a.mkv")) == ["tags-renamed"]
    assert codes(plan(video(), tags=(("a key", "v"), ("title", "t")), output="a.mp4")) == []


def test_losses_name_the_checks_that_miss_what_is_lost() -> None:
    """A check's name has the number that verify gives the track: its place among the requested ones of its kind."""
    carried = plan(
        video(),
        audio(1),
        audio(2, codec="", audio=None, decodable=False),
        audio(3, language="xx"),
        track(4, TrackKind.SUBTITLE, "hdmv_pgs_subtitle"),
        track(5, TrackKind.SUBTITLE, "mov_text", language="not a code"),
        chapters=(Chapter(Fraction(0), Fraction(1)),),
    )

    assert [(loss.code, loss.checks) for loss in carried.losses] == [
        ("audio-dropped", ("tracks.audio",)),
        ("language-dropped", ("metadata.language.audio-1",)),
        ("subtitle-dropped", ("tracks.subtitles",)),
        ("language-dropped", ("metadata.language.subtitles-1",)),
    ]
    assert content_checks(carried.tracks, 3, "sound") == ("audio.1.sound",)
    assert content_checks(carried.tracks, 5) == ("subtitles.1",)


@pytest.mark.parametrize(
    ("output", "lost"),
    [
        ("a.mp4", ["original"]),
        ("a.mov", ["dub, forced, hearing_impaired, original"]),
        ("a.mkv", []),
        ("a.webm", ["dub, hearing_impaired, original"]),
        ("a.ts", ["dub, forced, original"]),
    ],
)
def test_what_a_track_is_for_is_named_where_it_is_not_kept(output: str, lost: list[str]) -> None:
    """Each container keeps some dispositions; a lost one is named, and the default is kept everywhere."""
    flags = Disposition.default | Disposition.dub | Disposition.original | Disposition.forced
    sound = audio(codec="opus" if output == "a.webm" else "aac", disposition=int(flags | Disposition.hearing_impaired))
    found = [loss for loss in plan(video(), sound, output=output).losses if loss.code == "disposition-dropped"]

    assert [loss.message.partition(" is ")[2] for loss in found] == lost
    assert all(loss.checks == ("metadata.disposition.audio-0",) for loss in found)


def test_what_the_encoded_video_is_for_is_named_too() -> None:
    """Lost dispositions of the encoded video track are named too."""
    shown = video(disposition=int(Disposition.original), language="zzz")
    assert codes(plan(shown, output="a.mov")) == ["language-dropped", "disposition-dropped"]
    assert codes(plan(shown, output="a.mkv")) == []

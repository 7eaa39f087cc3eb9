import json
from fractions import Fraction
from pathlib import Path

import pytest

from codecfleet.jobs.source.tracks import TrackKind, describe_tracks


def test_every_file_can_be_described(shared_media: Path) -> None:
    """Whatever is wrong with a file, saying what is in it never fails, and finds as many tracks as there are."""
    names = [entry["file"] for entry in json.loads((shared_media / "MANIFEST.json").read_text())]
    assert len(names) >= 65
    for name in names:
        described = describe_tracks(str(shared_media / name))
        assert described.tracks
        assert all(track.name for track in described.tracks)


@pytest.mark.parametrize(
    ("name", "index", "start_s", "priming"),
    [
        ("derived_h264_opengop_360p_aac.mp4", 1, Fraction(0), 1024),
        ("cam_pancake_240p_opus_negstart.mkv", 1, Fraction(0), 312),
        ("av1_cam_720p_aac.mp4", 1, Fraction(1896, 44_100), 0),
        ("mp4_editlist_positive_shift.mp4", 1, Fraction(0), 1024),
        ("screen_1080p60_single_keyframe.flv", 0, Fraction(8, 1000), 0),
        ("subs_ass_ac3.mkv", 1, Fraction(129, 1000), 0),
    ],
)
def test_sound_starts_after_its_priming(
    shared_media: Path, name: str, index: int, start_s: Fraction, priming: int
) -> None:
    """A track's start is when something is heard, and its priming is known."""
    track = describe_tracks(str(shared_media / name)).tracks[index]

    assert track.start_s == start_s
    assert track.audio is not None
    assert track.audio.priming_samples == priming


def test_odd_tracks_are_named(shared_media: Path) -> None:
    """Timecodes, attachments, chapters, and unreadable sound are distinguished."""
    prores = describe_tracks(str(shared_media / "alpha_prores4444_1frame.mov"))
    assert prores.timecode == "01:00:00:00"
    assert prores.tracks[2].tag == "tmcd"

    attached = describe_tracks(str(shared_media / "hevc_hdr10_mastering_rot_attach.mkv"))
    (xpm,) = attached.of_kind(TrackKind.ATTACHMENT)
    assert xpm.attachment is not None
    assert (xpm.attachment.name, xpm.attachment.size_bytes) == ("blarg.xpm", 224)
    assert [dict(c.tags)["title"] for c in attached.chapters] == ["Schloß", "Carro"]

    (unreadable,) = describe_tracks(str(shared_media / "mp4_missing_audio_stsd.mp4")).of_kind(TrackKind.AUDIO)
    assert not unreadable.decodable
    assert "unknown codec" in unreadable.name

import json
from fractions import Fraction
from pathlib import Path

import pytest

from codecfleet.jobs.probe.job import ProbeReport, probe

NOT_FOOTAGE = {"MANIFEST.json", "reserved.bin"}

ODDITIES = {
    "audio_only_opus_frag.mp4": {"no-video"},
    "cam_h264_interlaced_opengop_360i.mp4": {"interlaced", "open-gop"},
    "derived_hevc10_opengop_cra_rasl_360p.mp4": {"open-gop"},
    "derived_av1_svt_multigop_360p_opus.mkv": set(),
    "encrypted_cenc_tenc_only.mp4": {"encrypted", "undecodable", "no-keyframe-flags"},
    "hevc_dovi_p5_1080p.mp4": {"dolby-vision-5", "single-gop"},
    "hevc_multi_stsd_reschange_128.mp4": {"parameters-change", "picture-changes"},
    "hevc_mvhevc_multiview_1080p.mov": {"second-view", "single-gop"},
    "mov_3elist.mov": {"edit-list-discards"},
    "mp4_editlist_positive_shift.mp4": {"sound-offset"},
    "mp4_missing_audio_stsd.mp4": {"unknown-codec", "single-gop"},
    "phone_slowmo_gap_vfr_h264.mp4": {"variable-frame-rate", "gap", "single-gop"},
    "reschange_h264_848_to_424.h264": {"parameters-change", "picture-changes", "no-pts", "dts-missing"},
    "stream_missing_sei_pes.ts": {"pts-missing", "dts-missing", "single-gop"},
}


@pytest.fixture
def film_report(film: Path) -> ProbeReport:
    """The probe's report of the bundled film."""
    return probe(film)


GROWING = {"hevc_multi_stsd_reschange_128.mp4": (128, 256), "reschange_av1_up.ivf": (1280, 720)}
"""The largest size in files whose first pictures are smaller."""


def test_the_bundled_film_is_described(film_report: ProbeReport) -> None:
    """240 pictures of 1080p24 with sound, and the places where they can be cut."""
    video, sound = film_report.tracks[:2]
    assert video.video is not None
    assert video.video.picture is not None
    assert video.video.timeline is not None
    assert (video.video.picture.width, video.video.picture.height, video.video.picture.decoded) == (1920, 1080, True)
    assert video.video.timeline.pictures == 240
    assert video.video.timeline.rate.measured_fps == 24
    assert video.video.timeline.duration_s == 10
    assert video.video.segments == len(video.video.cuts) + 1
    assert (sound.kind, sound.codec) == ("audio", "aac")


def test_the_lines_name_every_track_and_oddity(film_report: ProbeReport) -> None:
    """The text output for people states the same facts as the JSON for programs."""
    text = "\n".join(film_report.lines())
    assert all(f"track {track.index} ({track.kind})" in text for track in film_report.tracks)
    assert all(oddity.code in text for oddity in film_report.oddities)


@pytest.mark.parametrize("name", sorted(ODDITIES))
def test_oddities_are_found(shared_media: Path, name: str) -> None:
    """Each tricky file has the oddity that it was chosen for, and no other."""
    assert {oddity.code for oddity in probe(str(shared_media / name)).oddities} == ODDITIES[name]


def test_every_file_can_be_probed(shared_media: Path) -> None:
    """Each file of the footage can be probed into lines and JSON, and has the known number of packets."""
    entries = json.loads((shared_media / "MANIFEST.json").read_text())
    manifest = {entry["file"]: entry for entry in entries}
    for path in sorted(path for path in shared_media.iterdir() if path.name not in NOT_FOOTAGE):
        report = probe(str(path))
        assert report.lines()
        assert json.loads(json.dumps(report.model_dump(mode="json")))["schema"] == 1
        known, found = manifest[path.name]["video"], [track.video for track in report.tracks if track.video is not None]
        assert len(known) == len(found)
        if known and found[0].timeline is not None and found[0].picture is not None:
            size = (found[0].picture.width, found[0].picture.height)
            assert size == GROWING.get(path.name, (known[0]["width"], known[0]["height"]))
            assert found[0].timeline.packets == manifest[path.name]["packets"]


def test_values_of_hdr_and_rotation_are_read(shared_media: Path) -> None:
    """HDR10 values, rotation, chapters and attachments are reported."""
    report = probe(str(shared_media / "hevc_hdr10_mastering_rot_attach.mkv"))
    picture = next(track.video.picture for track in report.tracks if track.video is not None)
    assert picture is not None
    assert picture.hdr is not None
    assert picture.hdr.max_luminance is not None
    assert picture.rotation_degrees != 0
    assert len(report.chapters) == 2
    assert any(track.attachment for track in report.tracks)


def test_a_truncated_file_is_measured_by_its_packets(shared_media: Path) -> None:
    """The header claims 708 frames and 23 s; the packets last 2 s."""
    report = probe(str(shared_media / "truncated_mp4_white_zombie_sar2.mp4"))
    assert report.oddity("header-duration-lies") is not None
    assert report.oddity("header-frames-lie") is not None
    assert report.duration_s is not None
    assert report.duration_s < Fraction(3)

"""HDR10+ metadata, which each picture keeps through cutting, encoding and joining."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import pytest

from codecfleet import Report
from codecfleet.actors.decode.describe import frame_side_data
from codecfleet.actors.media.av_stream import extradata
from codecfleet.errors import WouldLose
from codecfleet.jobs.verify.reference.hdr10plus import MessageReader
from codecfleet.jobs.verify.verdict import Verdict
from codecfleet.testing.clips import Clip, constant_times, make_clip
from tests.hdr10plus_films import FRAMES, changes_only, every, hevc, message, rewritten
from tests.sweeps import swept

from .local_jobs import planned, spec_of, transcode, verified
from .test_resume import interrupted

pytestmark = pytest.mark.timeout(180)

CHECKS = ("metadata.hdr10plus", "metadata.hdr10plus-message")


def messages(path: Path) -> list[bytes]:
    """Return each picture's message, in presentation order, as the reader of ``verify`` finds it."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        reader = MessageReader(stream.codec_context.codec.canonical_name, extradata(stream))
        found = [
            (packet.pts or 0, reader.read(bytes(packet)) or b"") for packet in container.demux(stream) if packet.size
        ]
    return [message for _, message in sorted(found)]


def values(path: Path) -> list[bytes]:
    """Return the metadata of each picture, as FFmpeg's decoders give it."""
    with av.open(str(path)) as container:
        return [frame_side_data(frame).get("DYNAMIC_HDR_PLUS", b"") for frame in container.decode(video=0)]


def encoded(source: Path, output: Path, **options: object) -> tuple[Report, Verdict]:
    """Transcode with fast presets, in segments of half a second or longer, and verify."""
    spec = spec_of(
        source, output, **{"preset": 7 if output.suffix == ".mp4" else 1, "segment_s": Fraction(1, 2), **options}
    )
    report = transcode(spec)
    return report, verified(source, output, report)


def faults(verdict: Verdict) -> list[str]:
    """Return the names of the checks that failed, and of HDR10+ checks that were not made."""
    made = {check.name for check in verdict.checks if check.passed}
    return [*(check.name for check in verdict.checks if check.passed is False), *(set(CHECKS) - made)]


@pytest.mark.parametrize(
    ("codec", "name"),
    swept([("hevc", "o.mkv"), ("av1", "o.mp4"), ("hevc", "o.ts")], in_ci=True, is_slow=lambda case: case[1] == "o.ts"),
)
def test_each_picture_keeps_its_metadata(codec: str, name: str, tmp_path: Path) -> None:
    """Messages, and FFmpeg's values of them, stay equal over several segments, and back into the other codec."""
    source = hevc(tmp_path, every)
    report, verdict = encoded(source, tmp_path / name, codec=codec)
    assert len(report.segments) > 2
    assert report.warnings == ()
    assert faults(verdict) == []
    wanted = [message(number) for number in range(FRAMES)]
    assert messages(tmp_path / name) == wanted
    assert values(tmp_path / name) == values(source)
    _, verdict = encoded(tmp_path / name, tmp_path / "again.mp4", codec="hevc" if codec == "av1" else "av1")
    assert faults(verdict) == []
    assert messages(tmp_path / "again.mp4") == wanted


def test_messages_that_hold_for_several_pictures(tmp_path: Path) -> None:
    """A segment may begin at a keyframe without a message; each picture gets a message of its own."""
    source = hevc(tmp_path, changes_only())
    for codec, name in (("hevc", "o.mkv"), ("av1", "o.mp4")):
        report, verdict = encoded(source, tmp_path / name, codec=codec)
        assert len(report.segments) > 2
        assert faults(verdict) == []
        assert messages(tmp_path / name) == messages(source)
        assert values(tmp_path / name) == values(source)
    part = {"start_s": Fraction(4, 5), "end_s": Fraction(6, 5)}
    report = transcode(spec_of(source, tmp_path / "part.mp4", codec="av1", preset=7, **part))
    assert messages(tmp_path / "part.mp4") == messages(source)[20:30]


def test_metadata_that_begins_late(tmp_path: Path) -> None:
    """Pictures before the first message have none; a part without messages has nothing to lose."""
    source = hevc(tmp_path, lambda number: number if number >= 30 else None)
    _, verdict = encoded(source, tmp_path / "o.mp4", codec="av1")
    assert faults(verdict) == []
    found = messages(tmp_path / "o.mp4")
    assert found == messages(source)
    assert found[:20] == [b""] * 20
    assert found[30:] == [message(number) for number in range(30, FRAMES)]
    assert [w.code for w in planned(source, "a.mkv", codec="h264").warnings] == ["hdr10plus-dropped"]
    assert planned(source, "a.mkv", codec="h264", end_s=Fraction(1, 2)).warnings == ()


def test_vp9_in_webm(tmp_path: Path) -> None:
    """WebM has the metadata beside the packets."""
    clip = Clip(
        times=constant_times(FRAMES), encoder="libvpx-vp9", options=(("deadline", "realtime"), ("cpu-used", "8"))
    )
    structures = values(hevc(tmp_path, every))
    source = rewritten(make_clip(tmp_path / "v.webm", clip), tmp_path / "source.webm", bytes, iter(structures))
    for codec, name in (("hevc", "o.mkv"), ("av1", "o.mp4")):
        _, verdict = encoded(source, tmp_path / name, codec=codec)
        assert verdict.exact, verdict.lines()
        assert messages(tmp_path / name) == [message(number) for number in range(FRAMES)]
        assert values(tmp_path / name) == structures
    assert [w.code for w in planned(source, "a.webm", codec="vp9").warnings] == ["hdr10plus-dropped"]


def test_another_frame_rate_and_size(tmp_path: Path) -> None:
    """Repeated pictures repeat their metadata, which describes the whole picture at any size."""
    source = hevc(tmp_path, every)
    report, verdict = encoded(source, tmp_path / "o.mp4", codec="av1", fps="30", scale=(32, 24))
    assert faults(verdict) == []
    assert [warning.code for warning in report.warnings] == []
    found = messages(tmp_path / "o.mp4")
    assert (len(found), len(set(found)), found == sorted(found)) == (60, FRAMES, True)
    assert found[0] == message(0)
    assert found[-1] == message(FRAMES - 1)


def test_the_bytes_are_the_same_for_any_workers_and_after_a_restart(tmp_path: Path) -> None:
    """One worker, three workers and an interrupted job give the same file."""
    source = hevc(tmp_path, every)
    options: dict[str, Any] = {"codec": "hevc", "preset": 1, "segment_s": Fraction(1, 2)}
    found = {
        transcode(spec_of(source, tmp_path / f"{n}.mp4", workers=n, **options), slots=n).proof.output_sha256
        for n in (1, 3)
    }
    spec = spec_of(source, tmp_path / "again.mp4", **options)
    interrupted(spec, after=2)
    again = transcode(spec)
    assert again.resumed is not None
    assert found == {again.proof.output_sha256}


def test_what_loses_it_is_named(tmp_path: Path) -> None:
    """``strict`` refuses other codecs and steps that change the picture, and the error names the cause."""
    source = hevc(tmp_path, every)
    cases: list[tuple[dict[str, object], str]] = [
        ({"codec": "h264"}, "does not write it in h264"),
        ({"codec": "vp9"}, "does not write it in vp9"),
        ({"codec": "hevc", "crop": "32:32:0:0"}, "are changed"),
        ({"codec": "av1", "pad": "64:64"}, "are changed"),
    ]
    for asked, words in cases:
        with pytest.raises(WouldLose, match=rf"HDR10\+ dynamic metadata is lost: .*{words}"):
            planned(source, "a.mkv", strict=True, **asked)


def test_windows_do_not_survive_scaling(tmp_path: Path) -> None:
    """Windows are places in the picture, so only pictures of the same size keep them."""
    source = hevc(tmp_path, every, windows=2)
    assert planned(source, "a.mkv", codec="hevc").warnings == ()
    (lost,) = planned(source, "a.mkv", codec="hevc", scale=(32, 24)).warnings
    assert lost.code == "hdr10plus-dropped"


def test_verify_finds_metadata_on_the_wrong_picture(tmp_path: Path) -> None:
    """Both of its readers see that two pictures have each other's message."""
    source = hevc(tmp_path, every)
    report, verdict = encoded(source, tmp_path / "o.mp4", codec="av1")
    assert faults(verdict) == []
    swapped = {message(20): message(21), message(21): message(20)}

    def change(packet: Any) -> bytes:
        data = bytes(packet)
        found = next((each for each in swapped if each in data), b"")
        return data.replace(found, swapped[found]) if found else data

    rewritten(tmp_path / "o.mp4", tmp_path / "wrong.mp4", change)
    wrong = verified(source, tmp_path / "wrong.mp4", report)
    assert [(check.name, check.found) for check in wrong.checks if check.name in CHECKS and not check.passed] == [
        (name, f"{FRAMES}, 2 of them different") for name in CHECKS
    ]


def test_malformed_metadata_counts_as_none(tmp_path: Path) -> None:
    """FFmpeg's AV1 decoder refuses packets with such messages, so they must not be copied."""
    source = hevc(tmp_path, every, change=lambda payload: payload[:20])
    report, verdict = encoded(source, tmp_path / "o.mp4", codec="av1")
    assert report.warnings == ()
    assert verdict.exact, verdict.lines()
    assert b"\xb5\x00\x3c\x00\x01\x04" not in (tmp_path / "o.mp4").read_bytes()

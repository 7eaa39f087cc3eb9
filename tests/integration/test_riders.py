"""Late side data, cropping by the container, and alpha."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import pytest
from av.sidedata.sidedata import Type

from codecfleet.actors.decode.describe import frame_side_data
from codecfleet.actors.media.av_stream import add_side_data, copy_parameters
from codecfleet.errors import Unsupported, WouldLose
from codecfleet.jobs.plan.plan import plan_transcode
from codecfleet.jobs.probe.job import probe
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.jobs.verify.job import verify
from codecfleet.testing.clips import Clip, constant_times, make_clip

from .local_jobs import published

pytestmark = pytest.mark.timeout(120)

FRAMES, LATE = 50, 30
CAPTIONS = b"\xb5\x00\x31GA94\x03\x42\xff\xfc\x80\x80\xfd\x80\x80\xff"


def rewritten(
    source: Path, output: Path, change: Callable[[int, bytes], bytes], side: Mapping[str, bytes] | None = None
) -> Path:
    """Copy a film's packets, each changed by its picture's number, and add side data to the header."""
    with av.open(str(source)) as before, av.open(str(output), "w") as after:
        stream = before.streams.video[0]
        packets = [packet for packet in before.demux(stream) if packet.size]
        order = {pts: number for number, pts in enumerate(sorted(packet.pts or 0 for packet in packets))}
        copy = after.add_mux_stream(stream.codec_context.codec.canonical_name, width=64, height=48)
        copy_parameters(copy, stream)
        copy.time_base = stream.time_base
        for kind, data in (side or {}).items():
            add_side_data(copy, kind, data)
        for packet in packets:
            data = change(order[packet.pts or 0], bytes(packet))
            new: Any = av.Packet(len(data))
            new.update(data)
            new.pts, new.dts, new.duration = packet.pts, packet.dts, packet.duration
            new.time_base, new.is_keyframe, new.stream = packet.time_base, packet.is_keyframe, copy
            after.mux(new)
    return output


def late(header: bytes, payload: bytes) -> Callable[[int, bytes], bytes]:
    """Return a function that adds a message to the packets of late pictures."""
    unit = header + bytes((4, len(payload))) + payload + b"\x80"

    def change(number: int, data: bytes) -> bytes:
        return data if number < LATE else len(unit).to_bytes(4) + unit + data

    return change


def captioned(folder: Path) -> Path:
    """Return an H.264 film with B-pictures, whose captions begin at the 31st displayed picture."""
    clip = Clip(times=constant_times(FRAMES), keyframes=frozenset({0, 25}), options=(("bf", "3"),))
    return rewritten(make_clip(folder / "plain.mp4", clip), folder / "late.mp4", late(b"\x06", CAPTIONS))


def pictures_with(path: Path, kind: Type) -> list[int]:
    """Return the numbers of pictures that have side data of a kind."""
    with av.open(str(path)) as container:
        frames = list(container.decode(video=0))
    return [number for number, frame in enumerate(frames) if any(entry.type == kind for entry in frame.side_data)]


def planned(source: Path, output: str, **asked: object) -> list[str]:
    """Return the codes of a plan's losses."""
    spec = TranscodeSpec.model_validate({"source": str(source), "output": output} | asked)
    return [warning.code for warning in plan_transcode(spec).warnings]


def test_late_captions_are_carried(tmp_path: Path) -> None:
    """Each picture keeps its captions, wherever they begin."""
    _, verdict = published(captioned(tmp_path), tmp_path / "out.mp4")
    assert verdict.exact, verdict.lines()
    assert pictures_with(tmp_path / "out.mp4", Type.A53_CC) == list(range(LATE, FRAMES))


def test_late_captions_that_are_lost_are_named_with_their_time(tmp_path: Path) -> None:
    """AV1, or another frame rate, loses captions: the plan says so if the part has any, and ``strict`` refuses."""
    source = captioned(tmp_path)
    for asked in ({"codec": "av1"}, {"fps": "30"}):
        assert planned(source, "a.mp4", **asked) == ["captions-dropped"]
        with pytest.raises(WouldLose, match=r"closed captions, from 1\.200 s on, are lost"):
            planned(source, "a.mp4", strict=True, **asked)
    assert planned(source, "a.mp4", codec="av1", end_s="1.2", strict=True) == []
    assert planned(source, "a.mp4", codec="av1", start_s="1.3") == ["captions-dropped"]


def test_probe_says_when_captions_begin(tmp_path: Path) -> None:
    """The time is that of the first displayed picture with captions, not of the first packet."""
    facts = probe(str(captioned(tmp_path)))
    picture = facts.tracks[0].video.picture if facts.tracks[0].video else None
    assert picture is not None
    assert picture.captions
    assert [(r.kind, r.first_s, r.last_s) for r in picture.riders] == [("A53_CC", Fraction(6, 5), Fraction(49, 25))]
    assert "begins-late" in [oddity.code for oddity in facts.oddities]


def test_two_views_that_begin_late_are_named(tmp_path: Path) -> None:
    """A container states one arrangement for all pictures, and the first picture has none."""
    plain = make_clip(tmp_path / "plain.mp4", Clip(times=constant_times(FRAMES)))
    unit = b"\x06\x2d\x06\x81\x81\x00\x00\x00\x40\x80"

    def change(number: int, data: bytes) -> bytes:
        return data if number < LATE else len(unit).to_bytes(4) + unit + data

    source = rewritten(plain, tmp_path / "late.mp4", change)
    assert planned(source, "a.mkv") == ["stereo3d-dropped"]
    assert planned(source, "a.mkv", end_s="1") == []


def cropped(folder: Path, name: str, edges: tuple[int, int, int, int], pix_fmt: str = "yuv420p") -> Path:
    """Return a film whose container crops pixels at top, bottom, left and right."""
    plain = make_clip(folder / f"plain{Path(name).suffix}", Clip(times=constant_times(10), pix_fmt=pix_fmt))
    side = {"frame_cropping": b"".join(edge.to_bytes(4, "little") for edge in edges)}
    return rewritten(plain, folder / name, lambda _, data: data, side)


@pytest.mark.parametrize("name", ["a.mkv", "a.mp4", "a.mov"])
def test_what_the_container_crops_is_cropped(tmp_path: Path, name: str) -> None:
    """The output shows the cropped picture, and ``verify`` agrees with and without the report."""
    source = cropped(tmp_path, name, (8, 4, 16, 2))
    report, verdict = published(source, tmp_path / f"out{Path(name).suffix}")
    assert verdict.exact, verdict.lines()
    assert report.steps is not None
    assert report.steps.crop == (46, 36, 16, 8)
    assert "container-crop" in [choice.code for choice in report.choices]
    assert verify(source, tmp_path / f"out{Path(name).suffix}").exact


def test_a_crop_counts_from_what_the_container_shows(tmp_path: Path) -> None:
    """``--crop`` counts from the edges of the picture that the container shows."""
    source = cropped(tmp_path, "a.mkv", (8, 4, 16, 2))
    report, verdict = published(source, tmp_path / "out.mkv", crop="20:16:2:4")
    assert verdict.exact, verdict.lines()
    assert report.steps is not None
    assert report.steps.crop == (20, 16, 18, 12)
    with pytest.raises(Unsupported, match="46x36"):
        planned(source, "b.mkv", crop="48:36:0:0")


@pytest.mark.parametrize(
    ("pix_fmt", "crop", "codes"), [("yuv420p", (54, 38, 4, 6), ["crop-rounded"]), ("yuv444p", (56, 39, 3, 5), [])]
)
def test_a_crop_through_chroma_moves_inwards(
    tmp_path: Path, pix_fmt: str, crop: tuple[int, int, int, int], codes: list[str]
) -> None:
    """Only whole chroma samples are shown, and the loss is reported."""
    source = cropped(tmp_path, "a.mkv", (5, 4, 3, 5), pix_fmt)
    report, verdict = published(source, tmp_path / "out.mkv")
    assert verdict.exact, verdict.lines()
    assert report.steps is not None
    assert report.steps.crop == crop
    assert [warning.code for warning in report.warnings] == codes


@pytest.mark.parametrize(
    ("encoder", "pix_fmt", "name"),
    [("ffv1", "yuva420p", "a.mkv"), ("prores_ks", "yuva444p10le", "a.mov"), ("png", "rgba", "a.mov")],
)
def test_alpha_is_lost_by_name(tmp_path: Path, encoder: str, pix_fmt: str, name: str) -> None:
    """No output holds alpha: its loss is reported for any requested format, and refused by strict."""
    source = make_clip(tmp_path / name, Clip(times=constant_times(4), encoder=encoder, pix_fmt=pix_fmt))
    assert "alpha-dropped" in planned(source, "b.mp4")
    assert "alpha-dropped" in planned(source, "b.mp4", pix_fmt="yuv420p")
    with pytest.raises(WouldLose, match="alpha"):
        planned(source, "b.mp4", strict=True)


@pytest.mark.parametrize("encoder", ["libvpx", "libvpx-vp9"])
def test_alpha_in_side_blocks_is_lost_by_name(tmp_path: Path, encoder: str) -> None:
    """VP8 and VP9 keep alpha beside the picture, where their decoders do not look."""
    clip = Clip(times=constant_times(4), encoder=encoder, pix_fmt="yuva420p", options=(("auto-alt-ref", "0"),))
    assert planned(make_clip(tmp_path / "a.webm", clip), "b.mkv") == ["alpha-dropped"]


def test_active_format_descriptions_are_kept(tmp_path: Path) -> None:
    """Each picture has its own, in H.264 and HEVC, unless a step changes the picture; AV1 has no place for it."""

    def described(number: int, data: bytes) -> bytes:
        unit = b"\x06" + bytes((4, 9)) + b"\xb5\x00\x31DTG1\x41" + bytes((0xF0 | number % 16,)) + b"\x80"
        return len(unit).to_bytes(4) + unit + data if number % 3 else data

    clip = Clip(times=constant_times(FRAMES), keyframes=frozenset({0, 25}), options=(("bf", "3"),))
    source = rewritten(make_clip(tmp_path / "plain.mp4", clip), tmp_path / "described.mp4", described)
    report, verdict = published(source, tmp_path / "o.mkv", codec="hevc", segment_s="0.5")
    assert verdict.exact, verdict.lines()
    assert len(report.segments) > 1
    _, verdict = published(tmp_path / "o.mkv", tmp_path / "again.mp4")
    assert verdict.exact, verdict.lines()
    wanted = [bytes((number % 16,)) if number % 3 else None for number in range(FRAMES)]
    for name in ("described.mp4", "o.mkv", "again.mp4"):
        with av.open(str(tmp_path / name)) as container:
            assert [frame_side_data(frame).get("AFD") for frame in container.decode(video=0)] == wanted
    assert planned(source, "a.mp4", codec="av1") == ["afd-dropped"]
    assert planned(source, "a.mp4", codec="h264", crop="32:32:0:0") == ["afd-dropped"]

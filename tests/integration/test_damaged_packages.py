"""A package with one wrong byte, time, file or value is refused, and the error names the track and the segment."""

import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from codecfleet.errors import ProofFailed
from codecfleet.jobs.package.check import check_package
from codecfleet.jobs.package.values import Layout, Package, PackagedTrack, PlayedKind
from codecfleet.testing.clips import Clip, constant_times, make_clip, uneven_times

from ..subtitle_tracks import Cue, with_subtitles
from .packages import film, packaged, proven, tracks_of

SECOND, THIRD = 1, 2


@dataclass(frozen=True)
class Written:
    """A package in both layouts, which tests copy."""

    folder: Path
    packages: dict[Layout, Package]

    def copy(self, folder: Path, layout: Layout) -> Package:
        """Copy the package of a layout into a folder."""
        shutil.copytree(self.folder / layout.value, folder)
        return self.packages[layout]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Two renditions with B-frames, and their sound, in three segments."""
    folder = tmp_path_factory.mktemp("packages")
    source = film(folder / "film.mkv")
    made = proven(source, folder / "a.mp4")
    small = proven(source, folder / "b.mp4", codec="hevc", audio="none")
    given = [*tracks_of(made), *tracks_of(small, "small-")]
    return Written(folder, {layout: packaged(folder / layout.value, given, layout) for layout in Layout})


@pytest.mark.parametrize("layout", Layout)
def test_an_undamaged_package_passes(written: Written, tmp_path: Path, layout: Layout) -> None:
    """What was written is what is read."""
    check_package(tmp_path / "copy", written.copy(tmp_path / "copy", layout))


def box_in_segment(kind: bytes, place: int, value: bytes) -> Callable[[bytearray, PackagedTrack], None]:
    """Return a change: ``value`` at ``place`` of the first box of a kind in the second segment."""

    def change(data: bytearray, track: PackagedTrack) -> None:
        begin = data.index(kind, track.segments[SECOND].offset_bytes) + 4 + place
        assert data[begin : begin + len(value)] != value
        data[begin : begin + len(value)] = value

    return change


def box_in_header(kind: bytes, place: int, value: bytes) -> Callable[[bytearray, PackagedTrack], None]:
    """Return a change: ``value`` at ``place`` of the first box of a kind."""

    def change(data: bytearray, _: PackagedTrack) -> None:
        begin = data.index(kind) + 4 + place
        assert data[begin : begin + len(value)] != value
        data[begin : begin + len(value)] = value

    return change


def last_byte(data: bytearray, track: PackagedTrack) -> None:
    """Change the last byte of the second segment, which belongs to a packet."""
    data[track.segments[THIRD].offset_bytes - 1] ^= 1


def longer(data: bytearray, _: PackagedTrack) -> None:
    """Add a byte."""
    data.append(0)


def shorter(data: bytearray, _: PackagedTrack) -> None:
    """Remove the last byte."""
    del data[-1]


BYTES = {
    "payload": ("video", last_byte, "video: segment 2: the packet at tick"),
    "payload of sound": ("audio", last_byte, "audio: segment 2: the packet at tick"),
    "tfdt": (
        "video",
        box_in_segment(b"tfdt", 4, (31_000).to_bytes(8)),
        "video: segment 2: a fragment begins at tick 31000",
    ),
    "tfdt of sound": ("audio", box_in_segment(b"tfdt", 4, bytes(8)), "audio: segment 2: a fragment begins at tick 0"),
    "duration": ("video", box_in_segment(b"tfhd", 8, (500).to_bytes(4)), "video: segment 2: a fragment begins at tick"),
    "duration of sound": ("audio", box_in_segment(b"tfhd", 8, (9).to_bytes(4)), "audio: segment 2: it lasts 846 ticks"),
    "key flag": (
        "video",
        box_in_segment(b"trun", 12, b"\1\1\0\0"),
        "video: segment 2: .* not begin with a keyframe",
    ),
    "default flag": ("video", box_in_segment(b"tfhd", 12, b"\2\0\0\0"), "video: segment 2: .* keyframe"),
    "composition": ("video", box_in_segment(b"trun", 20, b"\0\0\1\1"), "video: segment 2: the packet at tick"),
    "sample size": ("video", box_in_segment(b"trun", 16, b"\0\0\1\1"), "video: segment 2: the samples .* do not fill"),
    "data offset": ("video", box_in_segment(b"trun", 8, b"\0\0\1\1"), "video: segment 2: the samples .* do not fill"),
    "mdat size": ("video", box_in_segment(b"mdat", -8, b"\x7f"), "video: segment 2: "),
    "base": ("video", box_in_segment(b"tfhd", 1, b"\0"), "video: segment 2: .* own beginning"),
    "number": ("video", box_in_segment(b"mfhd", 7, b"\x99"), "video: segment 2: a fragment has the number 153"),
    "kind": ("video", box_in_segment(b"moof", -4, b"free"), "video: segment 2: .* instead of moof and mdat"),
    "index, size": ("video", box_in_header(b"sidx", 33, b"\1"), "video: segment 1: the index states"),
    "index, duration": ("video", box_in_header(b"sidx", 48, b"\1"), "video: segment 2: the index states"),
    "index, keyframe": ("video", box_in_header(b"sidx", 52, b"\0"), "video: segment 2: the index states"),
    "index, start": ("video", box_in_header(b"sidx", 19, b"\1"), "video: the segment index begins at 1"),
    "index, offset": ("video", box_in_header(b"sidx", 27, b"\1"), "video: the segment index skips 1"),
    "index, ticks": ("video", box_in_header(b"sidx", 11, b"\1"), "video: the segment index has ticks"),
    "index, count": ("video", box_in_header(b"sidx", 31, b"\2"), "video: the segment index counts 2"),
    "brand": ("video", box_in_header(b"ftyp", 12, b"cmfx"), "video: the header lacks the brand cmfc"),
    "ticks": ("video", box_in_header(b"mdhd", 12, b"\0\0\1\1"), "video: a tick is 1/257 s"),
    "edit": ("video", box_in_header(b"elst", 14, b"\x7f\xff"), "video: segment 1: the packet at tick"),
    "edit of sound": ("audio", box_in_header(b"elst", 14, b"\0\1"), "audio: segment 1: it lasts 97279 ticks"),
    "edit, duration": ("audio", box_in_header(b"elst", 11, b"\1"), "audio: the edit does more than move times"),
    "edits": ("audio", box_in_header(b"elst", 7, b"\2"), "audio: the edit list has 2 edits"),
    "codec": ("video", box_in_header(b"avcC", 3, b"\x28"), "video: the codec is avc1.640028"),
    "longer": ("video", longer, "video: video.mp4 has"),
    "shorter": ("audio", shorter, "audio: audio.mp4 has"),
}
"""The track's file, the change, and the error."""


@pytest.mark.parametrize(("name", "change", "error"), BYTES.values(), ids=BYTES)
def test_wrong_bytes_are_found(
    written: Written, tmp_path: Path, name: str, change: Callable[[bytearray, PackagedTrack], None], error: str
) -> None:
    """One wrong field or byte of a file is enough."""
    package = written.copy(tmp_path / "copy", Layout.RANGES)
    path = tmp_path / f"copy/{name}.mp4"
    data = bytearray(path.read_bytes())
    change(data, next(track for track in package.tracks if track.given.name == name))
    path.write_bytes(data)
    with pytest.raises(ProofFailed, match=error):
        check_package(tmp_path / "copy", package)


def with_segment(package: Package, kind: PlayedKind, number: int, **changes: Any) -> Package:
    """Return the package with other values of one segment."""
    (track, *_) = package.of(kind)
    segments = [replace(each, **changes) if n == number else each for n, each in enumerate(track.segments)]
    return with_track(package, kind, segments=tuple(segments))


def with_track(package: Package, kind: PlayedKind, **changes: Any) -> Package:
    """Return the package with other values of the first track of a kind."""
    (track, *_) = package.of(kind)
    return replace(
        package, tracks=tuple(replace(each, **changes) if each is track else each for each in package.tracks)
    )


V, A = PlayedKind.VIDEO, PlayedKind.AUDIO
VALUES: dict[str, tuple[Callable[[Package], Package], str]] = {
    "start": (lambda p: with_segment(p, V, SECOND, start_ticks=31_999), "video: segment 2: it begins at tick 32000"),
    "duration": (
        lambda p: with_segment(p, V, SECOND, duration_ticks=1),
        "video: segment 2: .*32000",
    ),
    "start of sound": (lambda p: with_segment(p, A, THIRD, start_ticks=1), "audio: segment 3: it begins at tick"),
    "position": (lambda p: with_segment(p, V, THIRD, offset_bytes=9), "video: segment 3: it begins at byte"),
    "size": (lambda p: with_segment(p, V, THIRD, size_bytes=9), "video: .* bytes instead of"),
    "keyframe": (lambda p: with_segment(p, V, SECOND, keyframe_bytes=9), "video: segment 2: its keyframe ends at byte"),
    "header": (lambda p: with_track(p, V, header_bytes=9), "video: .* bytes instead of"),
    "ticks": (lambda p: with_track(p, V, time_base=Fraction(1, 9)), "video: a tick is 1/16000 s"),
    "codec": (lambda p: with_track(p, V, codec="avc1.42E01E"), "video: the codec is avc1.64000A"),
    "grid": (lambda p: replace(p, segment_s=Fraction(3)), "video: segment 2: it begins at tick 32000, but is due at"),
    "a segment less": (
        lambda p: with_track(p, V, segments=p.tracks[0].segments[:-1]),
        "video: .* bytes instead of|video: the folder holds video/00003.m4s",
    ),
}


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize(("change", "error"), VALUES.values(), ids=VALUES)
def test_wrong_values_are_found(
    written: Written, tmp_path: Path, layout: Layout, change: Callable[[Package], Package], error: str
) -> None:
    """The package's values must be those of the files."""
    package = written.copy(tmp_path / "copy", layout)
    if layout is Layout.FILES:
        error = error.replace("it begins at byte", "")
    with pytest.raises(ProofFailed, match=error):
        check_package(tmp_path / "copy", change(package))


def test_wrong_files_are_found(written: Written, tmp_path: Path) -> None:
    """A missing, exchanged, foreign or untyped segment file is named."""
    package = written.copy(tmp_path / "copy", Layout.FILES)
    folder = tmp_path / "copy/video"
    second, third = folder / "00002.m4s", folder / "00003.m4s"
    data = second.read_bytes()

    def refused(error: str) -> None:
        with pytest.raises(ProofFailed, match=error):
            check_package(tmp_path / "copy", package)

    second.unlink()
    refused("video: video/00002.m4s has -1 bytes")
    second.write_bytes(data.replace(b"cmfs", b"xxxx", 1))
    refused("video: segment 2: its brands are msdh msdh iso6 xxxx")
    second.write_bytes(data)
    (folder / "00004.m4s").write_bytes(data)
    refused("video: the folder holds video/00004.m4s")
    (folder / "00004.m4s").unlink()
    check_package(tmp_path / "copy", package)
    first = folder / "00001.m4s"
    whole = first.read_bytes()
    first.write_bytes(third.read_bytes())
    refused("video: video/00001.m4s has")
    first.write_bytes(whole)
    check_package(tmp_path / "copy", package)


def is_h264_idr(head: int) -> bool:
    """Return whether a NAL unit with this first byte is of an IDR picture."""
    return head & 0x1F == 5


def is_hevc_idr(head: int) -> bool:
    """Return whether a NAL unit with this first byte is of an IDR picture."""
    return head >> 1 in (19, 20)


@pytest.mark.parametrize(
    ("name", "is_idr", "ordinary"), [("video", is_h264_idr, 0x61), ("small-video", is_hevc_idr, 0x02)]
)
def test_a_segment_without_idr_is_found(
    written: Written, tmp_path: Path, name: str, is_idr: Callable[[int], bool], ordinary: int
) -> None:
    """What the files flag as a keyframe must be one, even if the proven file has the same bytes."""
    package = written.copy(tmp_path / "copy", Layout.RANGES)
    track = next(each for each in package.tracks if each.given.name == name)
    path, source = tmp_path / f"copy/{name}.mp4", tmp_path / "proven.mp4"
    data, proven_data = bytearray(path.read_bytes()), bytearray(track.given.path.read_bytes())
    segment = track.segments[SECOND]
    end = segment.offset_bytes + segment.keyframe_bytes
    place = data.index(b"mdat", segment.offset_bytes) + 4
    keyframe = bytes(data[place:end])
    at = 0
    while not is_idr(keyframe[at + 4]):
        at += 4 + int.from_bytes(keyframe[at : at + 4])
    data[place + at + 4] = proven_data[proven_data.index(keyframe) + at + 4] = ordinary
    path.write_bytes(data)
    source.write_bytes(proven_data)
    damaged = replace(track, given=replace(track.given, path=source))
    with pytest.raises(ProofFailed, match=f"^{name}: segment 2: .*keyframe"):
        check_package(tmp_path / "copy", replace(package, tracks=(damaged,)))


def test_wrong_times_that_agree_with_each_other_are_found(tmp_path: Path) -> None:
    """Decoding times that still show every picture in time, and a longer last picture, are not the proven file's."""
    clip = Clip(times=uneven_times([40, 20, 33, 70, 41] * 14))
    given = tracks_of(proven(make_clip(tmp_path / "film.mkv", clip), tmp_path / "proven.mp4"))
    package = packaged(tmp_path / "out", given, Layout.FILES)
    check_package(tmp_path / "out", package)
    path = tmp_path / "out/video/00002.m4s"
    whole = bytearray(path.read_bytes())
    rows = whole.index(b"trun") + 20
    first, second = (list(struct.unpack_from(">3I", whole, rows + 12 * n)) for n in range(2))
    data = bytearray(whole)
    struct.pack_into(">6I", data, rows, first[0] + 1, *first[1:], second[0] - 1, second[1], second[2] - 1)
    path.write_bytes(data)
    with pytest.raises(ProofFailed, match="video: decoding times are not the presentation times"):
        check_package(tmp_path / "out", package)
    begin = whole.rindex(b"trun")
    last = begin + 20 + 12 * (int.from_bytes(whole[begin + 8 : begin + 12]) - 1)
    struct.pack_into(">I", whole, last, int.from_bytes(whole[last : last + 4]) + 5)
    path.write_bytes(whole)
    ticks = package.tracks[0].segments[-1].duration_ticks + 5
    with pytest.raises(ProofFailed, match="video: the track ends at tick"):
        check_package(tmp_path / "out", with_segment(package, PlayedKind.VIDEO, SECOND, duration_ticks=ticks))


def test_wrong_text_is_found(tmp_path: Path) -> None:
    """A cue with another time, another word, or none at all is named."""
    cues = [Cue(Fraction(n, 2), f"line {n}".encode(), Fraction(1, 2)) for n in range(3)]
    silent = make_clip(tmp_path / "film.mp4", Clip(times=constant_times(60)))
    source = with_subtitles(silent, tmp_path / "text.mkv", [("subrip", "eng", cues)])
    given = [each for each in tracks_of(proven(source, tmp_path / "proven.mp4")) if each.kind is PlayedKind.TEXT]
    package = packaged(tmp_path / "out", given)
    path = tmp_path / "out/text.vtt"
    whole = path.read_text()
    for old, new in (("line 1", "line 7"), ("01.000 -->", "01.001 -->"), ("WEBVTT", "WEBVTX")):
        path.write_text(whole.replace(old, new))
        changed = with_segment(package, PlayedKind.TEXT, 0, size_bytes=path.stat().st_size)
        with pytest.raises(ProofFailed, match=r"text: text\.vtt"):
            check_package(tmp_path / "out", changed)
    path.write_text(whole[: whole.rindex("\n\n") + 1])
    with pytest.raises(ProofFailed, match=r"text: text\.vtt has 2 cues, and the proven file 3"):
        check_package(tmp_path / "out", with_segment(package, PlayedKind.TEXT, 0, size_bytes=path.stat().st_size))


def test_renditions_of_other_segments_are_found(written: Written, tmp_path: Path) -> None:
    """Each rendition may be whole, and still not fit the others."""
    package = written.copy(tmp_path / "copy", Layout.RANGES)
    folder = written.folder
    source = film(folder / "other.mkv", 4)
    others = packaged(tmp_path / "others", tracks_of(proven(source, folder / "c.mp4", audio="none"), "other-"))
    shutil.copy(tmp_path / "others/other-video.mp4", tmp_path / "copy")
    with pytest.raises(ProofFailed, match="segment 3 differs between video and other-video"):
        check_package(tmp_path / "copy", replace(package, tracks=(*package.tracks, *others.tracks)))

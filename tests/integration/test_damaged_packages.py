"""A package with one wrong byte, time, file or value is refused, and the error names the track and the segment."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from codecfleet.errors import ProofFailed
from codecfleet.jobs.package.check import check_package
from codecfleet.jobs.package.values import Layout, Package, PackagedTrack, TrackKind

from .packages import film, packaged, proven, tracks_of

SECOND, THIRD = 1, 2
IDR = 5


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
    "number": ("video", box_in_segment(b"mfhd", 7, b"\x99"), "video: segment 2: its fragment 153"),
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
    "edit, duration": ("audio", box_in_header(b"elst", 11, b"\1"), "audio: the edit does not only move times"),
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


def with_segment(package: Package, kind: TrackKind, number: int, **changes: Any) -> Package:
    """Return the package with other values of one segment."""
    (track, *_) = package.of(kind)
    segments = [replace(each, **changes) if n == number else each for n, each in enumerate(track.segments)]
    return with_track(package, kind, segments=tuple(segments))


def with_track(package: Package, kind: TrackKind, **changes: Any) -> Package:
    """Return the package with other values of the first track of a kind."""
    (track, *_) = package.of(kind)
    return replace(
        package, tracks=tuple(replace(each, **changes) if each is track else each for each in package.tracks)
    )


V, A = TrackKind.VIDEO, TrackKind.AUDIO
VALUES: dict[str, tuple[Callable[[Package], Package], str]] = {
    "start": (lambda p: with_segment(p, V, SECOND, start_ticks=31_999), "video: segment 2: it begins at tick 32000"),
    "duration": (
        lambda p: with_segment(p, V, SECOND, duration_ticks=1),
        "video: segment 2: (it lasts|the index states)",
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


def test_a_segment_without_idr_is_found(written: Written, tmp_path: Path) -> None:
    """What the files flag as a keyframe must be one, even if the proven file has the same bytes."""
    package = written.copy(tmp_path / "copy", Layout.RANGES)
    (track, *_) = package.of(TrackKind.VIDEO)
    path, source = tmp_path / "copy/video.mp4", tmp_path / "proven.mp4"
    data, proven_data = bytearray(path.read_bytes()), bytearray(track.given.path.read_bytes())
    segment = track.segments[SECOND]
    end = segment.offset_bytes + segment.keyframe_bytes
    place = data.index(b"mdat", segment.offset_bytes) + 4
    keyframe = bytes(data[place:end])
    at = 0
    while keyframe[at + 4] & 0x1F != IDR:
        at += 4 + int.from_bytes(keyframe[at : at + 4])
    data[place + at + 4] = proven_data[proven_data.index(keyframe) + at + 4] = 0x61
    path.write_bytes(data)
    source.write_bytes(proven_data)
    with pytest.raises(ProofFailed, match="video: segment 2: its first picture is no keyframe"):
        check_package(tmp_path / "copy", with_track(package, TrackKind.VIDEO, given=replace(track.given, path=source)))


def test_renditions_of_other_segments_are_found(written: Written, tmp_path: Path) -> None:
    """Each rendition may be whole, and still not fit the others."""
    package = written.copy(tmp_path / "copy", Layout.RANGES)
    folder = written.folder
    source = film(folder / "other.mkv", 4)
    others = packaged(tmp_path / "others", tracks_of(proven(source, folder / "c.mp4", audio="none"), "other-"))
    shutil.copy(tmp_path / "others/other-video.mp4", tmp_path / "copy")
    with pytest.raises(ProofFailed, match="segment 3 differs between video and other-video"):
        check_package(tmp_path / "copy", replace(package, tracks=(*package.tracks, *others.tracks)))

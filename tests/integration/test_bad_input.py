"""Inputs from a hostile user: each case ends with one clear line, the right exit code, and nothing left behind."""

import os
import shutil
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream

from codecfleet.cli.app import run

from .attacks import (
    ON_THREADS,
    QUICK,
    Attack,
    Build,
    attack,
    clip,
    link,
    matroska,
    noise,
    pipe,
    put,
    start_of,
    still,
    with_bytes,
    zeros,
)

__all__ = ["attack", "clip", "matroska"]


pytestmark = pytest.mark.timeout(60)


HEADER = b"\0\0\0\x14ftypisom\0\0\2\0isom"


UNREADABLE: dict[str, tuple[Build, str]] = {
    "missing": (lambda folder, _: folder / "none.mp4", "there is no file"),
    "directory": (lambda folder, _: folder, "is a folder"),
    "empty": (lambda folder, _: put(folder / "empty.mp4", b""), "is empty"),
    "text": (lambda folder, _: put(folder / "text.mp4", "hello world\n" * 99), "not a media file"),
    "noise": (noise, "not a media file"),
    "zeros": (zeros, "not a media file"),
    "cut in the box": (start_of(8), "not a media file"),
    "cut in the header": (lambda folder, _: put(folder / "x.mp4", HEADER + b"\0\0\x10\0moov"), "has no tracks"),
    "nothing but a header": (lambda folder, _: put(folder / "x.mp4", HEADER), "not a media file"),
    "cut in the pictures": (start_of(500), "not a media file"),
    "cut in the name": (lambda folder, _: put(folder / "x.mkv", b"\x1aE\xdf\xa3\xa3B\x86"), "not a media file"),
    "unknown codec": (with_bytes(b"avc1", b"zzz9"), "cannot be decoded here"),
    "no codec header": (with_bytes(b"avcC", b"zzzC"), ""),
    "link to itself": (link("link.mp4"), "cannot be read"),
    "link to nowhere": (link("nowhere.mp4"), "there is no file"),
    "below a file": (lambda _, clip: clip / "x.mp4", "there is no file"),
    "name too long": (lambda folder, _: folder / ("a" * 300 + ".mp4"), "name too long"),
    "pipe": (pipe, "is a pipe or a device"),
    "device": (lambda *_: Path("/dev/zero"), "is a pipe or a device"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_a_source_that_is_no_film(case: str, attack: Attack, clip: Path) -> None:
    """An unreadable film gives exit code 3, whether it is transcoded or only planned."""
    build, words = UNREADABLE[case]
    source = build(attack.folder, clip)
    attack.source_refused(3, words, source=source)
    attack.refused(3, words, arguments=["plan", source])


@pytest.mark.parametrize("bytes_", [60, 300, 600])
def test_a_matroska_that_breaks_off(bytes_: int, attack: Attack, matroska: Path) -> None:
    """A Matroska cut anywhere before the first picture gives exit code 3."""
    attack.source_refused(3, source=put(attack.folder / "cut.mkv", matroska.read_bytes()[:bytes_]))


def test_an_unknown_codec_in_matroska(attack: Attack, matroska: Path) -> None:
    """An unknown codec is reported as such."""
    bogus = matroska.read_bytes().replace(b"V_MPEG4/ISO/AVC", b"V_BOGUS/XYZ/123")
    attack.source_refused(3, "in a codec that cannot be decoded", source=put(attack.folder / "bogus.mkv", bogus))


def test_sound_alone(attack: Attack) -> None:
    """A file without video gives exit code 4, and says so."""
    source = attack.folder / "sound.mp4"
    with av.open(str(source), "w") as container:
        stream = container.add_stream("aac", rate=48_000)
        assert isinstance(stream, AudioStream)
        for number in range(20):
            frame = AudioFrame.from_ndarray(np.zeros((1, 1024), dtype=np.float32), format="fltp", layout="mono")
            frame.sample_rate, frame.pts, frame.time_base = 48_000, number * 1024, Fraction(1, 48_000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    attack.source_refused(4, "has no video", source=source)


def test_an_encrypted_film(attack: Attack, shared_media: Path) -> None:
    """Encrypted pictures give exit code 3, not a grey film."""
    attack.source_refused(3, "encrypted", source=shared_media / "encrypted_cenc_tenc_only.mp4")


def test_a_cut_off_film_keeps_what_there_is(attack: Attack, film: Path) -> None:
    """A download that broke off gives the pictures before the break, and says what is damaged."""
    data = film.read_bytes()
    source = put(attack.folder / "cut.mp4", data[: len(data) // 2])
    assert run(["transcode", *QUICK, "--scale", "64x36", str(source), str(attack.out / "o.mp4")], ON_THREADS) == 0


@pytest.mark.parametrize("codec", ["h264", "hevc", "av1", "vp9"])
@pytest.mark.parametrize("size", [(16, 4000), (4000, 16), (1, 1), (3, 3), (2, 2)])
def test_odd_shapes(codec: str, size: tuple[int, int], attack: Attack) -> None:
    """A picture of extreme shape or size is encoded, or refused with the reason; nothing hangs."""
    source = still(attack.folder / "still.mkv", *size)
    refusing = {"h264": min(size) < 2, "hevc": min(size) < 16, "av1": min(size) < 4 or max(size) > 64, "vp9": False}
    if refusing[codec]:
        attack.source_refused(4, f"{size[0]}x{size[1]}", "--codec", source=source, options=("--codec", codec))
    else:
        attack.transcodes(source, None, "--codec", codec)


def test_a_single_frame(attack: Attack) -> None:
    """A film of one picture works in any container."""
    source = still(attack.folder / "one.mkv", 64, 48, frames=1)
    for name in ("o.mp4", "o.mkv", "o.webm", "o.ts", "o.ivf"):
        attack.transcodes(source, attack.out / name, *(["--codec", "vp9"] if name == "o.ivf" else []))


def test_eight_k(attack: Attack) -> None:
    """7680 x 4320 is transcoded."""
    attack.transcodes(still(attack.folder / "large.mkv", 7680, 4320, frames=1))


# --- Names and addresses ---

NAMES = [
    *(
        "concat:a|b.mp4",
        "-dash.mp4",
        "with spaces 'quotes' \"more\".mp4",
        "ünï😀.mp4",
        "new\nline\r.mp4",
        "img%03d.mp4",
    ),
    *("a?b#c&d.mp4", "file:x.mp4", "http:x.mp4", "a::b.mp4", "x*[1]{2}.mp4", "subfile,,start,0,end,9,,:y.mp4", "~.mp4"),
    *("back\\slash.mp4", "pipe:0.mp4", os.fsdecode(b"caf\xe9.mp4"), "a" * 251 + ".mp4"),
]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_name_is_a_name(name: str, attack: Attack, clip: Path) -> None:
    """Files are opened and written under exactly the given name, whatever is in it."""
    shutil.copy(clip, attack.folder / name)
    attack.transcodes(attack.folder / name)
    attack.transcodes(name, f"out/{name}", "--overwrite")
    assert (attack.out / name).is_file()

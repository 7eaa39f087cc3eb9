"""The file of an overlay picture: every PNG with 8 bits is read unchanged, anything else is refused."""

import os
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from codecfleet.errors import InputNotFound, InputTooLarge, InputUnreadable
from codecfleet.jobs.source.drawn.overlay_file import MOST_BYTES, OverlayFile
from tests.pngs import logo, png, write_png

if TYPE_CHECKING:
    from numpy.typing import NDArray
PALETTE = logo(16, 1)[0]
PLACES = (np.arange(23 * 13) % 16).reshape(13, 23, 1).astype(np.uint8)


def with_first(name: bytes, body: bytes) -> bytes:
    """Return a PNG of 23x13 with a chunk before its header."""
    chunk = struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
    return png(logo())[:8] + chunk + png(logo())[8:]


def read(path: Path, content: bytes) -> OverlayFile:
    """Write a file, and read it as an overlay."""
    path.write_bytes(content)
    return OverlayFile.read(str(path))


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_samples_are_the_files(tmp_path: Path, channels: int) -> None:
    """Grey and colour samples, with or without alpha, are not converted; a palette is looked up."""
    given = logo()[..., :channels]
    found = read(tmp_path / "a.png", png(given))
    colours: NDArray[np.uint8] = given[..., [0, 0, 0]] if channels < 3 else given[..., :3]
    alpha = given[..., -1] if channels in (2, 4) else np.full(given.shape[:2], 255)
    assert np.array_equal(found.samples()[..., :3], colours)
    assert np.array_equal(found.samples()[..., 3], alpha)
    assert found.size == (23, 13)
    assert np.array_equal(read(tmp_path / "a.png", png(PLACES, PALETTE)).samples(), PALETTE[PLACES[..., 0]])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"GIF89a", "not a PNG"),
        (png(logo())[:20], "not a PNG"),
        (png(logo())[:60], "decoded"),
        (png(logo().astype(np.uint16) * 257), "rgba64"),
        (b"\x89PNG\r\n\x1a\n" + bytes(MOST_BYTES), "larger than 1 MiB"),
        (b"", "not a PNG"),
        # a chunk of another size in place of the header
        (with_first(b"tEXt", struct.pack(">II", 16, 16)), "not a PNG"),
        (with_first(b"CgBI", b"\x50\0\x20\x02"), "not a PNG"),
        (with_first(b"IHDR", struct.pack(">IIBBBBB", 23, 12, 8, 6, 0, 0, 0)), "decoded"),
    ],
    ids=["gif", "cut-off-header", "cut-off", "16-bits", "large", "empty", "text-first", "apples", "two-headers"],
)
def test_anything_else_is_one_line(tmp_path: Path, content: bytes, words: str) -> None:
    """Anything but an 8-bit PNG is refused in one line with advice."""
    with pytest.raises(InputUnreadable, match=words) as caught:
        read(tmp_path / "a.png", content).samples()
    assert caught.value.next_step


@pytest.mark.parametrize("name", [b"IHDR", b"PLTE", b"tRNS", b"IDAT"])
def test_a_wrong_checksum_is_damage(tmp_path: Path, name: bytes) -> None:
    """A chunk with a wrong checksum is damage, and is not used."""
    content = bytearray(png(PLACES, PALETTE))
    at = content.index(name)
    (size,) = struct.unpack(">I", content[at - 4 : at])
    content[at + 4 + size] ^= 1
    with pytest.raises(InputUnreadable, match="decoded"):
        read(tmp_path / "a.png", bytes(content)).samples()


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    """A missing file, a folder and a pipe are refused at once."""
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(InputNotFound, match=r"no\.png"):
        OverlayFile.read(str(tmp_path / "no.png"))
    with pytest.raises(InputUnreadable):
        OverlayFile.read(str(tmp_path))
    with pytest.raises(InputUnreadable, match="is a pipe or a device"):
        OverlayFile.read(str(tmp_path / "pipe.png"))


def test_large_pictures_are_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture larger than a source's pictures may be is refused from its header."""
    path = write_png(tmp_path / "a.png")
    monkeypatch.setenv("CODECFLEET_MAX_PIXELS", str(23 * 13 - 1))
    with pytest.raises(InputTooLarge, match=r"a\.png states pictures of 23x13; max_pixels allows 298"):
        OverlayFile.read(str(path))

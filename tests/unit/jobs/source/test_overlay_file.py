"""The file of an overlay picture: every kind of PNG with 8 bits, unchanged, and nothing else."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from codecfleet.errors import InputNotFound, InputUnreadable
from codecfleet.jobs.source.overlay_file import MOST_BYTES, OverlayFile
from tests.pngs import logo, png

if TYPE_CHECKING:
    from numpy.typing import NDArray


def read(path: Path, content: bytes) -> OverlayFile:
    """Write a file and read it back."""
    path.write_bytes(content)
    return OverlayFile.read(str(path))


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_samples_are_the_files(tmp_path: Path, channels: int) -> None:
    """Grey, grey with alpha, colours, colours with alpha: no sample is converted."""
    given = logo()[..., :channels]
    found = read(tmp_path / "a.png", png(given))
    colours: NDArray[np.uint8] = given[..., [0, 0, 0]] if channels < 3 else given[..., :3]
    alpha = given[..., -1] if channels in (2, 4) else np.full(given.shape[:2], 255)
    assert np.array_equal(found.samples()[..., :3], colours)
    assert np.array_equal(found.samples()[..., 3], alpha)
    assert found.size == (23, 13)


def test_a_palette_is_looked_up(tmp_path: Path) -> None:
    """With the transparency that it has for each colour."""
    palette = logo(16, 1)[0]
    places = (np.arange(23 * 13) % 16).reshape(13, 23, 1).astype(np.uint8)
    assert np.array_equal(read(tmp_path / "a.png", png(places, palette)).samples(), palette[places[..., 0]])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"GIF89a", "not a PNG"),
        (png(logo())[:20], "not a PNG"),
        (png(logo())[:60], "decoded"),
        (png(logo().astype(np.uint16) * 257), "rgba64"),
        (b"\x89PNG\r\n\x1a\n" + bytes(MOST_BYTES), "larger than 1 MiB"),
        (b"", "not a PNG"),
    ],
    ids=["gif", "cut-off-header", "cut-off", "16-bits", "large", "empty"],
)
def test_anything_else_is_one_line(tmp_path: Path, content: bytes, words: str) -> None:
    """What it is, and what to do."""
    with pytest.raises(InputUnreadable, match=words) as caught:
        read(tmp_path / "a.png", content).samples()
    assert caught.value.next_step


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """With the option that named it."""
    with pytest.raises(InputNotFound, match=r"no\.png"):
        OverlayFile.read(str(tmp_path / "no.png"))
    with pytest.raises(InputUnreadable):
        OverlayFile.read(str(tmp_path))

"""Text as bitmaps: the position of letters, line breaks, and refusals before any work."""

import sys

import numpy as np
import pytest

from codecfleet.actors.tracks.rendered_text import TextRenderer, plain_lines
from codecfleet.errors import InputUnreadable, Unsupported
from tests.fonts import a_font

CANVAS = (640, 360)


def renderer(canvas: tuple[int, int] = CANVAS) -> TextRenderer:
    """Return a renderer with Pillow's own font."""
    return TextRenderer(a_font(), "font.ttf", canvas)


def test_letters_are_white_with_a_black_edge_at_the_bottom() -> None:
    """Lines are centred, one line above the canvas's end, and the same each time."""
    found, again = renderer().bitmap(("Hello, World",)), renderer().bitmap(("Hello, World",))
    assert found is not None
    assert again is not None
    assert np.array_equal(found.samples, again.samples)
    height, width = found.samples.shape[:2]
    assert found.canvas == CANVAS
    assert abs(found.x + width / 2 - CANVAS[0] / 2) <= 2
    assert CANVAS[1] * 17 // 20 < found.y + height < CANVAS[1]
    opaque = found.samples[found.samples[..., 3] == 255]
    assert opaque[:, 0].max() == 255
    assert opaque[:, 0].min() == 0
    assert (found.samples[..., 0] == found.samples[..., 1]).all()


def test_long_lines_are_broken() -> None:
    """Lines break at spaces, or within a word wider than the canvas; all text stays on the canvas."""
    one = renderer().bitmap(("word",))
    assert one is not None
    for text, least in (("many words " * 12, 2), ("w" * 200, 3)):
        found = renderer().bitmap((text,))
        assert found is not None
        assert found.x >= 0
        assert found.x + found.samples.shape[1] <= CANVAS[0]
        assert found.samples.shape[0] >= one.samples.shape[0] * least


def test_more_than_fits_is_cut_off() -> None:
    """The first lines are kept, for any canvas size."""
    for canvas in (CANVAS, (16, 8), (9, 1000), (1, 1)):
        found = renderer(canvas).bitmap(("line",) * 500)
        assert found is not None
        assert canvas != CANVAS or (found.y >= 0 and found.samples.shape[0] < CANVAS[1])


def test_blank_lines_show_nothing() -> None:
    """Blank lines give no bitmap, so nothing is burnt."""
    assert renderer().bitmap(()) is None
    assert plain_lines(" \n\t\n\u200b\ufeff") == ()
    assert plain_lines("a\u0308  b\nc\0") == ("\u00e4 b", "c")


def test_missing_letters_are_named() -> None:
    """Each missing letter is named once, with its number, before anything is rendered."""
    renderer().check(["Hello, World"])
    with pytest.raises(Unsupported, match=r"font.ttf lacks .*U\+4E2D.*U\+6587"):
        renderer().check(["a \u4e2d\u6587\u4e2d"])
    many = "".join(chr(0x4E00 + n) for n in range(40))
    with pytest.raises(Unsupported, match="and 28 more"):
        renderer().check([many])


@pytest.mark.parametrize(
    "text", ["\u0645\u0631\u062d\u0628\u0627", "\u05e9\u05dc\u05d5\u05dd", "\u0915\u093f", "x\u0329"]
)
def test_letters_that_must_be_shaped_are_refused(text: str) -> None:
    """Arabic, Hebrew, Devanagari and combining marks would be wrong if rendered letter by letter."""
    with pytest.raises(Unsupported, match="need shaping"):
        renderer().check(plain_lines(text))


def test_what_is_not_a_font_is_refused() -> None:
    """A file that is not a font, or a missing Pillow, is reported in one line."""
    with pytest.raises(InputUnreadable, match="not a font"):
        TextRenderer(b"no font", "x.ttf", CANVAS)


def test_without_pillow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow is an optional dependency, which nothing else needs."""
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(Unsupported, match="not installed") as caught:
        TextRenderer(b"", "x.ttf", CANVAS)
    assert "codecfleet[subtitles]" in caught.value.next_step

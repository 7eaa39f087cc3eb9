"""The colours of a still, and its files."""

import io
from fractions import Fraction
from typing import TYPE_CHECKING

import av
import numpy as np
import pytest
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from codecfleet.actors.media.values import Colour
from codecfleet.actors.segment.steps import CLOCKWISE, UPRIGHT, Region
from codecfleet.actors.segment.tone import Operator, ToneMap, Transfer, mapped
from codecfleet.actors.stills.files import encode_still, quantizer_scale
from codecfleet.actors.stills.look import StillFormat, StillLook
from codecfleet.actors.stills.taking import Painter
from codecfleet.errors import EncoderFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMITED, FULL = 1, 2
WEIGHTS = {1: (0.2126, 0.0722), 5: (0.299, 0.114), 6: (0.299, 0.114), 9: (0.2627, 0.0593)}
"""Kr and Kb of H.273's matrices."""


def _flat(y: int, u: int, v: int) -> VideoFrame:
    frame = VideoFrame(64, 48, "yuv420p")
    for plane, level in zip(frame.planes, (y, u, v), strict=True):
        plane.update(bytes([level]) * plane.buffer_size)
    return frame


def _look(**changes: object) -> StillLook:
    fields = {
        "width": 32,
        "height": 24,
        "turn": UPRIGHT,
        "colour": Colour(LIMITED, matrix=1),
        "format": None,
        "quality": 90,
    }
    return StillLook(**{**fields, **changes})  # type: ignore[arg-type]


def _rgb(y: int, u: int, v: int, matrix: int, range_: int) -> list[float]:
    """Return R, G, B by the formulas of H.273."""
    kr, kb = WEIGHTS[matrix]
    luma, chroma = (y / 255, 255) if range_ == FULL else ((y - 16) / 219, 224)
    cb, cr = (u - 128) / chroma, (v - 128) / chroma
    red, blue = luma + 2 * (1 - kr) * cr, luma + 2 * (1 - kb) * cb
    return [255 * each for each in (red, (luma - kr * red - kb * blue) / (1 - kr - kb), blue)]


@pytest.mark.parametrize("range_", [LIMITED, FULL])
@pytest.mark.parametrize("matrix", WEIGHTS)
def test_colours_are_those_of_the_source_s_matrix_and_range(matrix: int, range_: int) -> None:
    """Colours are within a step of H.273's formulas, for any stated matrix and range."""
    found = Painter(_look(colour=Colour(range_, matrix=matrix))).paint(_flat(120, 90, 170))
    assert found.shape == (24, 32, 3)
    np.testing.assert_allclose(found[12, 16], _rgb(120, 90, 170, matrix, range_), atol=1)


def test_only_what_is_shown_is_painted() -> None:
    """The part that the container hides is cut off before scaling; the turn comes last."""
    frame = _flat(16, 128, 128)
    luma = np.full((48, frame.planes[0].line_size), 16, np.uint8)
    luma[8:40, 16:48] = 235
    frame.planes[0].update(luma.tobytes())
    look = _look(width=32, height=32, crop=((64, 48), Region(32, 32, 16, 8)))
    assert set(Painter(look).paint(frame).ravel()) == {255}


def test_black_and_white_are_full_range() -> None:
    """Limited levels are stretched once, not kept."""
    assert set(Painter(_look()).paint(_flat(16, 128, 128)).ravel()) == {0}
    assert set(Painter(_look()).paint(_flat(235, 128, 128)).ravel()) == {255}


@pytest.mark.parametrize("transfer", Transfer)
@pytest.mark.parametrize("code", [0.0, 0.3, 0.55, 0.75, 1.0])
def test_hdr_becomes_sdr_by_the_formula(transfer: Transfer, code: float) -> None:
    """A grey of PQ or HLG follows the documented formula, with one conversion from limited to full range."""
    frame = VideoFrame(64, 48, "yuv420p10le")
    for plane, level in zip(frame.planes, (round(64 + 876 * code), 512, 512), strict=True):
        plane.update(np.full(plane.buffer_size // 2, level, dtype="<u2").tobytes())
    tone = ToneMap(Operator.BT2390, transfer, Fraction(1000))
    grey = np.array([code])
    expected = [255 * float(each[0]) for each in mapped(grey, grey, grey, tone)]
    found = Painter(_look(colour=Colour(LIMITED, 9, 16, 9), tone=tone)).paint(frame)
    np.testing.assert_allclose(found[12, 16], expected, atol=2)


def test_the_size_is_that_after_the_turn() -> None:
    """A still has the requested width and height after any turn."""
    assert Painter(_look(turn=CLOCKWISE)).paint(_flat(120, 90, 170)).shape == (24, 32, 3)


def _gradient() -> NDArray[np.uint8]:
    across, down = np.meshgrid(np.linspace(0, 255, 64), np.linspace(0, 255, 48))
    return np.stack([across, down, 255 - across], axis=-1).astype(np.uint8)


def _decoded(content: bytes, format_: StillFormat) -> NDArray[np.uint8]:
    container = {StillFormat.JPG: "jpeg_pipe", StillFormat.PNG: "png_pipe", StillFormat.WEBP: "webp_pipe"}[format_]
    with av.open(io.BytesIO(content), format=container) as file:
        frames: Iterator[VideoFrame] = file.decode(video=0)
        return np.asarray(next(frames).to_ndarray(format="rgb24"), dtype=np.uint8)


@pytest.mark.parametrize("format_", StillFormat)
def test_a_file_shows_the_picture(format_: StillFormat) -> None:
    """A file that is read back shows the samples: exactly for PNG, nearly for JPEG and WebP."""
    rgb = _gradient()
    found = _decoded(encode_still(rgb, format_, 95), format_)
    error = np.abs(found.astype(int) - rgb)
    assert found.shape == rgb.shape
    assert (error.max() == 0) if format_ is StillFormat.PNG else (error.mean() < 3)


@pytest.mark.parametrize("format_", StillFormat)
def test_files_have_the_same_bytes_every_time(format_: StillFormat) -> None:
    """A file depends only on samples and quality, not on the time or on other pictures."""
    first = encode_still(_gradient(), format_, 80)
    encode_still(_gradient()[::-1], format_, 80)
    assert encode_still(_gradient(), format_, 80) == first


def test_quality_is_monotonous() -> None:
    """A higher quality never has a coarser quantizer, and both ends of the encoder's scale are reached."""
    scales = [quantizer_scale(quality) for quality in range(1, 101)]
    assert (scales[0], scales[-1]) == (31, 2)
    assert scales == sorted(scales, reverse=True)
    sizes = [len(encode_still(_gradient(), StillFormat.WEBP, quality)) for quality in (10, 50, 95)]
    assert sizes == sorted(sizes)


def test_what_is_drawn_is_a_file_or_samples() -> None:
    """The result has samples if no file is wanted, otherwise a file."""
    frame, look = _flat(120, 90, 170), _look(format=StillFormat.PNG)
    assert Painter(_look()).draw(frame).tobytes() == Painter(look).paint(frame).tobytes()
    assert Painter(look).draw(frame).tobytes() == encode_still(Painter(look).paint(frame), StillFormat.PNG, 90)


def test_a_picture_that_no_file_takes_is_refused_in_one_line() -> None:
    """The error names the encoder and the size that it refused."""
    with pytest.raises(EncoderFailed, match="libwebp cannot encode a picture of 17000x1"):
        encode_still(np.zeros((1, 17_000, 3), dtype=np.uint8), StillFormat.WEBP, 90)


def test_odd_shapes_of_pictures_are_converted() -> None:
    """A picture with an odd side is scaled like any other picture."""
    frame = VideoFrame.from_ndarray(np.zeros((49, 65, 3), dtype=np.uint8), format="rgb24")
    assert Painter(_look(width=65, height=49)).paint(frame.reformat(format="yuv420p")).shape == (49, 65, 3)

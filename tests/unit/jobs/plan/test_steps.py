"""Cropping, turning and padding in plans: alignment, shapes, display matrices, and refusals."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.decode.describe import StreamExtras
from codecfleet.actors.encode.settings import Codec
from codecfleet.actors.media.values import VideoFormat
from codecfleet.actors.segment.steps import UPRIGHT, PictureSteps, Region, chroma_step
from codecfleet.errors import Unsupported
from codecfleet.jobs.plan.picture import settle_picture
from codecfleet.jobs.plan.steps import Framing, canvas, fitted, settle_framing, step_choices
from codecfleet.jobs.request.spec import TranscodeSpec

SD = VideoFormat(720, 576, "yuv420p", Fraction(25), sample_aspect_ratio=Fraction(64, 45))
HD = VideoFormat(1920, 1080, "yuv420p", Fraction(25))
FIELDS = replace(HD, interlaced=True)
ONE = 1 << 16
PHONE = StreamExtras(display_matrix=(0, ONE, 0, -ONE, 0, 0, 1080 * ONE, 0, 1 << 30))
"""A quarter turn clockwise, as phones write it."""


def spec_of(**fields: object) -> TranscodeSpec:
    """Return a spec with these fields."""
    return TranscodeSpec.model_validate({"source": "in.mkv", "output": "out.mp4", **fields})


def framing_of(source: VideoFormat, extras: StreamExtras | None = None, **fields: object) -> Framing:
    """Return the framing of a request."""
    return settle_framing(source, extras or StreamExtras(), spec_of(**fields))


def settled(
    source: VideoFormat, codec: Codec = Codec.H264, **fields: object
) -> tuple[VideoFormat, PictureSteps | None]:
    """Return the output's format and the steps for a request."""
    found = settle_picture(source, spec_of(**fields), codec, framing_of(source, **fields))
    return found.format, found.steps


def test_without_steps_there_are_none() -> None:
    """A job that crops, turns and pads nothing has no steps, so its bytes stay as before."""
    for fields in ({}, {"scale": (None, 720)}, {"rotate": "0"}, {"crop": (1920, 1080, 0, 0)}, {"pad": (1920, 1080)}):
        assert settled(HD, **fields)[1] is None


@given(
    st.tuples(st.integers(1, 64), st.integers(1, 64)),
    st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4])),
    st.data(),
)
def test_a_fitted_region_is_the_largest_within(
    size: tuple[int, int], step: tuple[int, int], data: st.DataObject
) -> None:
    """A fitted region has edges at multiples of the step or of the picture, and no larger one fits."""
    (x, width), (y, height) = (
        (begin := data.draw(st.integers(0, side - 1)), data.draw(st.integers(1, side - begin))) for side in size
    )
    found = fitted(Region(width, height, x, y), size, step)
    axes = ((x, width, found.x, found.width), (y, height, found.y, found.height))
    for (begin, length, first, kept), whole, each in zip(axes, size, step, strict=True):
        assert first % each == 0
        assert 0 <= first - begin < each
        if kept:
            end, last = begin + length, first + kept
            assert last == end == whole or last % each == 0
            assert 0 <= end - last < each


@pytest.mark.parametrize(
    ("source", "fields", "says", "next_step"),
    [
        (HD, {"crop": (1920, 1080, 2, 0)}, "reaches outside", "auto"),
        (HD, {"crop": (1919, 801, 1, 139)}, "multiples of 2x2", "1918:800:2:140"),
        (replace(HD, pix_fmt="yuv422p"), {"crop": (99, 99, 0, 1)}, "multiples of 2x1", "98:99:0:1"),
        (FIELDS, {"crop": (1920, 802, 0, 2)}, "multiples of 2x4", "1920:800:0:4"),
        (HD, {"crop": (1, 1, 1, 1)}, "cuts through chroma", "a larger crop"),
        (FIELDS, {"rotate": "90"}, "interlaced", "--deinterlace on"),
        (FIELDS, {"flip": "v"}, "interlaced", "--deinterlace on"),
        (FIELDS, {"denoise": "light"}, "interlaced", "--deinterlace on"),
        (HD, {"pad": (1280, 1080)}, "smaller than the 1920x1080", "--scale"),
        (HD, {"pad": (1920, 1200), "scale": (1919, 1080)}, "cannot be padded", "--scale"),
    ],
)
def test_what_does_not_fit_says_what_would(
    source: VideoFormat, fields: dict[str, object], says: str, next_step: str
) -> None:
    """A crop that cuts through chroma, fields or the picture's edge is refused with one that fits."""
    with pytest.raises(Unsupported, match=says) as refused:
        settled(source, Codec.VP9, **fields)
    assert next_step in str(refused.value)


def test_what_just_fits_is_taken() -> None:
    """An odd crop may end at the picture's edge; interlaced pictures may be mirrored, and turned if deinterlaced."""
    assert framing_of(replace(HD, width=1919), crop=(1917, 1080, 2, 0)).crop == Region(1917, 1080, 2, 0)
    assert framing_of(FIELDS, flip="h").turn == (-1, 0, 0, 1)
    assert framing_of(FIELDS, rotate="90", deinterlace="on").turn[0] == 0


def test_samples_keep_their_shape_through_every_step() -> None:
    """A crop keeps the shape of samples, a quarter turn inverts it, and a border keeps it."""
    cropped, _ = settled(SD, crop=(720, 432, 0, 72))
    assert (cropped.width, cropped.height, cropped.sample_aspect_ratio) == (720, 432, Fraction(64, 45))
    turned, _ = settled(SD, rotate="270")
    assert (turned.width, turned.height, turned.sample_aspect_ratio) == (576, 720, Fraction(45, 64))
    square, _ = settled(SD, scale=(1024, 576))
    assert square.sample_aspect_ratio == 1
    wide, steps = settled(SD, crop=(720, 432, 0, 72), pad=Fraction(16, 9))
    assert steps is not None
    assert wide.width * wide.sample_aspect_ratio / wide.height == Fraction(16, 9)
    assert (steps.padded, steps.place) == ((720, 576), (0, 72))


@given(
    st.integers(2, 2000),
    st.integers(2, 2000),
    st.fractions(Fraction(1, 2), 2, max_denominator=99),
    st.fractions(Fraction(1, 3), 3, max_denominator=99),
)
def test_a_border_reaches_the_shape(width: int, height: int, shape: Fraction, wanted: Fraction) -> None:
    """Padding to a display shape adds to one axis only, and less than two samples too much."""
    across, down = canvas((width, height), shape, wanted)
    assert across == width or down == height
    assert across >= width
    assert down >= height
    if across > width:
        assert (across - 2) * shape / down < wanted <= across * shape / down
    elif down > height:
        assert across * shape / down <= wanted < across * shape / (down - 2)


def test_the_picture_lies_in_the_middle_where_chroma_may_be_cut() -> None:
    """Half of the border is on each side, rounded to the upper left where chroma requires."""
    _, steps = settled(HD, scale=(1280, 718), pad=(1290, 728))
    assert steps is not None
    assert steps.place == (4, 4)
    assert all(side % each == 0 for side, each in zip(steps.place, chroma_step("yuv420p"), strict=True))


@pytest.mark.parametrize(
    ("extras", "fields", "turn", "declares"),
    [
        (PHONE, {"rotate": "0"}, (0, 1, -1, 0), True),
        (PHONE, {"rotate": "90"}, (-1, 0, 0, -1), True),
        (PHONE, {"rotate": "270"}, UPRIGHT, True),
        (PHONE, {"flip": "h"}, (0, 1, 1, 0), True),
        (PHONE, {"flip": "v"}, (0, -1, -1, 0), True),
        (PHONE, {"crop": (1920, 800, 0, 140)}, UPRIGHT, False),
        # A matrix that only has the sample aspect ratio is no turn, and a description of one view is no stereo.
        (StreamExtras(display_matrix=(0, 2 * ONE, 0, -ONE, 0, 0, 0, 0, 1 << 30)), {"rotate": "0"}, (0, 1, -1, 0), True),
        (StreamExtras(stereo3d=b"\0" * 44), {"rotate": "90"}, (0, 1, -1, 0), False),
    ],
)
def test_a_turn_is_on_top_of_what_players_show(
    extras: StreamExtras, fields: dict[str, object], turn: tuple[int, ...], *, declares: bool
) -> None:
    """A turn starts from the picture that players show; the display matrix is then no longer stated."""
    framing = framing_of(HD, extras, **fields)
    assert framing.turn == turn
    assert framing.extras(extras).display_matrix == (None if declares else extras.display_matrix)
    assert [choice.checks for choice in step_choices(None, framing, extras)] == [("metadata.rotation",)] * declares


def test_a_matrix_does_not_turn_an_overlay() -> None:
    """Pictures with a display matrix are turned before another picture is laid on them."""
    with pytest.raises(Unsupported, match="turn the overlay") as caught:
        framing_of(HD, PHONE, overlay="logo.png")
    assert "--rotate 0" in caught.value.next_step
    assert framing_of(HD, PHONE, overlay="logo.png", rotate="0").turn != UPRIGHT
    assert framing_of(HD, overlay="logo.png").turn == UPRIGHT


@pytest.mark.parametrize(
    "extras",
    [
        StreamExtras(display_matrix=(ONE, ONE, 0, -ONE, ONE, 0, 0, 0, 1 << 30)),
        StreamExtras(display_matrix=(ONE, ONE // 20, 0, 0, ONE, 0, 0, 0, 1 << 30)),
        StreamExtras(spherical=b"\0" * 40),
        StreamExtras(stereo3d=b"\1\0\0\0" + b"\0" * 40),
    ],
)
def test_what_cannot_be_turned_is_refused(extras: StreamExtras) -> None:
    """A matrix between quarter turns, and pictures that players project, cannot be turned."""
    with pytest.raises(Unsupported):
        framing_of(HD, extras, rotate="90")

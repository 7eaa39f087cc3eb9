"""Conversion of pictures to the numbers of an input tensor."""

from typing import Any

import numpy as np
import pytest
from av.video.frame import VideoFrame
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.dla.engine.tensors import DataCategory, DataFormat, DataType, PixelFormat
from codecfleet.actors.dla.inference.layout import unpack
from codecfleet.actors.dla.inference.pictures import PictureScaler, PixelRule, check_input, input_memory
from codecfleet.errors import Unsupported, UsageError
from codecfleet.testing.nvidia.fake_cudla import fake_tensor

from ..engine.test_memory_layout import descriptor


def flat(pix_fmt: str, *levels: int, width: int = 32, height: int = 16) -> VideoFrame:
    """Return a picture of one colour: a level for each plane."""
    frame = VideoFrame(width, height, pix_fmt)
    for plane, level in zip(frame.planes, levels, strict=True):
        plane.update(bytes([level]) * plane.buffer_size)
    return frame


def test_colour_is_converted_by_the_picture_s_own_matrix_and_range() -> None:
    """Limited-range black and white become 0 and 255; red depends on the matrix, which small pictures may omit."""
    scaler = PictureScaler(fake_tensor("x", (1, 3, 8, 16)))
    black = scaler.scaled(flat("yuv420p", 16, 128, 128))
    white = scaler.scaled(flat("yuv420p", 235, 128, 128))
    assert black.shape == (8, 16, 3)
    assert (black.max(), white.min()) == (0, 255)
    unnamed = scaler.scaled(flat("yuv420p", 81, 90, 240))[0, 0].tolist()  # red in BT.601
    assert unnamed[0] > 250
    assert max(unnamed[1:]) < 5
    full = flat("yuv420p", 16, 128, 128)
    full.color_range = 2
    assert 14 <= scaler.scaled(full)[0, 0, 0] <= 18


def test_grey_inputs_take_grey() -> None:
    """A network with one channel gets luma, stretched to full range."""
    scaled = PictureScaler(fake_tensor("x", (1, 1, 4, 4))).scaled(flat("yuv420p", 235, 90, 240))
    assert scaled.shape == (4, 4, 1)
    assert scaled.min() == 255


def test_a_change_of_size_in_the_middle_is_followed() -> None:
    """Every picture is scaled to the tensor's size, whatever the size of the previous picture."""
    scaler = PictureScaler(fake_tensor("x", (1, 3, 8, 8)))
    for width, height in ((32, 16), (64, 64), (32, 16), (8, 8)):
        assert scaler.scaled(flat("yuv420p", 100, 128, 128, width=width, height=height)).shape == (8, 8, 3)


@given(
    st.lists(st.floats(-300, 300), min_size=3, max_size=3),
    st.lists(st.floats(-2, 2), min_size=3, max_size=3),
    st.sampled_from(["rgb", "bgr"]),
)
def test_normalisation_is_per_channel_of_the_network(mean: list[float], scale: list[float], order: Any) -> None:
    """The formula is (sample - mean) x scale; means and scales are in the order of the network's channels."""
    picture = np.arange(2 * 2 * 3, dtype=np.uint8).reshape(1, 2, 2, 3) * 20
    found = PixelRule(tuple(mean), tuple(scale), order).applied(picture, np.dtype(np.float32))
    ordered = picture if order == "rgb" else picture[..., ::-1]
    expected = (ordered.astype(np.float64) - mean) * scale
    np.testing.assert_allclose(found, expected.transpose(0, 3, 1, 2), rtol=1e-4, atol=1e-2)


@given(st.sampled_from([DataType.INT8, DataType.UINT8, DataType.INT16, DataType.UINT16]), st.floats(-1000, 1000))
def test_integers_are_rounded_and_kept_in_their_range(kind: DataType, scale: float) -> None:
    """Values out of range are clamped."""
    picture = np.full((1, 1, 1, 1), 255, dtype=np.uint8)
    limits = np.iinfo(kind.dtype)
    (found,) = PixelRule(scale=(scale,)).applied(picture, kind.dtype).ravel().tolist()
    assert abs(found - np.clip(np.rint(np.float32(255 * np.float32(scale))), limits.min, limits.max)) <= 1


def test_a_last_batch_is_filled_up_and_a_spare_channel_is_nothing() -> None:
    """A batch is padded with copies of its last picture; the fourth channel of a pixel is 0."""
    tensor = fake_tensor("x", (3, 4, 2, 2), DataType.UINT8, DataFormat.NHWC)
    pictures = [np.full((2, 2, 3), level, dtype=np.uint8) for level in (5, 9)]
    values = unpack(tensor, input_memory(tensor, pictures, PixelRule()))
    assert values[:, :3, 0, 0].tolist() == [[5, 5, 5], [9, 9, 9], [9, 9, 9]]
    assert not values[:, 3].any()


def test_wrong_numbers_of_means_are_refused() -> None:
    """Two means are refused for an input of one channel, and of three channels."""
    with pytest.raises(UsageError, match="2 means or scales"):
        PixelRule(mean=(1.0, 2.0)).applied(np.zeros((1, 2, 2, 3), dtype=np.uint8), np.dtype(np.float32))


@pytest.mark.parametrize(
    "changes",
    [
        {"c": 2},
        {"c": 64},
        {"data_category": DataCategory.IMAGE, "pixel_format": PixelFormat.Y8___U8V8_N444},
        {"data_category": DataCategory.IMAGE, "pixel_format": PixelFormat.A2B10G10R10},
    ],
)
def test_inputs_that_are_no_pictures_are_refused(changes: dict[str, Any]) -> None:
    """A network is refused by name if no RGB or grey picture fits its input."""
    with pytest.raises(Unsupported, match="which no picture has"):
        check_input(descriptor(**changes))
    check_input(descriptor(c=4, data_category=DataCategory.IMAGE, pixel_format=PixelFormat.A8R8G8B8))

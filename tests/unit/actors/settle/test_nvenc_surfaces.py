"""NVENC's surface formats: names, sizes, and who encodes what."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.encode.settings import Codec
from codecfleet.actors.settle.nvenc_surfaces import Chroma, NvencSurface, surface_for
from codecfleet.errors import Unsupported

BITS_A_PIXEL = {
    "NV12": 12,
    "P010": 24,
    "NV16": 16,
    "P210": 32,
    "YUV444": 24,
    "YUV444_16BIT": 48,
}
halves = st.integers(1, 4096)


@given(st.sampled_from(NvencSurface), halves, halves)
def test_a_picture_has_the_bytes_of_its_pixels(surface: NvencSurface, across: int, down: int) -> None:
    """A surface is as large as its pixels, without padding, and the sum of its planes."""
    width, height = 2 * across, 2 * down
    assert surface.frame_bytes(width, height) * 8 == width * height * BITS_A_PIXEL[surface.value]


@pytest.mark.parametrize("surface", NvencSurface)
def test_odd_sizes_are_refused_where_chroma_is_halved(surface: NvencSurface) -> None:
    """The package would take an odd size and read past the end."""
    across, down = surface.chroma.value
    for width, height, halved in ((65, 64, across == 2), (64, 65, down == 2)):
        if halved:
            with pytest.raises(Unsupported, match=surface.value):
                surface.frame_bytes(width, height)
        else:
            assert surface.frame_bytes(width, height) > 0
    with pytest.raises(Unsupported):
        surface.planes(0, 64)


def test_av1_is_coded_in_420_alone() -> None:
    """What AV1's encoder cannot hold is refused before a device is asked; VP9 is refused always."""
    for surface in NvencSurface:
        surface.check_codec(Codec.HEVC)
        with pytest.raises(Unsupported, match="VP9"):
            surface.check_codec(Codec.VP9)
        if surface.chroma is Chroma.YUV420:
            surface.check_codec(Codec.AV1)
        else:
            with pytest.raises(Unsupported, match="AV1"):
                surface.check_codec(Codec.AV1)


def test_software_formats_have_a_surface_or_a_refusal() -> None:
    """A pixel format is held exactly, or refused with those that are."""
    assert surface_for("yuv420p10le") is NvencSurface.P010
    with pytest.raises(Unsupported, match="yuv410p"):
        surface_for("yuv410p")

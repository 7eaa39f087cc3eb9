"""Mixing channels: BS.775's coefficients, no clipping, any format and layout of the source."""

from math import sqrt

import av
import numpy as np
import pytest
from av.audio.frame import AudioFrame
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.tracks.audio import bit_rates
from codecfleet.actors.tracks.downmix import Mixer, mix_matrix
from codecfleet.errors import Unsupported

MONO, STEREO = ("FC",), ("FL", "FR")
NAMES = ["FL", "FR", "FC", "LFE", "BL", "BR", "BC", "SL", "SR", "FLC", "FRC", "TFL", "TBR", "TC"]


def names(layout: str) -> list[str]:
    """Return the names of a layout's channels."""
    return [channel.name for channel in av.AudioLayout(layout).channels]


def target(channels: int) -> tuple[str, ...]:
    """Return the speakers of mono or stereo."""
    return MONO if channels == 1 else STEREO


def test_five_channels_are_mixed_by_bs_775() -> None:
    """For stereo, L, C and Ls are mixed to the left as 1 : 0.7071 : 0.7071; for mono, L and R count 0.7071, Ls 0.5."""
    left, right = mix_matrix(names("5.1(side)"), STEREO)
    whole = 1 + sqrt(2)
    assert left == pytest.approx([1 / whole, 0, sqrt(0.5) / whole, 0, sqrt(0.5) / whole, 0])
    assert right == pytest.approx([0, 1 / whole, sqrt(0.5) / whole, 0, 0, sqrt(0.5) / whole])
    (mono,) = mix_matrix(names("5.1(side)"), MONO)
    whole = 2 + sqrt(2)
    assert mono == pytest.approx([sqrt(0.5) / whole] * 2 + [1 / whole, 0] + [0.5 / whole] * 2)


@pytest.mark.parametrize(
    ("layout", "channels", "wanted"),
    [
        ("mono", 2, [[1], [1]]),
        ("stereo", 1, [[0.5, 0.5]]),
        ("2.1", 2, [[1, 0, 0], [0, 1, 0]]),
        ("quad", 2, [[0.5858, 0, 0.4142, 0], [0, 0.5858, 0, 0.4142]]),
        ("4.0", 1, [[0.2265, 0.2265, 0.3204, 0.2265]]),
    ],
)
def test_other_layouts(layout: str, channels: int, wanted: list[list[float]]) -> None:
    """Coefficients follow the rule of docs/containers.md, to four digits."""
    assert np.round(mix_matrix(names(layout), target(channels)), 4) == pytest.approx(np.array(wanted), abs=2e-4)


@given(st.lists(st.sampled_from(NAMES), min_size=1, max_size=8, unique=True), st.sampled_from([1, 2]))
def test_the_largest_sum_is_one(channel_names: list[str], channels: int) -> None:
    """Full scale on all channels becomes at most full scale, and reaches it on one channel."""
    if channel_names == ["LFE"]:
        return
    sums = [sum(row) for row in mix_matrix(channel_names, target(channels))]
    assert max(sums) == pytest.approx(1)
    assert all(0 <= each <= 1 + 1e-12 for each in sums)


@pytest.mark.parametrize("channel_names", [["LFE"], ["FL", "FR", "ACN0"]])
def test_what_has_no_place_is_refused(channel_names: list[str]) -> None:
    """Low-frequency effects alone are refused, and channels that are not speakers."""
    with pytest.raises(Unsupported, match="cannot be mixed to stereo"):
        mix_matrix(channel_names, STEREO)


def constant(layout: str, sample_format: str, levels: list[float], samples: int = 100) -> AudioFrame:
    """Return a frame in which each channel has one level."""
    packed = np.repeat(np.array([levels]), samples, axis=0).reshape(1, -1)
    frame = AudioFrame.from_ndarray(packed, format="dbl", layout=layout)
    frame.sample_rate = 48_000
    (made,) = av.AudioResampler(sample_format, layout, 48_000).resample(frame)
    return made


@pytest.mark.parametrize("sample_format", ["u8", "s16", "s16p", "s32", "flt", "fltp", "dblp"])
def test_every_sample_format_is_mixed(sample_format: str) -> None:
    """The levels of six channels are added with the coefficients, as exactly as the format allows."""
    levels = [0.5, -0.25, 0.25, 0.9, 0.125, 0.5]
    mixed = Mixer("stereo").mix(constant("5.1", sample_format, levels)).to_ndarray().reshape(-1, 2)
    wanted = [np.dot(row, levels) for row in mix_matrix(names("5.1"), STEREO)]
    assert mixed.shape == (100, 2)
    assert np.abs(mixed - wanted).max() <= (0.01 if sample_format == "u8" else 1e-4)


def test_layouts_may_change_and_need_no_names() -> None:
    """Each frame is mixed by its own layout; a layout without speakers counts as the usual one of its size."""
    mixer = Mixer("mono")
    assert mixer.mix(constant("stereo", "s16", [0.5, 0.25])).to_ndarray()[0, -1] == pytest.approx(0.375)
    levels = [0.5, 0.5, 0.25, 0.0, 0.0, 0.0]
    known = mixer.mix(constant("5.1", "flt", levels)).to_ndarray()
    assert mixer.mix(constant("6 channels", "flt", levels)).to_ndarray() == pytest.approx(known)
    assert known[0, -1] == pytest.approx((sqrt(0.5) + 0.25) / (2 + sqrt(2)))


def test_bounds_of_bitrates() -> None:
    """Bounds for AAC depend on the encoded sample rate, bounds for Opus do not."""
    assert bit_rates("aac", 2, 48_000) == (32_000, 576_000)
    assert bit_rates("aac", 1, 44_100) == (16_000, 264_600)
    assert bit_rates("aac", 1, 40_000) == (16_000, 264_600)
    assert bit_rates("opus", 6, 44_100) == (36_000, 1_536_000)

"""A picture laid over others: each sample follows the documented formula, in every format."""

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from av.video.format import VideoFormat as PixelFormat
from av.video.frame import VideoFrame
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from codecfleet.actors.media.values import Colour, VideoFormat
from codecfleet.actors.segment.filtering import FilterChain, FilterSettings
from codecfleet.actors.segment.overlay import Overlay, blends_of, coded, lay, takes_overlay
from tests.pngs import logo, png

FORMATS = ("yuv420p", "yuv422p", "yuv440p", "yuv444p", "yuv420p10le", "yuv422p10le", "gray", "gray10le", "yuv420p12le")
DEEP = ("yuv410p", "yuv444p16le", "yuv420p16le", "gray16le")
BT709, SMPTE170M, BT2020 = 1, 6, 9
PQ, HLG = 16, 18


def format_of(pix_fmt: str, width: int = 48, height: int = 32, **colour: int) -> VideoFormat:
    """Return the format of pictures."""
    return VideoFormat(
        width=width, height=height, pix_fmt=pix_fmt, frame_rate=Fraction(25), colour=Colour(**{"matrix": 1} | colour)
    )


def overlay_of(samples: NDArray[np.uint8], place: tuple[int, int], opacity: int = 100) -> Overlay:
    """Return an overlay with these samples."""
    height, width = samples.shape[:2]
    return Overlay(
        width=width,
        height=height,
        x=place[0],
        y=place[1],
        opacity=opacity,
        sha256="0" * 64,
        png=png(samples),
    )


def planes_of(frame: VideoFrame) -> list[NDArray[np.int64]]:
    """Return the samples of each plane."""
    found = []
    for plane, component in zip(frame.planes, frame.format.components, strict=True):
        rows = np.frombuffer(memoryview(plane), "u1" if component.bits == 8 else "<u2").reshape(plane.height, -1)
        found.append(rows[:, : plane.width].astype(np.int64))
    return found


def noise(output: VideoFormat) -> VideoFrame:
    """Return a picture of random samples."""
    frame = VideoFrame(output.width, output.height, output.pix_fmt)
    random = np.random.default_rng(7)
    for plane, component in zip(frame.planes, frame.format.components, strict=True):
        kind = "u1" if component.bits == 8 else "<u2"
        rows = np.frombuffer(memoryview(plane), kind).reshape(plane.height, -1)
        rows[...] = random.integers(0, 1 << component.bits, rows.shape)
    return frame


def due(under: VideoFrame, overlay: Overlay, output: VideoFormat) -> list[NDArray[np.int64]]:
    """Return the planes by the formula, computed sample by sample in fractions."""
    rgba = overlay.samples()
    levels = coded(rgba[..., :3], output, under.format.components[0].bits)
    found = []
    for samples, own in zip(planes_of(under), levels, strict=False):
        across, down = -(-output.width // samples.shape[1]), -(-output.height // samples.shape[0])
        result = samples.copy()
        for row, column in np.ndindex(*samples.shape):
            shown = []
            for y in range(row * down, min(row * down + down, output.height)):
                for x in range(column * across, min(column * across + across, output.width)):
                    place, value = (y - overlay.y, x - overlay.x), Fraction(int(samples[row, column]))
                    if 0 <= place[0] < overlay.height and 0 <= place[1] < overlay.width:
                        alpha = Fraction(int(rgba[(*place, 3)]) * overlay.opacity, 25_500)
                        value += alpha * (int(own[place]) - value)
                    shown.append(value)
            result[row, column] = floor(sum(shown) / len(shown) + Fraction(1, 2))
        found.append(result)
    return found


@given(
    st.sampled_from(FORMATS),
    st.integers(23, 31),
    st.integers(13, 19),
    st.tuples(st.integers(0, 8), st.integers(0, 6)),
    st.integers(1, 100),
)
def test_each_sample_is_the_formulas(
    pix_fmt: str, width: int, height: int, place: tuple[int, int], opacity: int
) -> None:
    """Samples are right anywhere in pictures of any size and format, also if the overlay splits a sample of chroma."""
    output = format_of(pix_fmt, width, height)
    place = min(place[0], width - 5), min(place[1], height - 4)
    overlay = overlay_of(logo(5, 4), place, opacity)
    frame = noise(output)
    expected = due(frame, overlay, output)
    lay(blends_of(overlay, output), frame)
    assert all(map(np.array_equal, planes_of(frame), expected))


def laid_in_int64(under: VideoFrame, overlay: Overlay, output: VideoFormat) -> list[NDArray[np.int64]]:
    """Return the planes by the formula, computed in 64 bits over whole planes."""
    rgba = overlay.samples()
    levels = coded(rgba[..., :3], output, under.format.components[0].bits)
    where = slice(overlay.y, overlay.y + overlay.height), slice(overlay.x, overlay.x + overlay.width)
    alpha = np.zeros((output.height, output.width), np.int64)
    alpha[where] = rgba[..., 3].astype(np.int64) * overlay.opacity
    found = []
    for samples, own in zip(planes_of(under), levels, strict=False):
        across, down = -(-output.width // samples.shape[1]), -(-output.height // samples.shape[0])
        shown = samples.repeat(down, axis=0).repeat(across, axis=1)[: output.height, : output.width] * 25_500
        shown[where] += alpha[where] * (own - shown[where] // 25_500)
        starts = np.arange(0, output.height, down), np.arange(0, output.width, across)
        ones = np.ones_like(shown)
        sums, counts = (
            np.add.reduceat(np.add.reduceat(each, starts[0], axis=0), starts[1], axis=1) for each in (shown, ones)
        )
        found.append((sums + 12_750 * counts) // (25_500 * counts))
    return found


@given(
    st.sampled_from((*FORMATS, *DEEP)),
    st.tuples(st.integers(100, 131), st.integers(160, 201)),
    st.tuples(st.integers(0, 30), st.integers(0, 90)),
    st.integers(1, 100),
    st.sampled_from([0, 255, 128]),
)
def test_few_bits_and_bands_change_nothing(
    pix_fmt: str, size: tuple[int, int], place: tuple[int, int], opacity: int, alpha: int
) -> None:
    """Samples equal those computed in 64 bits, whatever part is transparent, and for the brightest samples."""
    output = format_of(pix_fmt, *size, range=2)
    samples = np.full((70, 70, 4), 255, np.uint8)
    samples[20:45, 5:50] = logo(45, 25)
    samples[:9, :, 3] = samples[:, 61:, 3] = samples[60:, :, 3] = alpha
    overlay, frame = overlay_of(samples, place, opacity), noise(output)
    if opacity % 2:
        for plane, component in zip(frame.planes, frame.format.components, strict=True):
            kind = "u1" if component.bits == 8 else "<u2"
            np.frombuffer(memoryview(plane), kind)[...] = (1 << component.bits) - 1
    expected = laid_in_int64(frame, overlay, output)
    lay(blends_of(overlay, output), frame)
    assert all(map(np.array_equal, planes_of(frame), expected))


@pytest.mark.parametrize(("pix_fmt", "most"), [("yuv420p", 12), ("yuv420p10le", 12), ("yuv420p16le", 16)])
def test_what_is_kept_is_small(pix_fmt: str, most: int) -> None:
    """Memory is used only for luma samples that are not transparent."""
    samples = np.zeros((512, 512, 4), np.uint8)
    samples[128:256, 64:320] = 128
    kept = blends_of(overlay_of(samples, (0, 0)), format_of(pix_fmt, 1024, 512))
    size_bytes = sum(each.nbytes for _, blend in kept for each in (blend.kept, blend.added, blend.divisor))
    assert size_bytes <= most * 128 * 256 + 1024


def test_nothing_changes_where_it_is_transparent() -> None:
    """Where alpha is 0, luma and chroma do not change."""
    output, samples = format_of("yuv420p"), logo()
    samples[..., 3] = 0
    frame = noise(output)
    before = planes_of(frame)
    lay(blends_of(overlay_of(samples, (3, 5)), output), frame)
    assert all(map(np.array_equal, planes_of(frame), before))


@pytest.mark.parametrize(
    ("rgb", "colour", "bits", "expected"),
    [
        ((255, 255, 255), {"matrix": BT709}, 8, (235, 128, 128)),
        ((0, 0, 0), {"matrix": BT709}, 8, (16, 128, 128)),
        ((255, 0, 0), {"matrix": BT709}, 8, (63, 102, 240)),
        ((0, 0, 255), {"matrix": SMPTE170M}, 8, (41, 240, 110)),
        ((255, 255, 255), {"matrix": BT709, "range": 2}, 8, (255, 128, 128)),
        ((0, 255, 0), {"matrix": BT709}, 10, (691, 167, 105)),
        # BT.2408: reference white is 58 % of PQ's signal and 75 % of HLG's signal
        ((255, 255, 255), {"matrix": BT2020, "transfer": PQ}, 10, (573, 512, 512)),
        ((255, 255, 255), {"matrix": BT2020, "transfer": HLG}, 10, (721, 512, 512)),
        ((0, 0, 0), {"matrix": BT2020, "transfer": HLG}, 10, (64, 512, 512)),
    ],
)
def test_colours_are_coded_as_the_film_is(
    rgb: tuple[int, int, int], colour: dict[str, int], bits: int, expected: tuple[int, int, int]
) -> None:
    """An overlay is converted by the film's matrix, range, depth and transfer function."""
    found = coded(np.array([[rgb]], dtype=np.uint8), format_of("yuv444p10le", **colour), bits)
    assert tuple(int(plane[0, 0]) for plane in found) == expected


@pytest.mark.parametrize(
    ("pix_fmt", "matrix", "takes"),
    [("yuv420p", BT709, True), ("yuv420p", 2, True), ("gray", 2, True), ("gbrp", 0, False), ("yuv420p", 14, False)],
)
def test_formats_without_a_known_matrix_take_none(pix_fmt: str, matrix: int, *, takes: bool) -> None:
    """RGB and ICtCp are refused."""
    assert takes_overlay(format_of(pix_fmt, matrix=matrix)) == takes
    assert all(PixelFormat(each).components for each in FORMATS)


def test_the_decoders_own_picture_is_left_alone() -> None:
    """The overlay is laid on a copy, since a decoder may still refer to its picture."""
    output = format_of("yuv420p")
    frame = noise(output)
    before = planes_of(frame)
    chain = FilterChain(FilterSettings(output, overlay=overlay_of(logo(), (2, 2))), Fraction(1, 25))
    ((_, laid),) = [*chain.push(0, frame), *chain.finish()]
    assert all(map(np.array_equal, planes_of(frame), before))
    assert not np.array_equal(planes_of(laid)[0], before[0])


@pytest.mark.parametrize("pix_fmt", FORMATS)
@pytest.mark.parametrize("place", [(0, 0), (3, 5)])
def test_what_is_kept_of_an_overlay_is_what_placement_counts(pix_fmt: str, place: tuple[int, int]) -> None:
    """The memory used is at most the stated memory, and at least a quarter of it."""
    output, samples = format_of(pix_fmt, 480, 320), np.full((120, 160, 4), 100, np.uint8)
    samples[::2, ::3, 3] = 1
    settings = FilterSettings(output, overlay=overlay_of(samples, place))
    kept = [blend.kept.nbytes + blend.added.nbytes for _, blend in blends_of(settings.overlay, output)]
    assert settings.kept_bytes / 4 < sum(kept) < settings.kept_bytes


def test_denoising_keeps_four_floats_a_sample() -> None:
    """The filter needs four floats per sample; at 1080p the process's peak grew by 44 to 58 MiB, pictures included."""
    settings = FilterSettings(format_of("yuv420p", 1920, 1080), denoise="light")
    assert settings.kept_bytes == 1920 * 1080 * 3 // 2 * 16
    assert FilterSettings(settings.output).kept_bytes == 0

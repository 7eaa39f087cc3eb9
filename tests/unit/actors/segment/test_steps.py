"""Cropping, turning and padding a picture puts each sample at its place, in every format."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise, product
from typing import Any, cast

import numpy as np
import pytest
from av.video.frame import VideoFrame
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from codecfleet.actors.encode.profiles import NVENC_PIX_FMTS, PROFILES
from codecfleet.actors.media.values import Colour, VideoFormat
from codecfleet.actors.segment.filtering import FilterChain, FilterSettings
from codecfleet.actors.segment.steps import (
    CLOCKWISE,
    MIRRORED,
    UPRIGHT,
    UPSIDE_DOWN,
    PictureSteps,
    Region,
    Turn,
    chroma_step,
    combined,
    turned_size,
    workable_format,
)

WIDTH, HEIGHT = 48, 32
TURNS: Sequence[Turn] = [
    combined(mirror, turn)
    for mirror, turn in product(
        (UPRIGHT, MIRRORED),
        (UPRIGHT, CLOCKWISE, combined(CLOCKWISE, CLOCKWISE), combined(CLOCKWISE, combined(CLOCKWISE, CLOCKWISE))),
    )
]
OUTPUTS = sorted({name for profile in PROFILES.values() for name in profile.pix_fmts} | set(NVENC_PIX_FMTS))


def planes(frame: VideoFrame) -> list[NDArray[Any]]:
    """Return the planes of a planar picture."""
    found = []
    for plane, component in zip(frame.planes, frame.format.components, strict=True):
        samples = np.frombuffer(memoryview(plane), "u1" if component.bits == 8 else "<u2")
        found.append(samples.reshape(plane.height, -1)[:, : plane.width])
    return found


def noise(pix_fmt: str, width: int = WIDTH, height: int = HEIGHT) -> VideoFrame:
    """Return a picture in which all places differ."""
    frame, chance = VideoFrame(width, height, pix_fmt), np.random.default_rng(7)
    for samples, component in zip(planes(frame), frame.format.components, strict=True):
        samples[...] = chance.integers(16 << component.bits - 8, 235 << component.bits - 8, samples.shape)
    return frame


def steps_of(**changes: object) -> PictureSteps:
    """Return the steps with these ``changes`` only."""
    crop = cast("Region", changes.get("crop", Region(WIDTH, HEIGHT, 0, 0)))
    turn = cast("Turn", changes.get("turn", UPRIGHT))
    scaled = cast("tuple[int, int]", changes.get("scaled", turned_size((crop.width, crop.height), turn)))
    padded = cast("tuple[int, int]", changes.get("padded", scaled))
    place = cast("tuple[int, int]", changes.get("place", (0, 0)))
    return PictureSteps(size=(WIDTH, HEIGHT), crop=crop, turn=turn, scaled=scaled, padded=padded, place=place)


def filtered(frame: VideoFrame, steps: PictureSteps, pix_fmt: str, colour: Colour | None = None) -> VideoFrame:
    """Return a picture after the steps."""
    width, height = steps.padded
    output = VideoFormat(width, height, pix_fmt, Fraction(25), colour=colour or Colour())
    chain = FilterChain(FilterSettings(output, steps=steps), Fraction(1, 25))
    ((ticks, result),) = [*chain.push(3, frame), *chain.finish()]
    assert (ticks, result.width, result.height, result.format.name) == (3, width, height, pix_fmt)
    return result


@pytest.mark.parametrize("turn", TURNS)
def test_a_turn_moves_each_sample_as_its_matrix_says(turn: Turn) -> None:
    """For all eight turns, in every plane, the sample at (x, y) goes where the matrix sends it."""
    frame = noise("yuv420p")
    wanted = []
    for samples in planes(frame):
        height, width = samples.shape
        rows, columns = np.mgrid[:height, :width]
        a, b, c, d = turn
        across, down = a * columns + c * rows, b * columns + d * rows
        target = np.zeros(turned_size((height, width), turn), samples.dtype)
        target[down - down.min(), across - across.min()] = samples
        wanted.append(target)
    found = planes(filtered(frame, steps_of(turn=turn), "yuv420p"))
    assert all(np.array_equal(*pair) for pair in zip(found, wanted, strict=True))


def test_a_quarter_turn_is_clockwise() -> None:
    """The first row of a picture becomes its last column."""
    frame = noise("gray")
    (before,), (after,) = planes(frame), planes(filtered(frame, steps_of(turn=CLOCKWISE), "gray"))
    assert np.array_equal(after[:, -1], before[0])


@given(st.sampled_from(TURNS), st.sampled_from(TURNS), st.sampled_from(TURNS))
def test_turns_are_a_group(first: Turn, second: Turn, third: Turn) -> None:
    """Turns are associative, every combination is one of the eight, and mirroring twice changes nothing."""
    assert combined(combined(first, second), third) == combined(first, combined(second, third))
    assert combined(first, second) in TURNS
    assert combined(MIRRORED, MIRRORED) == combined(UPSIDE_DOWN, UPSIDE_DOWN) == UPRIGHT


@pytest.mark.parametrize("pix_fmt", OUTPUTS)
def test_a_crop_keeps_the_samples(pix_fmt: str) -> None:
    """A crop keeps its samples bit for bit, in every format that is encoded."""
    frame, (across, down) = noise(pix_fmt), chroma_step(pix_fmt)
    region = Region(20, 12, 4 * across, 3 * down)
    found = planes(filtered(frame, steps_of(crop=region), pix_fmt))
    for before, after in zip(planes(frame), found, strict=True):
        x, y = (WIDTH // before.shape[1], HEIGHT // before.shape[0])
        top, left = region.y // y, region.x // x
        assert np.array_equal(after, before[top : top + 12 // y, left : left + 20 // x])


@pytest.mark.parametrize("levels", [0, 1, 2])
@pytest.mark.parametrize("pix_fmt", OUTPUTS)
def test_a_border_is_black_in_its_range(pix_fmt: str, levels: int) -> None:
    """Around the unchanged picture the border is black in the picture's range and depth, with neutral chroma."""
    frame, size = noise(pix_fmt), (64, 52)
    colour = Colour(range=2 if pix_fmt.startswith("gbr") else levels)
    result = filtered(frame, steps_of(padded=size, place=(8, 12)), pix_fmt, colour)
    for number, (before, after) in enumerate(zip(planes(frame), planes(result), strict=True)):
        bits = frame.format.components[number].bits
        is_rgb = pix_fmt.startswith("gbr")
        level = 128 if number and not is_rgb else 0 if levels == 2 or is_rgb else 16
        wanted = np.full((52 * before.shape[0] // HEIGHT, 64 * before.shape[1] // WIDTH), level << bits - 8)
        top, left = 12 * before.shape[0] // HEIGHT, 8 * before.shape[1] // WIDTH
        wanted[top : top + before.shape[0], left : left + before.shape[1]] = before
        assert np.array_equal(after, wanted)


@pytest.mark.parametrize("pix_fmt", OUTPUTS)
def test_denoising_smooths_noise_and_keeps_the_format(pix_fmt: str) -> None:
    """In every format that is encoded, each level removes more noise from a flat picture, in every plane."""
    flat = noise(pix_fmt)
    for samples, component in zip(planes(flat), flat.format.components, strict=True):
        samples[...] = (128 << component.bits - 8) + (samples % 5 << component.bits - 8)
    output = VideoFormat(WIDTH, HEIGHT, pix_fmt, Fraction(25))
    spread = [[float(samples.std()) for samples in planes(flat)]]
    for level in ("light", "medium", "strong"):
        chain = FilterChain(FilterSettings(output, denoise=level), Fraction(1, 25))
        ((_, result),) = [*chain.push(0, copy_of(flat)), *chain.finish()]
        assert (result.width, result.height, result.format.name) == (WIDTH, HEIGHT, pix_fmt)
        spread.append([float(samples.std()) for samples in planes(result)])
    assert all(after < before for one, other in pairwise(spread) for before, after in zip(one, other, strict=True))


def copy_of(frame: VideoFrame) -> VideoFrame:
    """Return another frame with the same samples."""
    made = VideoFrame(frame.width, frame.height, frame.format.name)
    for there, here in zip(planes(made), planes(frame), strict=True):
        there[...] = here
    return made


@pytest.mark.parametrize(
    ("pix_fmt", "workable"),
    [
        ("yuv420p", "yuv420p"),
        ("yuv422p", "yuv444p"),
        ("yuv422p10le", "yuv444p10le"),
        ("yuyv422", "yuv444p"),
        ("yuv411p", "yuv444p"),
        ("gray", "gray"),
        ("rgb24", "rgb24"),
        ("pal8", "rgb24"),
    ],
)
def test_a_format_that_cannot_be_turned_gets_more_chroma(pix_fmt: str, workable: str) -> None:
    """For a quarter turn, and only then, chroma that is subsampled in one direction gets full resolution."""
    assert workable_format(pix_fmt, CLOCKWISE) == workable
    assert workable_format(pix_fmt, UPRIGHT) == (workable if pix_fmt == "pal8" else pix_fmt)


def test_a_picture_of_another_size_is_brought_to_the_tracks_first() -> None:
    """A crop is in samples of the track's size, so a picture twice as large keeps twice as much."""
    grey = noise("gray", 2 * WIDTH, 2 * HEIGHT)
    (samples,) = planes(grey)
    samples[...] = 200
    samples[:HEIGHT, :] = 50
    (after,) = planes(filtered(grey, steps_of(crop=Region(16, 8, 0, HEIGHT - 8)), "gray"))
    assert after.shape == (8, 16)
    assert set(after.flatten()) == {200}


def test_the_order_is_crop_turn_scale_pad() -> None:
    """Each step gets the result of the previous step, and the encoder kind names all steps."""
    frame = noise("gray")
    steps = steps_of(crop=Region(16, 8, 8, 4), turn=CLOCKWISE, scaled=(16, 32), padded=(32, 40), place=(8, 4))
    (after,) = planes(filtered(frame, steps, "gray"))
    (turned,) = planes(filtered(frame, steps_of(crop=Region(16, 8, 8, 4), turn=CLOCKWISE), "gray"))
    inner = after[4:36, 8:24].astype(int)
    assert turned.shape == (16, 8)
    assert abs(inner.reshape(16, 2, 8, 2).mean(axis=(1, 3)) - turned).mean() < 24
    assert steps.name == "crop=16:8:8:4 turn=0:1:-1:0 scale=16:32 pad=32:40:8:4"
    assert steps.words == (
        "cropped to 16x8 at 8:4, turned by 90 degrees clockwise, scaled to 16x32, padded to 32x40, the picture at 8:4"
    )

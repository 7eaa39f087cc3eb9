"""Tensors on the host against a separate reading of the formula, and against themselves."""

from contextlib import closing
from dataclasses import replace
from itertools import product

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codecfleet import CodecfleetError, UsageError
from codecfleet.actors.media.values import Colour
from codecfleet.actors.surfaces.frames import plane_arrays
from codecfleet.actors.surfaces.scaling import ScaleFilter
from codecfleet.actors.tensors.host_tensor import HostTensorMaker, to_tensor
from codecfleet.actors.tensors.tensor_format import TensorFormat
from tests.sweeps import swept

from .tensor_formula import (
    BY_SWSCALE,
    COLOURS,
    MOST,
    RESIZED_BY_SWSCALE,
    SIDES,
    Case,
    check_near,
    exact,
    plan_of,
    tensor,
    windows,
)
from .tensor_reference import PLANAR, frame_of, noise, reference

CASES = st.builds(
    Case,
    pix_fmt=st.sampled_from([*PLANAR]),
    window=windows(),
    target=st.none() | st.tuples(SIDES, SIDES),
    filter=st.sampled_from(ScaleFilter),
    colour=COLOURS,
    seed=st.integers(0, 99),
)


@settings(max_examples=2 * settings().max_examples, deadline=None)
@given(case=CASES)
def test_values_are_the_formulas(case: Case) -> None:
    """Every depth, sampling, range, matrix, siting and filter; any part to any size: within a rounding's reach."""
    bits = PLANAR[case.pix_fmt][1]
    size, crop = case.window
    picture = noise(case.pix_fmt, size, case.seed, bits)
    planes = [plane.astype(np.float64) for plane in plane_arrays(picture)]
    wanted, luma = (
        reference(each, size, crop, case.size, filter_=case.filter, bits=bits, colour=case.colour)
        for each in (planes, planes[:1])
    )
    frame = frame_of(picture, case.colour)
    format_ = TensorFormat(size=case.target, crop=crop, filter=case.filter)
    bytes_ = tensor([frame], format_)
    check_near(bytes_[0] - 255 * wanted, case)
    floats = tensor([frame], replace(format_, dtype="float32"))
    check_near((floats[0] - wanted) * ((1 << min(bits, 10)) - 1), case)
    grey = tensor([frame], TensorFormat(size=case.target, crop=crop, filter=case.filter, colour="gray"))
    assert np.abs(grey[0, 0] - 255 * luma[0]).max() < MOST


@settings(max_examples=2 * settings().max_examples, deadline=None)
@given(case=CASES | BY_SWSCALE | RESIZED_BY_SWSCALE)
def test_arrays_are_exact(case: Case) -> None:
    """FFmpeg, and products and sums of arrays, give what whole numbers give, whatever is in the picture."""
    picture = noise(case.pix_fmt, case.window[0], case.seed, PLANAR[case.pix_fmt][1])
    for dtype in ("uint8", "float32"):
        plan, format_ = plan_of(case, dtype=dtype)
        wanted = exact([*plane_arrays(picture)], plan)
        found = tensor([frame_of(picture, case.colour)], format_)[0]
        scaled = wanted if dtype == "uint8" else (wanted * np.float64(1 / plan.largest)).astype(np.float32)
        assert np.array_equal(found, scaled)


JOINED = [
    ("yuv420p", (1920, 1080), (1280, 720)),
    ("yuv444p10le", (1920, 1080), (224, 224)),
    ("yuv420p", (854, 480), (96, 2000)),
    ("yuv444p10le", (854, 480), (1280, 720)),
]
SIZES = (("yuv420p", "yuv444p10le"), ((1920, 1080), (854, 480)), ((224, 224), (1280, 720), (1920, 1080), (96, 2000)))


@pytest.mark.parametrize(("pix_fmt", "size", "target"), swept(product(*SIZES), is_slow=lambda case: case not in JOINED))
def test_bands_and_strips_join(pix_fmt: str, size: tuple[int, int], target: tuple[int, int]) -> None:
    """A picture made in many parts is the picture of which crops, each made alone, are parts."""
    bits = 8 if pix_fmt == "yuv420p" else 10
    picture = noise(pix_fmt, size, 2, bits)
    planes = [plane.astype(np.float64) for plane in plane_arrays(picture)]
    colour = Colour(range=1, matrix=1)
    found = tensor([frame_of(picture, colour)], TensorFormat(size=target))[0]
    wanted = reference(planes, size, (0, 0, *size), target, filter_=ScaleFilter.BILINEAR, bits=bits, colour=colour)
    check_near(found - 255 * wanted, Case(pix_fmt, (size, (0, 0, *size)), target, ScaleFilter.BILINEAR, colour, 2))


@pytest.mark.parametrize(
    ("pix_fmt", "planar"),
    [
        ("nv12", "yuv420p"),
        ("nv21", "yuv420p"),
        ("nv16", "yuv422p"),
        ("nv24", "yuv444p"),
        ("p010le", "yuv420p10le"),
        ("p210le", "yuv422p10le"),
        ("yuv420p10be", "yuv420p10le"),
        ("yuva420p", "yuv420p"),
        ("yuyv422", "yuv422p"),
        ("uyvy422", "yuv422p"),
    ],
)
def test_arrangements_of_the_same_samples(pix_fmt: str, planar: str) -> None:
    """However samples are arranged in memory, the tensor is the same."""
    picture = noise(planar, (34, 22), 4, 10 if "10" in planar else 8)
    format_ = TensorFormat(size=(20, 20), crop=(3, 1, 30, 20), dtype="float32")
    colour = Colour(range=1, matrix=1)
    found = tensor([frame_of(picture.reformat(format=pix_fmt), colour)], format_)
    assert np.array_equal(found, tensor([frame_of(picture, colour)], format_))


@pytest.mark.parametrize("pix_fmt", ["rgb24", "bgr24", "rgba", "bgra", "argb", "abgr", "gbrp", "gbrap", "rgb0", "pal8"])
def test_rgb_of_full_size_is_unchanged(pix_fmt: str) -> None:
    """RGB is neither scaled nor converted if nothing requests it; alpha is left away."""
    pixels = np.random.default_rng(1).integers(0, 256, (21, 33, 3), dtype=np.uint8)
    if pix_fmt == "pal8":
        pixels[:] = pixels[:1, :1]
        pixels &= 0
    source = av.VideoFrame.from_ndarray(pixels, format="rgb24")
    picture = source if pix_fmt == "rgb24" else source.reformat(format="rgb8" if pix_fmt == "pal8" else pix_fmt)
    found = tensor([frame_of(picture, Colour())], TensorFormat(layout="nhwc"))
    assert np.array_equal(found[0], pixels)


def test_grey_of_rgb_is_its_luma() -> None:
    """Weighted by the matrix that is stated, or usual for its height."""
    pixels = np.random.default_rng(1).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    frame = frame_of(av.VideoFrame.from_ndarray(pixels, format="rgb24"), Colour(matrix=9))
    found = tensor([frame], TensorFormat(colour="gray"))[0, 0]
    assert np.abs(found - pixels @ np.array([0.2627, 0.678, 0.0593])).max() < 0.6


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_normalised_numbers_are_the_nearest(dtype: str) -> None:
    """(value / 255 - mean) / std, in double precision, to single, to the type."""
    means, stds = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    frame = frame_of(noise("yuv420p", (64, 48), 8), Colour())
    values = tensor([frame], TensorFormat(size=(20, 10)))[0].astype(np.float64)
    found = tensor([frame], TensorFormat(size=(20, 10), dtype=dtype, mean=means, std=stds))  # type: ignore[arg-type]
    wanted = ((values / 255 - np.reshape(means, (3, 1, 1))) / np.reshape(stds, (3, 1, 1))).astype(np.float32)
    steps = {"float32": 2.0**-23, "float16": 2.0**-11, "bfloat16": 2.0**-8}
    assert np.abs(np.asarray(found)[0].astype(np.float64) - wanted).max() <= 2.7 * steps[dtype] * 1.01
    if dtype == "float16":
        assert np.array_equal(found[0], wanted.astype(np.float16))


def test_layouts_hold_the_same_numbers() -> None:
    """Channels first or last, in pictures of several sizes."""
    frames = [frame_of(noise("yuv420p", size, 3), Colour()) for size in ((30, 20), (64, 64))]
    for dtype in ("uint8", "float32"):
        first, last = (
            tensor(frames, TensorFormat(size=(9, 7), layout=layout, dtype=dtype))  # type: ignore[arg-type]
            for layout in ("nchw", "nhwc")
        )
        assert first.shape == (2, 3, 7, 9)
        assert np.array_equal(first.transpose(0, 2, 3, 1), last)


def test_threads_make_what_one_makes() -> None:
    """Each picture in its place; the error is that of the first picture that has one."""
    frames = [frame_of(noise("yuv420p", (64, 48), seed), Colour()) for seed in range(9)]
    unknown = [frame_of(noise("yuv420p", (64, 48), 3), Colour(matrix=matrix)) for matrix in (8, 14)]
    with closing(HostTensorMaker(3)) as maker:
        for size in (None, (20, 10)):
            format_ = TensorFormat(size=size)
            assert np.array_equal(np.asarray(maker.make(frames, format_)), tensor(frames, format_))
        with pytest.raises(CodecfleetError, match="YCgCo"):
            maker.make([*frames, *unknown], TensorFormat())


def test_refusals_name_the_reason() -> None:
    """Pictures that do not go together, or have no formula."""
    frames = [frame_of(noise("yuv420p", size, 3), Colour()) for size in ((30, 20), (64, 64))]
    with pytest.raises(UsageError, match="30x20, 64x64"):
        tensor(frames, TensorFormat())
    with pytest.raises(UsageError, match="no frame"):
        to_tensor([], TensorFormat())
    with pytest.raises(UsageError, match="not inside a picture of 30x20"):
        tensor(frames, TensorFormat(crop=(0, 0, 31, 20), size=(2, 2)))
    with pytest.raises(CodecfleetError, match="YCgCo"):
        tensor([frame_of(noise("yuv420p", (8, 8), 3), Colour(matrix=8))], TensorFormat())

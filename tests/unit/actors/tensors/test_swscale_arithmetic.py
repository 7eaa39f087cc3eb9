"""Tensors that swscale makes on the host: its weights and bytes are those of the formula, on every processor."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import av
import numpy as np
import pytest
from hypothesis import given, settings

from codecfleet.actors.media.av_abi import ffmpeg
from codecfleet.actors.media.values import Colour
from codecfleet.actors.surfaces.frames import plane_arrays
from codecfleet.actors.surfaces.host_pictures import plane_rows
from codecfleet.actors.surfaces.scaling import ScaleFilter
from codecfleet.actors.tensors import swscale_arithmetic
from codecfleet.actors.tensors.host_tensor import _prepared
from codecfleet.actors.tensors.plan import siting
from codecfleet.actors.tensors.sample_places import sample_places
from codecfleet.actors.tensors.swscale_arithmetic import SwscaleArithmetic
from codecfleet.actors.tensors.tensor_format import TensorFormat
from tests.sweeps import swept

from .fences import fenced
from .tensor_formula import RESIZED_BY_SWSCALE, Case, check_near, exact, plan_of, tensor
from .tensor_reference import KR_KB, frame_of, noise, reference


@pytest.fixture
def with_flags() -> Iterator[Callable[[int], None]]:
    """Limit FFmpeg's code to some extensions of the processor (0: none; -1: all of them), for contexts opened later."""

    def limit(flags: int) -> None:
        ffmpeg().av_force_cpu_flags(flags)
        _prepared.cache_clear()

    yield limit
    limit(-1)


@settings(deadline=None)
@given(case=RESIZED_BY_SWSCALE)
def test_swscale_resizes_whole_chroma_samples(case: Case) -> None:
    """Its weights are not negative and sum to 1, and its values are near those of the filter."""
    plan, format_ = plan_of(case)
    assert plan.by_swscale
    for taps in plan.taps:
        for axis, one in ((taps.across, 1 << 14), (taps.down, 1 << 12)):
            assert {sum(weights) for weights in axis.weights} == {one}
            assert min(map(min, axis.weights)) >= 0
    size, crop = case.window
    picture = noise(case.pix_fmt, size, case.seed)
    planes = [plane.astype(np.float64) for plane in plane_arrays(picture)]
    wanted = reference(planes, size, crop, case.size, filter_=case.filter, bits=8, colour=case.colour)
    check_near(tensor([frame_of(picture, case.colour)], format_)[0] - 255 * wanted, case)


@pytest.mark.parametrize("target", [(24, 16), (40, 40), (90, 57), (8, 200)])
@pytest.mark.parametrize("range_", [1, 2])
def test_extremes_are_exact(range_: int, target: tuple[int, int]) -> None:
    """Blocks of black, white and saturated chroma, whose sums may exceed 32 bits, are resized like other samples."""
    random = np.random.default_rng(7)
    for matrix_, side in product(KR_KB, (1, 3, 8, 40)):
        picture = av.VideoFrame(64, 48, "yuv420p")
        for plane in picture.planes:
            rows = plane_rows(plane, np.dtype(np.uint8))
            blocks = random.choice([0, 16, 128, 240, 255], [-(-each // side) for each in rows.shape])
            rows[:] = np.kron(blocks, np.ones((side, side), int))[: rows.shape[0], : rows.shape[1]]
        colour = Colour(range=range_, matrix=matrix_)
        case = Case("yuv420p", ((64, 48), (0, 0, 64, 48)), target, ScaleFilter.BILINEAR, colour, 0)
        plan, format_ = plan_of(case)
        assert plan.by_swscale
        assert np.array_equal(tensor([frame_of(picture, colour)], format_)[0], exact([*plane_arrays(picture)], plan))


@pytest.mark.parametrize(
    ("size", "target", "is_exact"),
    [
        ((512, 16), (8, 8), True),
        ((514, 16), (8, 8), False),
        ((16, 16), (4096, 8), True),
        ((16, 16), (4097, 8), False),
        ((14, 16), (8, 8), False),
        ((16, 16), (7, 8), False),
    ],
)
def test_sides_beyond_the_limits_are_not_left_to_swscale(
    size: tuple[int, int], target: tuple[int, int], *, is_exact: bool
) -> None:
    """At its limits swscale has the formula's bytes; one step beyond them it does not resize."""
    colour = Colour(range=1, matrix=1)
    case = Case("yuv420p", (size, (0, 0, *size)), target, ScaleFilter.BILINEAR, colour, 11)
    plan, format_ = plan_of(case)
    assert plan.by_swscale is is_exact
    picture = noise("yuv420p", size, case.seed)
    found = tensor([frame_of(picture, colour)], format_)[0]
    assert np.array_equal(found, exact([*plane_arrays(picture)], plan))


@pytest.mark.parametrize("target", [None, (24, 16), (41, 57), (40, 57), (200, 33)])
@pytest.mark.parametrize(
    ("pix_fmt", "size"),
    [("yuv420p", (50, 34)), ("yuv420p", (48, 32)), ("yuv422p", (104, 62)), ("yuv420p", (346, 18))],
)
@pytest.mark.parametrize("at_end", [False, True])
def test_no_memory_beyond_pictures_is_touched(
    pix_fmt: str,
    size: tuple[int, int],
    target: tuple[int, int] | None,
    monkeypatch: pytest.MonkeyPatch,
    with_flags: Callable[[int], None],
    *,
    at_end: bool,
) -> None:
    """Nothing is read or written beyond planes, tensor and scratch memory, if these have no padding."""
    guarded = partial(fenced, at_end=at_end)
    monkeypatch.setattr(swscale_arithmetic, "scratch", lambda _name, shape, _kind: guarded(shape))
    random, colour, format_ = np.random.default_rng(3), Colour(range=1, matrix=1), TensorFormat(size=target)
    places = sample_places(pix_fmt)
    assert places is not None
    width, height = size
    chroma = (height // 2 if places.halved_down else height, width // 2)
    planes = [fenced(shape, at_end=at_end) for shape in ((height, width), chroma, chroma)]
    for plane in planes:
        plane[:] = random.integers(0, 256, plane.shape)
    arithmetic = _prepared(places, size, colour, format_)
    assert isinstance(arithmetic, SwscaleArithmetic)
    for flags in (0, -1):
        with_flags(flags)
        made = fenced((3, *(target or size)[::-1]), at_end=at_end)
        SwscaleArithmetic(arithmetic.plan, (0, 0, *size), *siting(places, colour)).write(planes, made, None)
        assert np.array_equal(made, exact(planes, arithmetic.plan))


@pytest.mark.parametrize("matrix", swept(KR_KB))
@pytest.mark.parametrize("range_", [1, 2])
def test_colour_of_swscale_is_near(matrix: int, range_: int) -> None:
    """Every Y' with 64 x 64 of Cb and Cr: no sum is further from H.273 than stated; black and white are exact."""
    luma, steps = np.arange(256, dtype=np.uint8), np.linspace(0, 255, 64).astype(np.uint8)
    picture = av.VideoFrame(512, 64 * 64, "yuv422p")
    for plane, samples in zip(
        picture.planes,
        (np.repeat(luma, 2)[None], np.repeat(steps, 64)[:, None], np.tile(steps, 64)[:, None]),
        strict=True,
    ):
        plane_rows(plane, np.dtype(np.uint8))[:, : plane.width] = samples
    colour = Colour(range=range_, matrix=matrix)
    found = tensor([frame_of(picture, colour)], TensorFormat())[0, :, :, ::2]
    planes = [plane.astype(np.float64) for plane in plane_arrays(picture)]
    planes[0] = planes[0][:, ::2]
    wanted = reference(
        planes,
        (256, 64 * 64),
        (0, 0, 256, 64 * 64),
        (256, 64 * 64),
        filter_=ScaleFilter.BILINEAR,
        bits=8,
        colour=colour,
    )
    legal = slice(None) if range_ == 2 else slice(16, 236)
    assert np.abs(found - 255 * wanted)[:, :, legal].max() < 0.5 + 0.04
    grey = av.VideoFrame(512, 2, "yuv422p")
    for plane, samples in zip(grey.planes, (np.repeat(luma, 2)[None], [[128]], [[128]]), strict=True):
        plane_rows(plane, np.dtype(np.uint8))[:, : plane.width] = samples
    values = tensor([frame_of(grey, colour)], TensorFormat())[0, :, 0, ::2]
    assert values[:, legal][:, [0, -1]].tolist() == [[0, 255]] * 3


@pytest.mark.parametrize("size", [None, (40, 24), (99, 98)])
def test_processors_agree(size: tuple[int, int] | None, with_flags: Callable[[int], None]) -> None:
    """The code of swscale for any processor, and its code for this processor, write the same bytes."""
    frame = frame_of(noise("yuv420p", (64, 48), 5), Colour(range=1, matrix=1))
    found = []
    for flags in (0, -1):  # no extensions; those of this processor
        with_flags(flags)
        found.append(tensor([frame], TensorFormat(size=size)))
    assert np.array_equal(*found)

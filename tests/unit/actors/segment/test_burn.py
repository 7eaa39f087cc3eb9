"""Subtitles burnt into pictures: when each is shown, its position, and its samples."""

import itertools
import tracemalloc
import zlib
from dataclasses import replace
from fractions import Fraction
from math import ceil

import numpy as np
import pytest
from av.video.frame import VideoFrame
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from codecfleet.actors.media.values import Colour, VideoFormat
from codecfleet.actors.segment.burn import Burner, BurntSubtitles, Screen, Subtitle, laid_out, placed
from codecfleet.actors.segment.filtering import FilterSettings

SIZE = (64, 48)
OUTPUT = VideoFormat(width=64, height=48, pix_fmt="yuv420p", frame_rate=Fraction(25), colour=Colour(matrix=1))


def screen_of(size: tuple[int, int] = SIZE, **changes: object) -> Screen:
    """Return a canvas that covers pictures of a size."""
    whole: dict[str, object] = {
        "left": Fraction(0),
        "top": Fraction(0),
        "width": Fraction(size[0]),
        "height": Fraction(size[1]),
        "source": size,
        "shape": Fraction(1),
        "square_samples": False,
    }
    return Screen(**(whole | changes))  # type: ignore[arg-type] # of the right types


def subtitle_of(
    samples: NDArray[np.uint8],
    place: tuple[int, int] = (0, 0),
    canvas: tuple[int, int] = SIZE,
    shown_s: tuple[Fraction, Fraction] = (Fraction(0), Fraction(1)),
) -> Subtitle:
    """Return a subtitle with these samples."""
    return Subtitle(
        start_s=shown_s[0],
        end_s=shown_s[1],
        canvas=canvas,
        x=place[0],
        y=place[1],
        width=samples.shape[1],
        height=samples.shape[0],
        sha256="",
        packed=zlib.compress(samples.tobytes()),
    )


def ink(width: int, height: int, alpha: int = 255) -> NDArray[np.uint8]:
    """Return samples of one colour."""
    return np.full((height, width, 4), (250, 20, 90, alpha), np.uint8)


def burnt(*subtitles: Subtitle, screen: Screen | None = None) -> BurntSubtitles:
    """Return a track with these subtitles."""
    screen = screen or screen_of()
    return BurntSubtitles(source_index=1, track="a track", sha256="0" * 64, screen=screen, subtitles=subtitles)


def grey() -> VideoFrame:
    """Return a grey picture."""
    return VideoFrame.from_ndarray(np.full((72, 64), 128, np.uint8), format="yuv420p")


TIMES = st.fractions(min_value=-3, max_value=30, max_denominator=90_000)


@given(spans=st.lists(st.tuples(TIMES, TIMES), max_size=12), at=TIMES, cuts=st.lists(TIMES, max_size=4))
def test_any_cut_shows_the_same(spans: list[tuple[Fraction, Fraction]], at: Fraction, cuts: list[Fraction]) -> None:
    """A subtitle is shown exactly at times in [start, end); a segment needs only the subtitles of its own time."""
    edges = sorted({edge for span in spans for edge in span})
    pairs = list(zip(edges[::2], edges[1::2], strict=False))
    whole = burnt(*(subtitle_of(ink(2, 2), shown_s=pair) for pair in pairs))
    due = next((each for each in whole.subtitles if each.start_s <= at < each.end_s), None)
    assert whole.at(at) is due
    bounds = [None, *sorted(cuts), None]
    for start_s, end_s in itertools.pairwise(bounds):
        if (start_s is None or start_s <= at) and (end_s is None or at < end_s):
            part = whole.during(start_s, end_s)
            assert part.at(at) is due
            assert part.name == whole.name
            assert all(end_s is None or each.start_s < end_s for each in part.subtitles)
            assert all(start_s is None or each.end_s > start_s for each in part.subtitles)


def test_of_its_own_size_nothing_is_resampled() -> None:
    """On a canvas of the picture's size, a subtitle keeps its samples and its position."""
    samples = np.random.default_rng(7).integers(0, 256, (9, 13, 4), np.uint8)
    place, found = laid_out(subtitle_of(samples, (20, 30)), screen_of(), SIZE)
    assert place == (20, 30)
    assert np.array_equal(found, samples)
    # also if whole samples are cropped
    place, found = laid_out(subtitle_of(samples, (20, 30)), screen_of(left=Fraction(-5), top=Fraction(-8)), SIZE)
    assert place == (15, 22)
    assert np.array_equal(found, samples)


@given(
    scale=st.fractions(min_value=Fraction(1, 5), max_value=5, max_denominator=97),
    left=st.fractions(min_value=0, max_value=9, max_denominator=97),
    seed=st.integers(0, 99),
)
def test_scaled_it_is_a_triangle_filter(scale: Fraction, left: Fraction, seed: int) -> None:
    """Each sample is within two steps of the filter in floats, with colours weighted by their alpha."""
    samples = np.random.default_rng(seed).integers(0, 256, (7, 9, 4), np.uint8)
    size = (ceil(left + 9 * scale) + 12, ceil(left + 7 * scale) + 12)
    screen = screen_of((9, 7), left=left, top=left, width=9 * scale, height=7 * scale)
    place, found = laid_out(subtitle_of(samples, canvas=(9, 7)), screen, size)
    whole = np.zeros((size[1], size[0], 4))
    whole[place[1] : place[1] + found.shape[0], place[0] : place[0] + found.shape[1]] = found
    weighed = samples / 255
    weighed[..., :3] *= weighed[..., 3:]
    for axis, (length, outer) in enumerate(((7, size[1]), (9, size[0]))):
        middles = (np.arange(outer)[:, None] + 0.5 - float(left)) / float(scale) - 0.5
        reach = max(1.0, 1 / float(scale))
        taps = np.arange(-200, length + 200)
        parts = np.maximum(0, 1 - np.abs(taps[None, :] - middles) / reach)
        parts = (parts / parts.sum(axis=1, keepdims=True))[:, 200 : 200 + length]
        weighed = np.moveaxis(np.tensordot(parts, weighed, axes=(1, axis)), 0, axis)
    assert np.abs(whole[..., 3] / 255 - weighed[..., 3]).max() < 2 / 255
    assert np.abs(whole[..., :3] * whole[..., 3:] / 255**2 - weighed[..., :3]).max() < 2 / 255


def test_opaque_stays_opaque() -> None:
    """The inside of a scaled patch keeps its colour."""
    for scale in (Fraction(1, 3), Fraction(2, 3), Fraction(17, 13), Fraction(3)):
        screen = screen_of((40, 30), width=40 * scale, height=30 * scale)
        _, found = laid_out(subtitle_of(ink(40, 30), canvas=(40, 30)), screen, (200, 200))
        rows, columns = (slice(3, int(length * scale) - 3) for length in (30, 40))
        assert (found[rows, columns] == (250, 20, 90, 255)).all()


def test_where_it_lies() -> None:
    """A canvas covers the source's picture; with square samples, a canvas of another shape is centred unstretched."""
    at = subtitle_of(ink(20, 10), (40, 80), canvas=(100, 100))
    assert placed(at, screen_of((200, 50)), (200, 50)) == ((80, 2), (40, Fraction(1, 2)))
    square = screen_of((200, 50), square_samples=True)
    assert placed(at, square, (200, 50)) == ((95, Fraction(1, 2)), (40, Fraction(1, 2)))
    wide = screen_of((50, 50), square_samples=True, shape=Fraction(2))
    assert placed(at, wide, (50, 50)) == (
        (Fraction(25, 2) + 10, Fraction(1, 4)),
        (40, Fraction(1, 2)),
    )
    same = subtitle_of(ink(20, 10), (40, 30), canvas=(200, 50))
    assert placed(same, square, (200, 50)) == ((40, 1), (30, 1))


def test_what_crop_cut_off_is_moved_inside() -> None:
    """A subtitle outside the picture is moved inside by as few whole samples as possible; any excess is cut off."""
    for corner, due in (((0, 0), (0, 0)), ((20, 40), (10, 28)), ((-50, -50), (0, 0)), ((500, 500), (44, 38))):
        screen = screen_of(
            left=Fraction(-10), top=Fraction(-12), width=Fraction(84), height=Fraction(72), source=(84, 72)
        )
        found = placed(subtitle_of(ink(20, 10), corner, canvas=(84, 72)), screen, SIZE)
        assert tuple(begin for begin, _ in found) == due
    screen = screen_of((200, 200), left=Fraction(-30), top=Fraction(-30))
    place, samples = laid_out(subtitle_of(ink(150, 150), (10, 10), canvas=(200, 200)), screen, SIZE)
    assert (place, samples.shape) == ((0, 0), (48, 64, 4))


def test_a_picture_that_is_shown_twice_is_burnt_once() -> None:
    """The source picture does not change, because with a rate it may be shown again after the subtitle's end."""
    frame, burner = grey(), Burner(burnt(subtitle_of(ink(8, 6, 128), (10, 10))), OUTPUT)
    first, second = burner.burn(Fraction(0), frame), burner.burn(Fraction(1, 2), frame)
    assert (frame.to_ndarray() == 128).all()
    assert (first.to_ndarray() == second.to_ndarray()).all()
    assert (first.to_ndarray() != 128).any()
    assert burner.burn(Fraction(1), frame) is frame
    assert burner.burn(Fraction(-1), frame) is frame


def test_two_subtitles_follow_each_other() -> None:
    """From its own start on, only the second subtitle is shown."""
    first = subtitle_of(ink(8, 6), (0, 0), shown_s=(Fraction(0), Fraction(1)))
    second = subtitle_of(ink(8, 6), (40, 30), shown_s=(Fraction(1), Fraction(2)))
    burner = Burner(burnt(first, second), OUTPUT)
    for time_s, inked, clear in (
        (Fraction(999, 1000), np.s_[:6, :8], np.s_[30:36, 40:]),
        (Fraction(1), np.s_[30:36, 40:48], np.s_[:6, :8]),
    ):
        luma = burner.burn(time_s, grey()).to_ndarray()[:48]
        assert (luma[inked] != 128).all()
        assert (luma[clear] == 128).all()


@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv444p10le", "gray"])
def test_every_format(pix_fmt: str) -> None:
    """Burning uses the overlay's formula: an opaque white subtitle is white in every format."""
    output = VideoFormat(width=64, height=48, pix_fmt=pix_fmt, frame_rate=Fraction(25), colour=Colour(matrix=1))
    white = np.full((6, 8, 4), 255, np.uint8)
    found = Burner(burnt(subtitle_of(white)), output).burn(Fraction(0), grey().reformat(format=pix_fmt))
    assert found.format.name == pix_fmt
    luma = found.planes[0]
    samples = np.frombuffer(memoryview(luma), "<u2" if "10" in pix_fmt else "u1").reshape(luma.height, -1)
    assert (samples[:6, :8] == (940 if "10" in pix_fmt else 235)).all()


@pytest.mark.parametrize("canvas", [(480, 270), (320, 180), (960, 540)])
def test_what_burning_takes_is_what_placement_counts(canvas: tuple[int, int]) -> None:
    """The memory used is at most the stated memory, and at least a quarter of it, for any scaling."""
    output = replace(OUTPUT, width=480, height=270)
    track = burnt(subtitle_of(ink(*canvas), canvas=canvas), screen=screen_of((480, 270)))
    settings, picture = FilterSettings(output, burn=track), VideoFrame(480, 270, "yuv420p")
    tracemalloc.start()
    try:
        Burner(track, output).burn(Fraction(0), picture)
        (_, peak_bytes) = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert settings.kept_bytes / 4 < peak_bytes < settings.kept_bytes
    assert FilterSettings(output, burn=burnt()).kept_bytes == 0

"""Frames of many shapes become continuous audio, with every sample at its time, and every frame checked."""

from fractions import Fraction

import av
import numpy as np
import pytest
from av.audio.frame import AudioFrame
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.tracks.conform import Conformer, shape_of
from codecfleet.actors.tracks.sample_line import SampleLine
from codecfleet.actors.tracks.speakers import speakers

SHAPES = [("fltp", "stereo", 48_000), ("fltp", "5.1", 48_000), ("s16", "mono", 44_100), ("fltp", "7.1", 32_000)]


def frame(shape: tuple[str, str, int], samples: int, level: float = 0.5) -> AudioFrame:
    """Return a frame with one level in all channels."""
    sample_format, layout, rate = shape
    packed = np.full((1, samples * len(speakers(layout))), level)
    made = AudioFrame.from_ndarray(packed, format="dbl", layout=layout)
    made.sample_rate = rate
    return av.AudioResampler(sample_format, layout, rate).resample(made)[0]


@given(
    st.lists(st.tuples(st.sampled_from(SHAPES), st.integers(1, 3_000)), min_size=1, max_size=8),
    st.sampled_from([*SHAPES, ("flt", "quad", 96_000)]),
)
def test_time_is_kept_over_every_change(
    frames: list[tuple[tuple[str, str, int], int]], wanted: tuple[str, str, int]
) -> None:
    """The output has one shape and exactly the duration of the input, through all changes of shape."""
    conformer = Conformer(*wanted)
    found = [each for shape, samples in frames for each in conformer.take(frame(shape, samples))]
    found += conformer.finish()

    assert {shape_of(each) for each in found} <= {wanted}
    due = sum(Fraction(samples, shape[2]) for shape, samples in frames) * wanted[2]
    changes = len({shape[1:] for shape, _ in frames}) > 1
    # FFmpeg's resampler keeps the last few samples, if it had no more input than that
    assert abs(sum(each.samples for each in found) - due) <= (Fraction(1, 2) if changes else 40)


def test_a_mono_frame_after_stereo_is_both_sides() -> None:
    """If stereo needs no conversion, PyAV would pass a mono frame on, and its buffer would read a missing channel."""
    conformer = Conformer("fltp", "stereo", 48_000)
    shapes = [("fltp", "stereo", 48_000), ("fltp", "mono", 48_000), ("fltp", "5.1", 48_000)]
    left, right = np.concatenate(
        [each.to_ndarray() for shape in shapes for each in conformer.take(frame(shape, 100))], axis=1
    )

    assert left == pytest.approx(right)
    assert left == pytest.approx(np.full(300, 0.5), abs=1e-6)
    assert conformer.formats == [("stereo", 48_000), ("mono", 48_000), ("5.1", 48_000)]


def test_a_line_of_samples_goes_on_at_another_rate() -> None:
    """Silence fills a gap at the rate of the next frame; no frame of another rate is dropped."""
    line, found = SampleLine(None, None), []
    for at_s, rate in ((Fraction(0), 48_000), (Fraction(1), 44_100), (Fraction(3), 48_000)):
        part = frame(("flt", "stereo", rate), rate)
        part.pts, part.time_base = int(at_s * rate), Fraction(1, rate)
        found += [(each.sample_rate, each.samples) for each in line.place(part)]

    silent = [(48_000, 48_000)]
    assert found == [(48_000, 48_000), (44_100, 44_100), *silent, (48_000, 48_000)]
    assert line.begin_s == 0

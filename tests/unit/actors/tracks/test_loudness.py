"""EBU R 128: the measured loudness, the resulting gain, and the limit of the gain."""

from fractions import Fraction

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.tracks.loudness import TRUE_PEAK_DB, Gain, Loudness, LoudnessMeter, factor, settled

RATE = 48_000


def sine(level_db: float, length_s: float, *, sample_format: str = "flt", channels: int = 2) -> list[av.AudioFrame]:
    """Return a tone of 1 kHz with this peak level in each channel."""
    moments = np.arange(int(length_s * RATE)) / RATE
    wave = 10 ** (level_db / 20) * np.sin(2 * np.pi * 1000 * moments)
    frames = []
    for begin in range(0, len(wave), 1000):
        samples = np.repeat(wave[begin : begin + 1000], channels).reshape(1, -1)
        kind = {"flt": samples.astype(np.float32), "s16": (samples * 32767).astype(np.int16)}[sample_format]
        layout = {1: "mono", 2: "stereo"}[channels]
        frame = av.AudioFrame.from_ndarray(kind, format=sample_format, layout=layout)
        frame.sample_rate = RATE
        frames.append(frame)
    return frames


def measured(frames: list[av.AudioFrame], target_lufs: Fraction = Fraction(-23), layout: str = "stereo") -> Loudness:
    """Return a meter's result for frames."""
    meter = LoudnessMeter(layout, RATE)
    for frame in frames:
        meter.push(frame)
    return meter.finish(target_lufs)


@pytest.mark.parametrize("level_db", [-23, -33])
@pytest.mark.parametrize("sample_format", ["flt", "s16"])
def test_a_tone_measures_what_ebu_says(level_db: int, sample_format: str) -> None:
    """EBU Tech 3341, cases 1 and 2: a tone in both channels measures its level in LUFS, within 0.1."""
    found = measured(sine(level_db, 4, sample_format=sample_format))
    assert found.integrated_lufs == pytest.approx(level_db, abs=0.1)
    assert found.true_peak_db == pytest.approx(level_db, abs=0.2)
    assert found.gain_db == pytest.approx(-23 - level_db, abs=0.1)


def test_quiet_passages_do_not_count() -> None:
    """EBU Tech 3341, case 3: passages 10 LU below the rest do not count."""
    found = measured([*sine(-36, 3), *sine(-23, 20), *sine(-36, 3)])
    assert found.integrated_lufs == pytest.approx(-23, abs=0.1)


@pytest.mark.parametrize("frames", [sine(-120, 2), sine(-23, 0.1)], ids=["silence", "too short"])
def test_what_cannot_be_measured_stays_as_it_is(frames: list[av.AudioFrame]) -> None:
    """The loudness is unknown if there is no block, or none passes the absolute gate."""
    found = measured(frames)
    assert (found.integrated_lufs, found.gain_db, found.limited) == (None, 0, False)


@given(st.fractions(-36, -5), st.fractions(-60, 3), st.floats(0.001, 2))
def test_the_gain_reaches_the_target_or_the_peak(target: Fraction, lufs: Fraction, peak: float) -> None:
    """The target is reached exactly, unless the true peak would exceed -1 dBTP; then the result states the limit."""
    found = settled(target, lufs, peak)
    if found.limited:
        assert lufs + found.gain_db < target
        assert peak * factor(found.gain_db) == pytest.approx(10 ** (float(TRUE_PEAK_DB) / 20), rel=0.6)
    else:
        assert lufs + found.gain_db == target
    assert peak * factor(found.gain_db) <= 10 ** (float(TRUE_PEAK_DB) / 20) * 1.0002


@pytest.mark.parametrize("sample_format", ["flt", "s16"])
@pytest.mark.parametrize("channels", [1, 2])
def test_a_gain_multiplies_each_sample(sample_format: str, channels: int) -> None:
    """Samples are multiplied in doubles, in any format, and none is lost."""
    frames = sine(-20, 0.1, sample_format=sample_format, channels=channels)
    gain = Gain(Fraction(-6))
    louder = np.concatenate([gain.apply(frame).to_ndarray()[0] for frame in frames])
    before = np.concatenate([frame.to_ndarray()[0] for frame in frames]).astype(np.float64)
    if sample_format == "s16":
        before /= 32768
    assert np.allclose(louder, before * 10 ** (-6 / 20), atol=1e-12)

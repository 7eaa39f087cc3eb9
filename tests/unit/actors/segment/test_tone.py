"""HDR to SDR: the fixed points of the formula, and a table that is the same everywhere."""

import hashlib
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.segment.tone import (
    HLG_PEAK_CD,
    NODES,
    WHITE_CD,
    Operator,
    ToneMap,
    Transfer,
    compressed,
    cube,
    mapped,
    power,
    pq_code,
    pq_light,
)

PQ_1000 = ToneMap(Operator.BT2390, Transfer.PQ, Fraction(1000))
HLG = ToneMap(Operator.BT2390, Transfer.HLG, Fraction(HLG_PEAK_CD))
ALL = [ToneMap(operator, transfer, Fraction(1000)) for operator in Operator for transfer in Transfer]


def grey(code: float, tone: ToneMap) -> list[float]:
    """Return R'G'B' of SDR for a grey."""
    values = np.array([code])
    return [float(each[0]) for each in mapped(values, values, values, tone)]


@given(st.floats(0, 100), st.floats(0.05, 100))
def test_a_power_is_the_power(base: float, exponent: float) -> None:
    """The power agrees with the processor's own, except in the last digits."""
    wanted = base**exponent
    (found,) = power(np.array([base]), exponent)
    assert found == pytest.approx(wanted, rel=1e-11, abs=1e-300)


@pytest.mark.parametrize(("light_cd", "code"), [(0, 0), (100, 0.5081), (203, 0.5807), (1000, 0.7518), (10_000, 1)])
def test_pq_is_st_2084s(light_cd: float, code: float) -> None:
    """PQ has the code values of SMPTE ST 2084 and BT.2408, in both directions."""
    assert float(pq_code(np.array([light_cd], dtype=float))[0]) == pytest.approx(code, abs=5e-5)
    assert float(pq_light(pq_code(np.array([light_cd], dtype=float)))[0]) == pytest.approx(light_cd, rel=1e-9, abs=1e-6)


@pytest.mark.parametrize("tone", ALL, ids=lambda tone: tone.name)
def test_light_is_compressed_from_black_to_white(tone: ToneMap) -> None:
    """Black stays black, the peak and anything brighter become white, and the curve never falls."""
    light = np.concatenate([np.linspace(0, 1000, 500), [4000.0]])
    found = compressed(light, tone)
    assert found[0] == pytest.approx(0, abs=1e-6)
    assert found[-2:].tolist() == pytest.approx([1, 1], abs=1e-6)
    assert (np.diff(found) >= -1e-12).all()


def test_what_is_dark_keeps_its_light() -> None:
    """Below BT.2390's knee, which is 88 cd/m² for a peak of 1000, light keeps its cd/m²."""
    light = np.array([0.5, 10, 50, 87])
    assert compressed(light, PQ_1000) * WHITE_CD == pytest.approx(light, rel=1e-9)
    assert compressed(np.array([120.0]), PQ_1000)[0] * WHITE_CD < 120


def test_without_highlights_nothing_is_compressed() -> None:
    """If the source is not brighter than SDR's white, the curve is a straight line."""
    tone = ToneMap(Operator.BT2390, Transfer.PQ, Fraction(WHITE_CD))
    light = np.linspace(0, WHITE_CD, 50)
    assert compressed(light, tone) == pytest.approx(light / WHITE_CD, abs=1e-9)


@pytest.mark.parametrize("tone", ALL, ids=lambda tone: tone.name)
def test_greys_stay_grey(tone: ToneMap) -> None:
    """Greys get no tint, because the white points are equal."""
    for code in (0.1, 0.3, 0.5, 0.7):
        found = grey(code, tone)
        assert max(found) - min(found) < 1e-3


def test_hlg_is_its_displays_light() -> None:
    """HLG's reference white, 75 % of the signal, is 203 cd/m² on HLG's reference display (BT.2408)."""
    (red, _, _) = grey(0.75, HLG)
    wanted = float(compressed(np.array([203.0]), HLG)[0]) ** (1 / 2.4)
    assert red == pytest.approx(wanted, abs=2e-3)


def test_the_table_is_the_same_everywhere() -> None:
    """The table's text, which decides the output's bytes, is the same to the last digit."""
    text = cube(PQ_1000)
    assert text.count("\n") == NODES**3 + 1
    assert (
        hashlib.sha256(text.encode()).hexdigest() == "e47e781c0d5e2e7cfe154100e3252d399406207a78f3b5721a71f773be4a16a0"
    )


def test_the_kind_names_all_that_decides() -> None:
    """The encoder kind names the operator, the transfer function and the peak."""
    assert PQ_1000.name == "tonemap=bt2390:pq:1000"
    assert PQ_1000.words == "tone mapped from PQ of up to 1000 cd/m² to SDR by bt2390"

"""Threads offer the GIL often while sessions decode, and no longer than that."""

import sys
from collections.abc import Iterator

import pytest

from codecfleet.actors.nvidia.gil_switching import SWITCH_INTERVAL_S, QuickSwitching
from codecfleet.actors.nvidia.nvdec.pool import NvdecPool

from .nvdec.pooled import Session, key

USUAL_S = 0.004


@pytest.fixture(autouse=True)
def _usual_interval() -> Iterator[None]:
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(USUAL_S)
    yield
    sys.setswitchinterval(before_s)


def test_the_interval_is_short_until_the_last_user_has_left() -> None:
    """Users may overlap."""
    switching = QuickSwitching()
    with switching:
        with switching:
            assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S)
        assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S)
    assert sys.getswitchinterval() == pytest.approx(USUAL_S)


def test_an_interval_that_the_program_chooses_meanwhile_stays() -> None:
    """It is the program's setting."""
    with QuickSwitching():
        sys.setswitchinterval(0.002)
    assert sys.getswitchinterval() == pytest.approx(0.002)


def test_a_shorter_interval_stays_the_same_however_often() -> None:
    """Python cuts intervals to whole microseconds, which must not add up."""
    sys.setswitchinterval(50.5e-6)
    for _ in range(3):
        with QuickSwitching():
            assert sys.getswitchinterval() == pytest.approx(50e-6)
    assert sys.getswitchinterval() == pytest.approx(50e-6)


def test_it_is_short_while_a_session_is_lent() -> None:
    """Also for sessions of several pools."""
    pools = [NvdecPool(Session, 1) for _ in range(2)]  # type: ignore[arg-type]
    with pools[0].acquire(key()), pools[1].acquire(key()):
        assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S)
    assert sys.getswitchinterval() == pytest.approx(USUAL_S)

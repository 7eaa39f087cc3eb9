"""The options of a decoder session, which docs/nvidia/pynvvideocodec.md lists."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.decode.nvdec_options import PLAIN, NvdecOptions
from codecfleet.actors.nvidia.nvdec.session import decoder_arguments
from codecfleet.errors import UsageError

PACKAGE = SimpleNamespace(DisplayDecodeLatencyType=SimpleNamespace(NATIVE="native", LOW="low", ZERO="zero"))


def test_nothing_is_asked_for_by_itself() -> None:
    """Without options the package keeps its own defaults."""
    assert NvdecOptions() == PLAIN
    assert decoder_arguments(PLAIN, PACKAGE) == {}
    assert not PLAIN.has_notes


def test_every_option_reaches_the_package() -> None:
    """Each option becomes arguments of ``CreateDecoder``."""
    options = NvdecOptions(latency="low", largest=(1920, 1088), sei_messages=True, statistics=True)
    assert decoder_arguments(options, PACKAGE) == {
        "latency": "low",
        "maxwidth": 1920,
        "maxheight": 1088,
        "enableSEIMessage": True,
        "enableDecodeStats": True,
    }


def test_an_unknown_latency_is_refused() -> None:
    """The error of an unknown latency lists the known ones."""
    with pytest.raises(UsageError, match="latency 'LOW' is not one of native, low, zero"):
        NvdecOptions(latency="LOW")  # type: ignore[arg-type]


@given(width=st.integers(-9, 9000), height=st.integers(-9, 9000))
def test_the_largest_size_is_a_surfaces(width: int, height: int) -> None:
    """The sides of the largest size must be positive and even."""
    is_size = width > 0 and height > 0 and not (width % 2 or height % 2)
    try:
        assert NvdecOptions(largest=(width, height)).largest == (width, height)
    except UsageError:
        assert not is_size
    else:
        assert is_size

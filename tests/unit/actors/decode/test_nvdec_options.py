"""What a decoder session may be asked for, and that docs/nvidia/pynvvideocodec.md lists it."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.decode.nvdec_options import PLAIN, NvdecOptions
from codecfleet.actors.nvidia.nvdec.session import decoder_arguments
from codecfleet.errors import UsageError

PACKAGE = SimpleNamespace(DisplayDecodeLatencyType=SimpleNamespace(NATIVE="native", LOW="low", ZERO="zero"))
PACKAGE_NAMES = {
    *("gpuid", "codec", "cudacontext", "cudastream", "usedevicememory", "enableasyncallocations", "maxwidth"),
    *("maxheight", "outputColorType", "enableSEIMessage", "bWaitForSessionWarmUp", "latency", "enableDecodeStats"),
    *("Decode", "GetNumDecodedFrame", "GetFrame", "GetLockedFrame", "UnlockFrame", "GetPixelFormat", "GetWidth"),
    *("GetHeight", "GetFrameSize", "GetSessionInitTime", "SetSessionCount", "setDecoderSessionID", "SyncOnCUStream"),
    *("getDecoderSessionOverHead", "setReconfigParams", "SetSeekPTS", "WaitOnCUStream", "GetPtrToPlane", "framesize"),
    *("getPTS", "timestamp", "format", "shape", "stride", "dtype", "cuda", "from_dlpack", "__dlpack_device__"),
    *("decoder_stream_event", "getSEIMessage", "ParseDecodeStats", "getRawDecodeStats", "decode_stats_ptr"),
    *("decode_stats_size", "nvcv_image", "nv12_to_rgb", "CreateDecoder", "GetDecoderCaps", "PacketData"),
    *("CreateDemuxer", "SimpleDecoder", "ThreadedDecoder", "Transcoder"),
}
"""The package's decoding side, as 2.2.4 has it: parameters of ``CreateDecoder``, and methods."""


def test_nothing_is_asked_for_by_itself() -> None:
    """Plain options leave the package to what it does by itself."""
    assert NvdecOptions() == PLAIN
    assert decoder_arguments(PLAIN, PACKAGE) == {}
    assert not PLAIN.has_notes


def test_every_option_reaches_the_package() -> None:
    """Each becomes arguments of ``CreateDecoder``."""
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
    """Sides are positive and even, or it is refused."""
    is_size = width > 0 and height > 0 and not (width % 2 or height % 2)
    try:
        assert NvdecOptions(largest=(width, height)).largest == (width, height)
    except UsageError:
        assert not is_size
    else:
        assert is_size


@pytest.mark.parametrize("name", sorted(PACKAGE_NAMES))
def test_the_page_has_every_name_of_the_package(name: str) -> None:
    """Each parameter and method of the package's decoding side has a row in docs/nvidia/pynvvideocodec.md."""
    page = (Path(__file__).resolve().parents[4] / "docs" / "nvidia" / "pynvvideocodec.md").read_text(encoding="utf-8")
    items = " ".join(line.split("|")[2] for line in page.splitlines() if line.startswith("| "))
    assert re.search(rf"\b{name}\b", items)

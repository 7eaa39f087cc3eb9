"""What a decoder session may be asked for, and that docs/nvdec.md lists it."""

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
GUIDE = {"gpuid", "codec", "cudacontext", "cudastream", "usedevicememory", "enableasyncallocations"}
"""What section 2.2 of the PyNvVideoCodec programming guide gives ``CreateDecoder``."""
NEWER = {
    *("maxwidth", "maxheight", "outputColorType", "enableSEIMessage", "bWaitForSessionWarmUp", "latency"),
    "enableDecodeStats",
}
"""What version 2.2.4 added."""
METHODS = {
    "PyNvDecoder": {
        *("Decode", "GetNumDecodedFrame", "GetFrame", "GetLockedFrame", "UnlockFrame", "GetPixelFormat", "GetWidth"),
        *("GetHeight", "GetFrameSize", "GetSessionInitTime", "SetSessionCount", "setDecoderSessionID"),
        *("getDecoderSessionOverHead", "setReconfigParams", "SetSeekPTS", "WaitOnCUStream", "SyncOnCUStream"),
    },
    "DecodedFrame": {
        *("GetPtrToPlane", "framesize", "getPTS", "timestamp", "format", "shape", "strides", "dtype", "cuda"),
        *("__dlpack__", "__dlpack_device__", "decoder_stream_event", "getSEIMessage", "ParseDecodeStats"),
        *("getRawDecodeStats", "decode_stats_ptr", "decode_stats_size", "nvcv_image", "nv12_to_rgb"),
    },
    "PyNvVideoCodec": {
        *("CreateDecoder", "GetDecoderCaps", "PacketData", "CreateDemuxer", "SimpleDecoder", "ThreadedDecoder"),
        "Transcoder",
    },
}
"""The package's decoding side, as 2.2.4 has it."""


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


@pytest.fixture(scope="module")
def page() -> str:
    """The page's text."""
    return (Path(__file__).resolve().parents[4] / "docs" / "nvdec.md").read_text(encoding="utf-8")


def named(page: str, head: str) -> dict[str, list[str]]:
    """Return the other cells by the names in the first, of the table whose head begins so."""
    rows = page.split(f"\n| {head} |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    found: dict[str, list[str]] = {}
    for row in rows:
        first, *rest = [cell.strip() for cell in row.strip().strip("|").split("|")]
        found |= dict.fromkeys(re.findall(r"`([^`]+)`", first), rest)
    return found


def test_the_page_has_every_parameter(page: str) -> None:
    """Each parameter of CreateDecoder, the guide's and the newer ones, is given by an option or said not to be."""
    shown = named(page, "parameter of `CreateDecoder`")
    assert set(shown) == GUIDE | NEWER
    asked = {name for name, cells in shown.items() if not cells[0].startswith("not built")}
    every = NvdecOptions(latency="low", largest=(2, 2), sei_messages=True, statistics=True)
    assert asked == set(decoder_arguments(every, PACKAGE)) | {
        "codec",
        "cudacontext",
        "cudastream",
        "gpuid",
        "usedevicememory",
    }


@pytest.mark.parametrize("owner", METHODS)
def test_the_page_has_every_method(page: str, owner: str) -> None:
    """Whatever the package offers, the page says what is ours for it."""
    shown = named(page, f"`{owner}`'s" if owner != "PyNvVideoCodec" else "`PyNvVideoCodec`'s")
    assert set(shown) == METHODS[owner]
    assert all(cells[0] for cells in shown.values())

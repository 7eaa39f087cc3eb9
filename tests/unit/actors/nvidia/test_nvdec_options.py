"""What a decoder session may be asked for: read from strings, refused by name, and listed in docs/nvdec.md."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.nvidia.nvdec_options import OPTIONS, PLAIN, REFUSED, Latency, NvdecOptions, nvdec_options
from codecfleet.errors import Unsupported

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
    assert nvdec_options({}) == PLAIN == NvdecOptions()
    assert PLAIN.arguments(PACKAGE) == {}
    assert not PLAIN.has_notes


def test_every_option_reaches_the_package() -> None:
    """Each name becomes the argument of that name."""
    given_ = {
        "latency": "low",
        "maxwidth": "1920",
        "maxheight": "1088",
        "enableSEIMessage": "1",
        "enableDecodeStats": "1",
    }
    assert set(given_) == set(OPTIONS)
    options = nvdec_options(given_)
    assert options == NvdecOptions(latency=Latency.LOW, largest=(1920, 1088), sei_messages=True, statistics=True)
    assert options.arguments(PACKAGE) == {
        "latency": "low",
        "maxwidth": 1920,
        "maxheight": 1088,
        "enableSEIMessage": True,
        "enableDecodeStats": True,
    }
    assert nvdec_options(dict.fromkeys(("enableSEIMessage", "enableDecodeStats"), "0")) == PLAIN


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_never_given_is_refused_by_name(name: str) -> None:
    """The message has the name and the reason."""
    with pytest.raises(Unsupported, match=f"^NVDEC option {name}: "):
        nvdec_options({name: "1"})


@pytest.mark.parametrize(
    ("name", "text", "step"),
    [
        ("latencyy", "low", "Write latency."),
        ("zzz", "1", "It has latency,"),
        ("latency", "LOW", "docs/nvdec.md"),
        ("maxwidth", "-2", "docs/nvdec.md"),
        ("enableSEIMessage", "true", "docs/nvdec.md"),
        ("maxwidth", "1920", "both or neither"),
        ("maxheight", "1080", "both or neither"),
    ],
)
def test_what_is_wrong_is_told(name: str, text: str, step: str) -> None:
    """Unknown names and values that are none of the option's are refused, with what to write instead."""
    with pytest.raises(Unsupported) as caught:
        nvdec_options({name: text})
    assert step in str(caught.value)


@given(width=st.integers(-9, 9000), height=st.integers(-9, 9000))
def test_the_largest_size_is_a_surfaces(width: int, height: int) -> None:
    """Sides are positive and even, or it is refused."""
    is_size = width > 0 and height > 0 and not (width % 2 or height % 2)
    try:
        assert NvdecOptions(largest=(width, height)).largest == (width, height)
    except Unsupported:
        assert not is_size
    else:
        assert is_size


def test_every_parameter_is_settled() -> None:
    """Each parameter of CreateDecoder, the guide's and the newer ones, is given or refused."""
    assert set(OPTIONS).isdisjoint(REFUSED)
    assert set(OPTIONS) | set(REFUSED) == GUIDE | NEWER


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
    """The table of CreateDecoder's parameters says which are given, and which are refused."""
    shown = named(page, "parameter of `CreateDecoder`")
    assert set(shown) == GUIDE | NEWER
    assert {name for name, cells in shown.items() if cells[0].startswith("refused")} == set(REFUSED)


@pytest.mark.parametrize("owner", METHODS)
def test_the_page_has_every_method(page: str, owner: str) -> None:
    """Whatever the package offers, the page says what is ours for it."""
    shown = named(page, f"`{owner}`'s" if owner != "PyNvVideoCodec" else "`PyNvVideoCodec`'s")
    assert set(shown) == METHODS[owner]
    assert all(cells[0] for cells in shown.values())

"""Parameter sets that are read, compared with FFmpeg's own filters on the same streams."""

import re
from collections.abc import Iterator
from pathlib import Path

import av
import pytest
from av.bitstream import BitStreamFilterContext
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.bitstream.access_points import annex_b, annex_b_units
from codecfleet.actors.bitstream.parameter_sets import (
    annex_b_headers,
    crops_left_or_top,
    has_whole_frames_only,
    hevc_layer,
    is_sequence_set,
    max_reorder_frames,
    packet_sequence_sets,
    sequence_sets,
)
from codecfleet.actors.media.av_stream import extradata
from codecfleet.testing.clips import Clip, constant_times, make_clip

HEVC_OPTIONS = "keyint=8:min-keyint=8:scenecut=0:log-level=none:pools=1:frame-threads=1"
START_CODE = re.compile(rb"\x00*\x00\x00\x01")


def _units(annex_b: bytes) -> list[bytes]:
    return [unit for unit in START_CODE.split(annex_b) if unit]


def _clip(folder: Path, encoder: str, suffix: str, params: str = "") -> Path:
    key = f"{encoder.removeprefix('lib')}-params"
    clip = Clip(times=constant_times(6), encoder=encoder, options=((key, params),), width=64, height=64)
    return make_clip(folder / f"{encoder}{suffix}", clip)


def _filtered(path: Path, name: str) -> Iterator[bytes]:
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        filter_ = BitStreamFilterContext(name, in_stream=stream)
        for packet in container.demux(stream):
            yield from (bytes(each) for each in filter_.filter(packet if packet.size else None))


def _extradata(path: Path) -> bytes:
    with av.open(str(path)) as container:
        return extradata(container.streams.video[0])


@pytest.mark.parametrize(
    ("params", "expected"),
    [("", True), ("interlaced=1", False), ("tff=1", False), ("fake-interlaced=1", False), ("bluray-compat=1", True)],
)
@pytest.mark.parametrize("suffix", [".mp4", ".ts"])
def test_whole_frames_are_told_from_fields(tmp_path: Path, params: str, suffix: str, *, expected: bool) -> None:
    """Whether a sequence has whole frames is read correctly, from either form of extradata."""
    assert has_whole_frames_only(_extradata(_clip(tmp_path, "libx264", suffix, params))) is expected


def test_nothing_is_known_without_a_parameter_set() -> None:
    """Without a complete sequence parameter set, the result is unknown."""
    assert has_whole_frames_only(b"") is None
    assert has_whole_frames_only(b"\x00\x00\x00\x01\x67\x64") is None


@pytest.mark.parametrize(("offsets", "expected"), [(255, True), (40_000, None)])
def test_a_set_that_is_longer_than_any_is_damaged(offsets: int, *, expected: bool | None) -> None:
    """A damaged set may state that any number of fields follows; only as much as a valid set can have is read."""
    count = format(offsets + 1, "b")
    head = "11" + "010" + "111" + "0" * (len(count) - 1) + count  # the set's id, frame numbers, picture order of kind 1
    rest = "1" + "0" + "11" + "1" + "000" + "1"  # references, size, whole frames, nothing else
    text = head + "1" * offsets + rest
    text += "0" * (-len(text) % 8)
    unit = bytes([0x67, 66, 0, 30]) + int(text, 2).to_bytes(len(text) // 8, "big")
    assert has_whole_frames_only(annex_b([unit])) is expected


def test_one_set_with_fields_is_enough(tmp_path: Path) -> None:
    """A stream with several sequence parameter sets has whole frames only if each set says so."""
    whole, fields = (_extradata(_clip(tmp_path / name, "libx264", ".ts", name)) for name in _made(tmp_path))
    assert has_whole_frames_only(whole + whole) is True
    assert has_whole_frames_only(whole + fields) is False


@pytest.mark.parametrize(("params", "expected"), [("", True), (":interlace=tff", False)])
@pytest.mark.parametrize("suffix", [".mp4", ".ts"])
def test_whole_frames_of_hevc_are_a_promise(tmp_path: Path, params: str, suffix: str, *, expected: bool) -> None:
    """HEVC's profile flags state whether a picture can be a field."""
    extra = _extradata(_clip(tmp_path, "libx265", suffix, HEVC_OPTIONS + params))
    assert has_whole_frames_only(extra, hevc=True) is expected


def test_sets_of_other_layers_count_for_nothing(tmp_path: Path) -> None:
    """A second view's parameter set has another syntax, and is ignored because the view is not decoded."""
    whole, fields = (
        next(sequence_sets(_extradata(_clip(tmp_path, "libx265", ".ts", HEVC_OPTIONS + params)), hevc=True))
        for params in ("", ":interlace=tff")
    )
    other_view = bytes([fields[0], fields[1] | 1 << 3]) + fields[2:]
    assert [hevc_layer(unit) for unit in (whole, fields, other_view)] == [0, 0, 1]
    assert has_whole_frames_only(annex_b([whole, fields]), hevc=True) is False
    assert has_whole_frames_only(annex_b([whole, other_view]), hevc=True) is True


@pytest.mark.parametrize(("encoder", "params", "hevc"), [("libx264", "", False), ("libx265", HEVC_OPTIONS, True)])
def test_a_packet_gives_the_sets_ahead_of_its_picture(tmp_path: Path, encoder: str, params: str, *, hevc: bool) -> None:
    """Parameter sets in packets are found; packets have none if the container has the sets."""
    for suffix in (".ts", ".mp4"):
        path = _clip(tmp_path, encoder, suffix, params)
        with av.open(str(path)) as container:
            first, second, *_ = (bytes(packet) for packet in container.demux(video=0))
        extra = _extradata(path)
        expected = list(sequence_sets(extra, hevc=hevc)) if suffix == ".ts" else []
        assert list(annex_b_units(packet_sequence_sets(first, extra, hevc=hevc))) == expected
        assert packet_sequence_sets(second, extra, hevc=hevc) == b""
        assert packet_sequence_sets(second + first, extra, hevc=hevc) == b""


def _made(folder: Path) -> tuple[str, str]:
    names = ("bframes=0", "interlaced=1")
    for name in names:
        (folder / name).mkdir()
    return names


@given(data=st.binary(max_size=200), head=st.sampled_from([b"\x01", b"\0\0\0\1\x67", b"\0\0\0\1\x42\1"]))
def test_damage_is_never_an_exception(data: bytes, head: bytes) -> None:
    """Reading any extradata ends without an error; the result begins with a start code or is empty."""
    extra = head + data
    for hevc in (False, True):
        assert has_whole_frames_only(extra, hevc=hevc) in (True, False, None)
        assert packet_sequence_sets(data, extra, hevc=hevc)[:4] in (b"", b"\x00\x00\x00\x01")
        assert annex_b_headers(extra, hevc=hevc)[:4] in (b"", b"\x00\x00\x00\x01")
        reorder = max_reorder_frames("hevc" if hevc else "h264", extra)
        assert reorder is None or reorder >= 0


@given(
    units=st.lists(
        st.binary(min_size=1, max_size=40).filter(lambda unit: b"\x00\x00" not in unit and unit[-1]), max_size=6
    )
)
def test_avcc_gives_back_its_units(units: list[bytes]) -> None:
    """Every unit of an avcC box is returned, sequence parameter sets before picture parameter sets."""
    first, rest = units[:2], units[2:]
    box = b"\x01\x64\x00\x1f\xff" + bytes([0xE0 | len(first)])
    box += b"".join(len(unit).to_bytes(2, "big") + unit for unit in first) + bytes([len(rest)])
    box += b"".join(len(unit).to_bytes(2, "big") + unit for unit in rest)
    assert _units(annex_b_headers(box, hevc=False)) == [unit for unit in units if unit.strip(b"\x00")]


@pytest.mark.parametrize(("side", "expected"), [("left", True), ("top", True), ("right", False), ("bottom", False)])
@pytest.mark.parametrize(
    ("encoder", "params", "codec"), [("libx264", "", "h264"), ("libx265", f"{HEVC_OPTIONS}:repeat-headers=1", "hevc")]
)
def test_cropping_is_told_where_it_moves_pictures(
    tmp_path: Path, encoder: str, params: str, codec: str, side: str, *, expected: bool
) -> None:
    """Only cropping at the left or the top moves pictures; the streams were cropped by FFmpeg's own filter."""
    path = _clip(tmp_path, encoder, ".ts", params)
    first = next(_filtered(path, f"{codec}_metadata=crop_{side}=4"))
    sets = b"".join(b"\0\0\0\1" + unit for unit in _units(first) if is_sequence_set(unit, hevc=codec == "hevc"))
    assert list(sequence_sets(sets, hevc=codec == "hevc"))
    assert crops_left_or_top(codec, sets) is expected
    assert not crops_left_or_top(codec, _extradata(path))
    assert not crops_left_or_top("vp9", sets)

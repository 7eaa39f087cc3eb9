"""Packets for NVDEC's parser, compared with FFmpeg's own filters and with the rules of H.265."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import av
import pytest
from av.bitstream import BitStreamFilterContext
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.bitstream.access_points import annex_b
from codecfleet.actors.bitstream.packet_headers import CodedSequence, av1_headers, vp8_headers, vp9_headers
from codecfleet.actors.media.av_stream import extradata
from codecfleet.actors.nvidia.nvdec.packet_prep import Feeder
from codecfleet.testing.clips import Clip, constant_times, make_clip

START_CODE = re.compile(rb"\x00*\x00\x00\x01")
GOP = "keyint=8:min-keyint=8:scenecut=0:bframes=3:b-adapt=0"
QUIET = "log-level=none:pools=1:frame-threads=1"
RADL_N, RASL_N, RASL_R, BLA_W_LP, IDR_W_RADL, CRA, TRAIL_R = 6, 8, 9, 16, 19, 21, 1
END_OF_SEQUENCE = 36
EXTRADATA = {"h264": b"\x01\x64\x00\x1f\xff\xe0\x00", "hevc": b"\x01" + bytes(20) + b"\x03\x00"}


def _units(annex_b: bytes) -> list[bytes]:
    return [unit for unit in START_CODE.split(annex_b) if unit]


class _Track:
    """A clip's packets, their presentation times, and the result of FFmpeg's filter."""

    def __init__(self, path: Path, filter_name: str = "") -> None:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            self.codec = stream.codec_context.codec.canonical_name
            self.extradata = extradata(stream)
            packets = [packet for packet in container.demux(stream) if packet.size]
            self.pts = [packet.pts or 0 for packet in packets]
            self.keys = [number for number, packet in enumerate(packets) if packet.is_keyframe]
            self.packets = [bytes(packet) for packet in packets]
            self.filtered: list[bytes] = []
            if filter_name:
                filter_ = BitStreamFilterContext(filter_name, in_stream=stream)
                self.filtered = [b"".join(bytes(each) for each in filter_.filter(packet)) for packet in packets]

    def fed(self, first: int = 0) -> dict[int, bytes]:
        """Return the feeder's chunks for the packets from ``first`` on, by packet number."""
        feeder = Feeder(self.codec, self.extradata)
        chunks = (feeder.chunk(number, self.packets[number]) for number in range(first, len(self.packets)))
        return {chunk.number: chunk.payload for chunk in chunks if chunk is not None}


def _track(folder: Path, encoder: str, params: str, suffix: str = ".mp4", *, filtered: bool = False) -> _Track:
    key = f"{encoder.removeprefix('lib')}-params"
    clip = Clip(times=constant_times(26), encoder=encoder, options=((key, params),), width=64, height=64)
    names = {"libx264": "h264_mp4toannexb", "libx265": "hevc_mp4toannexb"}
    return _Track(make_clip(folder / f"clip{suffix}", clip), names[encoder] if filtered else "")


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
@pytest.mark.parametrize("gop", ["open-gop=1", "open-gop=0"])
@pytest.mark.parametrize(("encoder", "quiet"), [("libx264", ""), ("libx265", QUIET)])
def test_units_are_those_of_ffmpegs_filter(tmp_path: Path, encoder: str, quiet: str, gop: str, suffix: str) -> None:
    """Units equal those of FFmpeg's Annex B filter, except that parameter sets come only once, at the beginning."""
    track = _track(tmp_path, encoder, f"{GOP}:{gop}:{quiet}", suffix, filtered=True)
    fed = track.fed()
    assert list(fed) == list(range(len(track.packets)))
    first = _units(fed[0])
    assert sorted(first) == sorted(_units(track.filtered[0]))
    headers = [unit for unit in first if unit not in _units(_without_headers(track))]
    assert headers
    assert first[: len(headers)] == headers
    for number in range(1, len(track.packets)):
        assert _units(fed[number]) == [unit for unit in _units(track.filtered[number]) if unit not in headers], number


def _without_headers(track: _Track) -> bytes:
    """Return the first packet's chunk from a feeder that has already begun."""
    feeder = Feeder(track.codec, track.extradata)
    feeder.chunk(0, track.packets[0])
    again = feeder.chunk(1, track.packets[0])
    assert again is not None
    return again.payload


def test_annex_b_stays_as_it_is(tmp_path: Path) -> None:
    """Packets of a transport stream are already Annex B: only the parameter sets are added."""
    track = _track(tmp_path, "libx264", GOP, ".ts")
    fed = track.fed()
    assert fed[0].endswith(track.packets[0])
    assert [fed[number] for number in range(1, len(track.packets))] == track.packets[1:]


def _prefixed(units: Sequence[bytes]) -> bytes:
    return b"".join(len(unit).to_bytes(4, "big") + unit for unit in units)


def _packet(*kinds: int) -> bytes:
    return _prefixed([bytes([kind << 1, 1, 0x80]) for kind in kinds])


def _kept(packets: Sequence[Sequence[int]]) -> list[int]:
    feeder = Feeder("hevc", EXTRADATA["hevc"])
    chunks = [feeder.chunk(number, _packet(*kinds)) for number, kinds in enumerate(packets)]
    return [chunk.number for chunk in chunks if chunk is not None]


@given(
    kinds=st.lists(
        st.sampled_from([RADL_N, RASL_N, RASL_R, BLA_W_LP, IDR_W_RADL, CRA, TRAIL_R, END_OF_SEQUENCE]), max_size=30
    )
)
def test_leading_pictures_go_with_the_point_they_belong_to(kinds: list[int]) -> None:
    """Only RASL pictures are dropped, if their IRAP is a broken link or a CRA that starts a sequence."""
    packets = [[CRA]] + [[kind, kind] for kind in kinds]
    anchors = [0]
    for number, (kind, *_) in enumerate(packets[1:], start=1):
        anchors.append(number if kind in (BLA_W_LP, IDR_W_RADL, CRA) else anchors[-1])

    def starts(number: int) -> bool:
        before = [kind for kind, *_ in packets[:number]]
        return not before or before[-1] == END_OF_SEQUENCE

    dropped = {
        number
        for number, (kind, *_) in enumerate(packets)
        if kind in (RASL_N, RASL_R)
        and (
            packets[anchors[number]][0] == BLA_W_LP or (packets[anchors[number]][0] == CRA and starts(anchors[number]))
        )
    }
    assert _kept(packets) == [number for number in range(len(packets)) if number not in dropped]


def test_an_end_of_sequence_counts_wherever_it_lies() -> None:
    """An end of sequence may end one picture's packet or begin the next."""
    assert _kept([[IDR_W_RADL, END_OF_SEQUENCE], [CRA, CRA], [RASL_N], [TRAIL_R]]) == [0, 1, 3]
    assert _kept([[IDR_W_RADL], [END_OF_SEQUENCE, CRA, CRA], [RASL_N], [TRAIL_R]]) == [0, 1, 3]
    assert _kept([[IDR_W_RADL], [CRA, CRA], [RASL_N], [TRAIL_R]]) == [0, 1, 2, 3]


@pytest.mark.parametrize("codec", ["vp8", "vp9", "av1", "mpeg2video"])
def test_other_codecs_are_fed_as_they_are(codec: str) -> None:
    """Nothing is added to packets of codecs without separate parameter sets."""
    feeder = Feeder(codec, b"\x01\x02\x03\x04")
    chunks = [feeder.chunk(number, b"\x10\x20\x30") for number in range(2)]
    assert [chunk.payload for chunk in chunks if chunk is not None] == [b"\x10\x20\x30"] * 2
    assert feeder.counts_pictures is (codec != "mpeg2video")


def test_a_hidden_picture_of_vp8_is_not_shown(tmp_path: Path) -> None:
    """The packets of VP8 show as many pictures as a software decoder, with alternate references."""
    options = (("auto-alt-ref", "1"), ("lag-in-frames", "16"), ("deadline", "good"), ("cpu-used", "5"))
    path = make_clip(tmp_path / "clip.webm", Clip(times=constant_times(40), encoder="libvpx", options=options))
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        for packet in container.demux(stream):
            if packet.size:
                assert vp8_headers(bytes(packet)).shown == len(stream.codec_context.decode(packet))
    assert vp8_headers(b"").shown == 0
    assert vp8_headers(b"\x10").shown == 1
    assert vp8_headers(b"\x00").shown == 0


@given(
    codec=st.sampled_from(["h264", "hevc", "vp8", "vp9", "av1", "mpeg2video"]),
    is_prefixed=st.booleans(),
    packets=st.lists(st.lists(st.binary(max_size=12), max_size=4).map(_prefixed) | st.binary(max_size=40), max_size=5),
)
def test_a_view_of_a_packet_is_fed_like_its_bytes(codec: str, packets: list[bytes], *, is_prefixed: bool) -> None:
    """A view of a packet gives the same chunks as bytes, and the chunks do not refer to the packet."""
    extradata_ = EXTRADATA.get(codec, b"") if is_prefixed else b""
    one, other = Feeder(codec, extradata_), Feeder(codec, extradata_)
    for number, data in enumerate(packets):
        packet = bytearray(data)
        chunk = other.chunk(number, memoryview(packet))
        packet[:] = bytes(len(packet))
        assert chunk == one.chunk(number, data)


SEQUENCES = {
    "h264.ts": ("libx264", (("x264-params", f"{GOP}:open-gop=0"),)),
    "h264.mp4": ("libx264", (("x264-params", f"{GOP}:open-gop=0"),)),
    "hevc.mkv": ("libx265", (("x265-params", f"{GOP}:open-gop=0:repeat-headers=1:{QUIET}"),)),
    "vp8.webm": ("libvpx", (("deadline", "realtime"),)),
    "vp9.webm": ("libvpx-vp9", (("deadline", "realtime"),)),
    "av1.mkv": ("libsvtav1", (("preset", "12"), ("svtav1-params", "lp=1"))),
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_new_is_what_was_not_stated_before(tmp_path: Path, name: str) -> None:
    """Only the first packet of a stream of another size states new parameters; later packets state nothing new."""
    encoder, options = SEQUENCES[name]
    plain = Clip(times=constant_times(18), encoder=encoder, options=options, width=64, height=64)
    track, other = (
        _Track(make_clip(tmp_path / f"{clip.width}-{name}", clip)) for clip in (plain, replace(plain, width=96))
    )
    feeder = Feeder(track.codec, track.extradata, (64, 64), _stated(track))
    again = feeder.chunk(0, track.packets[0])
    assert again is not None
    # VP8 has no configuration, and SVT-AV1 writes its configuration before all values are settled.
    assert again.is_new is (track.codec in ("vp8", "av1"))
    for number, data in enumerate([*track.packets[1:], *track.packets]):
        chunk = feeder.chunk(number, data)
        assert chunk is not None
        assert not chunk.is_new, number
    if name == "h264.mp4":
        return  # the parameter sets are outside the packets
    for each, packets in ((other, other.packets), (track, track.packets)):
        news = [chunk for chunk in map(feeder.chunk, range(len(packets)), packets) if chunk and chunk.is_new]
        assert [(chunk.number, chunk.headers.begins) for chunk in news] == [(0, True)], each.codec
        feeder.size = (96, 64) if each is other else (64, 64)


def _stated(track: _Track) -> CodedSequence | None:
    """Return the parameters of VP9 that are known from outside the packets."""
    return vp9_headers(track.packets[0], (64, 64)).sequence if track.codec == "vp9" else None


def test_a_size_within_a_sequence_is_told(tmp_path: Path) -> None:
    """A VP9 frame of another size that is not a key frame scales its references, and begins no sequence."""
    clip = Clip(times=constant_times(3), encoder="libvpx-vp9", options=(("deadline", "realtime"),))
    key, *others = _Track(make_clip(tmp_path / "clip.webm", clip)).packets
    assert not any(vp9_headers(data, (64, 48)).resizes for data in (key, *others))
    assert vp9_headers(key, (32, 32)).sequence == vp9_headers(key, (64, 48)).sequence
    intra_only = _intra_only(125, 125)
    assert not vp9_headers(intra_only, (125, 125)).resizes
    told = vp9_headers(intra_only, (64, 48))
    assert told.resizes
    assert not told.begins


def _intra_only(width: int, height: int) -> bytes:
    """Return the beginning of a hidden VP9 frame (profile 0) that refers to no other frame."""
    bits = f"10{0:02b}0100{1:01b}00{0x498342:024b}{5:08b}{width - 1:016b}{height - 1:016b}" + "0" * 5
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


def test_several_parameter_sets_leave_it_open() -> None:
    """With two sets for the decoded layer, the pictures choose between them; a set for another layer does not count."""
    first, second, layered = b"\x42\x01\xaa", b"\x42\x01\xbb", b"\x42\x09\xcc"
    assert len(Feeder("hevc", annex_b([first, second])).sequence) == 2
    assert len(Feeder("hevc", annex_b([first, layered, first])).sequence) == 1
    assert len(Feeder("h264", annex_b([b"\x67\x01", b"\x67\x02"])).sequence) == 2


@given(data=st.binary(max_size=60))
def test_noise_states_nothing_that_raises(data: bytes) -> None:
    """The headers of any bytes are read without an error."""
    for headers in (vp8_headers(data), vp9_headers(data, (64, 48)), av1_headers(data)):
        assert headers.shown >= 0


@pytest.mark.parametrize(
    ("codec", "data", "expected"),
    [
        ("h264", b"\x06\x04\x0e\xb5\x00\x31GA94\x03\x41", True),
        ("hevc", b"\x4e\x01\x04\x0e\xb5\x00\x31GA94\x03\x41", True),
        ("h264", b"\x06\x04\x0e\xb5\x00\x31GA94\x06\x41", False),
        ("h264", b"\x06\x04\x0e\xb5\x00\x31DTG1\x41", False),
    ],
)
def test_captions_are_known_by_how_they_begin(codec: str, data: bytes, *, expected: bool) -> None:
    """Captions of ATSC, DVDs and SCTE 20 are distinguished from other user data, in each codec that has them."""
    units = [data, b"\x26\x01\xaf"]
    for extradata_, packet in ((b"", annex_b(units)), (EXTRADATA[codec], _prefixed(units))):
        chunk = Feeder(codec, extradata_).chunk(0, memoryview(packet))
        assert chunk is not None
        assert chunk.headers.has_captions is expected


@pytest.mark.parametrize(("codec", "unit"), [("h264", b"\x67\x01GA94"), ("hevc", b"\x42\x01GA94")])
def test_only_messages_carry_captions(codec: str, unit: bytes) -> None:
    """A parameter set with the bytes of a caption has no captions."""
    data = unit + b"\xb5\x00\x31GA94\x03"
    chunk = Feeder(codec, EXTRADATA[codec]).chunk(0, _prefixed([data]))
    assert chunk is not None
    assert not chunk.headers.has_captions
    assert chunk.headers.sequence == {data}

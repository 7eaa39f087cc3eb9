"""The bitstream reader: numbers, unit delimiters, access points and reorder limits."""

from fractions import Fraction

import av
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.bitstream.access_points import (
    BitReader,
    RandomAccess,
    annex_b,
    nal_units,
    prefixed_units,
    random_access_kind,
)
from codecfleet.actors.bitstream.parameter_sets import max_reorder_frames

IDR, NON_IDR_I, NON_IDR_P = b"\x65\x88\x80", b"\x41\x88\x80", b"\x41\x9a\x80"
RECOVERY_SEI = b"\x06\x06\x01\xc4\x80"
AVCC_4 = b"\x01\x64\x00\x1e\xff"
HVCC_4 = b"\x01" + bytes(20) + b"\x03"


class BitWriter:
    """Writes what ``BitReader`` reads."""

    def __init__(self) -> None:
        self.text = ""

    def bits(self, value: int, count: int) -> None:
        """Write ``value`` in ``count`` bits."""
        self.text += format(value, f"0{count}b") if count else ""

    def ue(self, value: int) -> None:
        """Write an unsigned Exp-Golomb number."""
        digits = format(value + 1, "b")
        self.text += "0" * (len(digits) - 1) + digits

    def se(self, value: int) -> None:
        """Write a signed Exp-Golomb number."""
        self.ue(2 * value - 1 if value > 0 else -2 * value)

    def payload(self) -> bytes:
        """Return the bytes that were written, with a stop bit and emulation prevention."""
        text = self.text + "1"
        text += "0" * (-len(text) % 8)
        escaped = bytearray()
        for byte in int(text, 2).to_bytes(len(text) // 8, "big"):
            if byte <= 3 and escaped[-2:] == b"\x00\x00":
                escaped.append(3)
            escaped.append(byte)
        return bytes(escaped)


numbers = st.one_of(
    st.tuples(st.just("ue"), st.integers(0, 2**32 - 2)),
    st.tuples(st.just("se"), st.integers(-(2**31) + 1, 2**31 - 1)),
    st.tuples(st.just("bits"), st.integers(0, 255)),
)


@given(st.lists(numbers, max_size=30))
def test_numbers_read_back_as_written(values: list[tuple[str, int]]) -> None:
    """Any sequence of fixed and Exp-Golomb numbers survives writing, emulation prevention and reading."""
    writer = BitWriter()
    for kind, value in values:
        writer.bits(value, 8) if kind == "bits" else getattr(writer, kind)(value)
    reader = BitReader(writer.payload())
    for kind, value in values:
        assert (reader.bits(8) if kind == "bits" else getattr(reader, kind)()) == value
    assert reader.flag()  # the stop bit


def test_a_number_that_goes_on_for_ever_is_none() -> None:
    """No number begins with more than 32 zeros: a damaged number with more zeros is an error at once."""
    longest, longer = ("0" * zeros + "1" * 40 for zeros in (32, 33))
    assert BitReader(_bits(longest)).ue() == 2**33 - 2
    with pytest.raises(EOFError):
        BitReader(_bits(longer)).ue()


def _bits(text: str) -> bytes:
    text += "0" * (-len(text) % 8)
    return int(text, 2).to_bytes(len(text) // 8, "big").replace(b"\x00\x00", b"\x00\x00\x03")


@given(st.binary(max_size=40))
def test_reading_past_the_end_is_an_eof_error(data: bytes) -> None:
    """Reading past the end of any bytes raises EOFError."""
    with pytest.raises(EOFError):
        _read_on(BitReader(data))


def _read_on(reader: BitReader) -> None:
    while True:
        reader.ue()


units = st.lists(st.binary(min_size=1, max_size=20).map(lambda b: b.replace(b"\x00", b"\x07")), min_size=1, max_size=6)


@given(units)
def test_both_forms_hold_the_same_units(wanted: list[bytes]) -> None:
    """Annex B (with either start code) and length prefixes hold the same units."""
    for start in (b"\x00\x00\x01", b"\x00\x00\x00\x01"):
        assert list(nal_units(b"".join(start + unit for unit in wanted))) == wanted
    prefixed = b"".join(len(unit).to_bytes(4, "big") + unit for unit in wanted)
    assert list(nal_units(prefixed, AVCC_4)) == wanted
    assert list(nal_units(prefixed, HVCC_4, hevc=True)) == wanted


@given(data=st.binary(max_size=60), length_bytes=st.integers(1, 4))
def test_units_of_a_view_are_views(data: bytes, length_bytes: int) -> None:
    """The units of a packet are the same for bytes and for a view; the units of a view are views, without copies."""
    views = list(prefixed_units(memoryview(data), length_bytes))
    assert all(view.obj is data for view in views)
    wanted = list(prefixed_units(data, length_bytes))
    assert views == wanted
    assert annex_b(views) == annex_b(wanted) == b"".join(b"\x00\x00\x00\x01" + unit for unit in wanted)


@given(st.binary(max_size=60), st.sampled_from(["h264", "hevc"]), st.sampled_from([b"", AVCC_4, HVCC_4]))
def test_damaged_packets_are_judged_without_an_exception(data: bytes, codec: str, extradata: bytes) -> None:
    """Random bytes are classified without an exception."""
    assert isinstance(random_access_kind(codec, data, extradata), RandomAccess)


@pytest.mark.parametrize(
    ("units", "kind"),
    [
        ((IDR,), RandomAccess.IDR),
        ((RECOVERY_SEI, NON_IDR_I), RandomAccess.RECOVERY_POINT),
        ((RECOVERY_SEI, NON_IDR_P), RandomAccess.RECOVERY_POINT),
        ((NON_IDR_I, NON_IDR_I), RandomAccess.INTRA_ONLY),
        ((NON_IDR_I, NON_IDR_P), RandomAccess.NONE),
        ((NON_IDR_P,), RandomAccess.NONE),
        ((b"\x06\x05\x01\x00\x80", NON_IDR_P), RandomAccess.NONE),
        ((), RandomAccess.NONE),
    ],
)
def test_h264_access_points(units: tuple[bytes, ...], kind: RandomAccess) -> None:
    """The units of an H.264 packet decide its kind, not the container's flags."""
    assert random_access_kind("h264", b"".join(b"\x00\x00\x01" + unit for unit in units)) is kind


@pytest.mark.parametrize(
    ("unit_type", "kind"),
    [
        (1, RandomAccess.NONE),
        (9, RandomAccess.NONE),
        (16, RandomAccess.BLA),
        (18, RandomAccess.BLA),
        (19, RandomAccess.IDR),
        (20, RandomAccess.IDR),
        (21, RandomAccess.CRA),
    ],
)
def test_hevc_access_points(unit_type: int, kind: RandomAccess) -> None:
    """The kind of an HEVC packet is the type of its first slice, whatever precedes the slice."""
    data = b"\x00\x00\x01\x46\x01\x50" + b"\x00\x00\x01" + bytes([unit_type << 1, 1, 0x80])
    assert random_access_kind("hevc", data) is kind


def test_other_codecs_leave_it_to_the_container() -> None:
    """For any other codec the container's flag decides."""
    assert random_access_kind("vp9", b"\x82") is RandomAccess.FLAGGED


@pytest.mark.parametrize(
    ("encoder", "options", "depth"),
    [
        ("libx264", {"preset": "medium"}, 2),
        ("libx264", {"preset": "medium", "bf": "1"}, 1),
        ("libx264", {"preset": "medium", "bf": "0"}, 0),
        ("libx264", {"preset": "medium", "x264-params": "nal-hrd=vbr:vbv-maxrate=500:vbv-bufsize=500"}, 2),
        ("libx265", {"preset": "medium", "x265-params": "log-level=none:pools=none"}, 2),
        ("libx265", {"preset": "medium", "x265-params": "log-level=none:pools=none:bframes=0"}, 0),
        ("libx265", {"preset": "medium", "x265-params": "log-level=none:pools=none:b-pyramid=0"}, 1),
        ("libx265", {"preset": "medium", "x265-params": "log-level=none:pools=none:temporal-layers=3"}, 2),
    ],
)
@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv444p10le"])
def test_reorder_depth_is_what_the_encoder_was_told(
    encoder: str, options: dict[str, str], depth: int, pix_fmt: str
) -> None:
    """Real parameter sets, with and without HRD, cropping and colour, state the reorder depth that was requested."""
    context = av.CodecContext.create(encoder, "w")
    context.width, context.height, context.pix_fmt = 322, 182, pix_fmt
    context.time_base, context.framerate = Fraction(1, 30000), Fraction(30)
    context.sample_aspect_ratio = Fraction(64, 45)
    context.color_primaries = 9
    context.flags |= int(av.codec.context.Flags.global_header)
    context.options = options
    context.open()
    assert max_reorder_frames("h264" if encoder == "libx264" else "hevc", bytes(context.extradata)) == depth

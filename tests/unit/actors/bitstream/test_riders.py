"""Side data that is found in packets made for these tests."""

import pytest

from codecfleet.actors.bitstream.riders import ALPHA, RiderReader

CAPTIONS = b"\xb5\x00\x31GA94\x03\x42\xff\xfc\x80\x80\xff"
NO_CAPTIONS = b"\xb5\x00\x31GA94\x03\x40\xff\xff"
AFD = b"\xb5\x00\x31DTG1\x41\xf9"
HDR10_PLUS = b"\xb5\x00\x3c\x00\x01\x04\x01\x40"
VIVID = b"\x26\x00\x04\x00\x05\x01"
AVCC = bytes((1, 100, 0, 31, 0xFF, 0xE0, 0))
HVCC = bytes((1, *range(20), 0x03, 0))
SLICE = b"\x65" + bytes(range(200, 250))
HEVC_SLICE = b"\x26\x01" + bytes(range(200, 250))


def message(payload: bytes) -> bytes:
    """Return an SEI message of registered user data: kind 4, size, payload, stop bit."""
    return bytes((4, len(payload))) + payload + b"\x80"


def prefixed(*units: bytes) -> memoryview:
    """Return a packet of units, each after its length."""
    return memoryview(b"".join(len(unit).to_bytes(4) + unit for unit in units))


def annex_b(*units: bytes) -> memoryview:
    """Return a packet of units, each after a start code."""
    return memoryview(b"".join(b"\x00\x00\x00\x01" + unit for unit in units))


@pytest.mark.parametrize(
    ("payload", "kinds"),
    [
        (CAPTIONS, {"A53_CC"}),
        (NO_CAPTIONS, set()),
        (AFD, {"AFD"}),
        (HDR10_PLUS, {"DYNAMIC_HDR_PLUS"}),
        (VIVID, {"DYNAMIC_HDR_VIVID"}),
        (b"\xb5\x00\x99GA94\x03\x42", set()),
    ],
)
def test_messages_are_read_in_both_forms_of_h264_and_hevc(payload: bytes, kinds: set[str]) -> None:
    """A registered message is identified by its provider, in length-prefixed and in Annex B units."""
    h264, hevc = b"\x06" + message(payload), b"\x4e\x01" + message(payload)
    assert RiderReader("h264", AVCC).kinds(prefixed(h264, SLICE)) == kinds
    assert RiderReader("h264", b"").kinds(annex_b(b"\x09\xf0", h264, SLICE)) == kinds
    assert RiderReader("hevc", HVCC).kinds(prefixed(hevc, HEVC_SLICE)) == kinds
    assert RiderReader("hevc", b"").kinds(annex_b(hevc, HEVC_SLICE)) == kinds


def test_a_slice_that_looks_like_a_message_is_none() -> None:
    """Only messages are searched; a slice with the same bytes does not count."""
    assert RiderReader("h264", AVCC).kinds(prefixed(SLICE + message(CAPTIONS))) == set()
    assert RiderReader("h264", b"").kinds(annex_b(SLICE + message(CAPTIONS))) == set()


@pytest.mark.parametrize(
    "before", [b"\x01\x02\x10\x20", b"\xff\x01\x02\x10\x20", b"\x01\x00", b"\x05\xff\x00" + bytes(255)]
)
def test_captions_behind_another_message(before: bytes) -> None:
    """A message of another kind, short or long, does not hide the next message of its unit."""
    h264, hevc = b"\x06" + before + message(CAPTIONS), b"\x4e\x01" + before + message(CAPTIONS)
    assert RiderReader("h264", AVCC).kinds(prefixed(h264, SLICE)) == {"A53_CC"}
    assert RiderReader("hevc", HVCC).kinds(prefixed(hevc, HEVC_SLICE)) == {"A53_CC"}


def test_captions_behind_a_large_unit() -> None:
    """Everything before a packet's first slice is read, however much it is."""
    filler, captions = b"\x0c" + b"\xff" * 9000, b"\x06" + message(CAPTIONS)
    assert RiderReader("h264", b"").kinds(annex_b(filler, captions, SLICE)) == {"A53_CC"}
    mpeg2 = b"\x00\x00\x01\xb2" + b"\xff" * 9000 + b"\x00\x00\x01\xb2GA94\x03\x42" + b"\x00\x00\x01\x01"
    assert RiderReader("mpeg2video", b"").kinds(memoryview(mpeg2)) == {"A53_CC"}


@pytest.mark.parametrize("length_bytes", [1, 2, 3, 4])
def test_lengths_of_any_size(length_bytes: int) -> None:
    """The configuration states how many bytes a unit's length takes."""
    configuration = bytes((1, 100, 0, 31, 0xFC | length_bytes - 1, 0xE0, 0))
    units = (b"\x06" + message(CAPTIONS), SLICE)
    packet = b"".join(len(unit).to_bytes(length_bytes) + unit for unit in units)
    assert RiderReader("h264", configuration).kinds(memoryview(packet)) == {"A53_CC"}


@pytest.mark.parametrize(
    ("kind", "payload", "kinds"),
    [
        (45, b"\x81\x80\x00", {"STEREO3D"}),  # arrangement 0, not cancelled
        (45, b"\x4c\x00", {"STEREO3D"}),  # arrangement 1
        (45, b"\xc0", set()),  # arrangement 0, cancelled
        (47, b"\x08\x00\x10", {"DISPLAYMATRIX"}),  # a quarter turn
        (47, b"\x40\x00\x10", {"DISPLAYMATRIX"}),  # a mirror
        (47, b"\x00\x00\x10", set()),  # upright
        (47, b"\x80", set()),  # cancelled
    ],
)
def test_two_views_and_rotations_are_read_until_they_are_cancelled(kind: int, payload: bytes, kinds: set[str]) -> None:
    """Frame packing and display orientation are separate messages; either may cancel an earlier one of its kind."""
    unit = b"\x06" + bytes((kind, len(payload))) + payload + b"\x80"
    assert RiderReader("h264", AVCC).kinds(prefixed(unit, SLICE)) == kinds


def test_the_rpu_of_dolby_vision_is_the_last_unit() -> None:
    """Dolby Vision's metadata follows the slices, in both forms of HEVC."""
    rpu = b"\x7c\x01\x19\x08\x09"
    assert RiderReader("hevc", HVCC).kinds(prefixed(HEVC_SLICE, rpu)) == {"DOVI_RPU_BUFFER"}
    assert RiderReader("hevc", b"").kinds(annex_b(HEVC_SLICE, HEVC_SLICE, rpu)) == {"DOVI_RPU_BUFFER"}
    assert RiderReader("hevc", b"").kinds(annex_b(HEVC_SLICE, HEVC_SLICE)) == set()


def test_a_second_view_is_told_from_a_scalable_layer() -> None:
    """NAL unit 20 of H.264 holds another view, unless its first flag says that it refines the same view."""
    assert RiderReader("h264", AVCC).kinds(prefixed(SLICE, b"\x74\x40\x00\x07\x88")) == {"VIEW_ID"}
    assert RiderReader("h264", AVCC).kinds(prefixed(SLICE, b"\x74\xc0\x00\x07\x88")) == set()


def test_the_layer_above_hevc_s_base_is_alpha_or_a_second_view() -> None:
    """The layer is alpha if a message in the configuration or in a packet says so, and otherwise a view."""
    above = b"\x28\x09" + bytes(range(100, 120))
    alpha = b"\x4e\x01\xa5\x04\x00\x00\x7f\x90\x80"
    with_alpha = HVCC[:22] + b"\x01\x27\x00\x01" + len(alpha).to_bytes(2) + alpha
    assert RiderReader("hevc", with_alpha).kinds(prefixed(HEVC_SLICE, above)) == {"ALPHA"}
    assert RiderReader("hevc", HVCC).kinds(prefixed(alpha, HEVC_SLICE, above)) == {"ALPHA"}
    assert RiderReader("hevc", HVCC).kinds(prefixed(HEVC_SLICE, above)) == {"VIEW_ID"}
    assert RiderReader("hevc", with_alpha).kinds(prefixed(HEVC_SLICE)) == set()


@pytest.mark.parametrize(
    ("user_data", "kinds"),
    [
        (b"GA94\x03\x42\xff", {"A53_CC"}),
        (b"CC\x01\xf8\x9e", {"A53_CC"}),
        (b"\x03\x81\x0a", {"A53_CC"}),
        (b"DTG1\x41\xf9", {"AFD"}),
    ],
)
def test_user_data_of_mpeg2_is_read_before_the_first_slice(user_data: bytes, kinds: set[str]) -> None:
    """Captions (ATSC, DVD and SCTE 20) and AFD are user data in a picture's header."""
    head, coded = b"\x00\x00\x01\x00\x00\x0f\xff\xf8", b"\x00\x00\x01\x01" + bytes(range(100, 160))
    data = b"\x00\x00\x01\xb2" + user_data
    assert RiderReader("mpeg2video", b"").kinds(memoryview(head + data + coded)) == kinds
    assert RiderReader("mpeg2video", b"").kinds(memoryview(head + coded + data)) == set()


def test_metadata_units_of_av1_are_read() -> None:
    """HDR10+ is in a metadata unit of kind 4 without a size."""
    payload = b"\x04" + HDR10_PLUS + b"\x80"
    unit = bytes((5 << 3 | 2, len(payload))) + payload
    frame = bytes((6 << 3 | 2, 4)) + b"\x10\x00\x00\x00"
    assert RiderReader("av1", b"").kinds(memoryview(b"\x12\x00" + unit + frame)) == {"DYNAMIC_HDR_PLUS"}


def test_the_first_block_addition_of_vp9_is_alpha() -> None:
    """Block addition 1 belongs to the codec: for VP8 and VP9 it is alpha, for other codecs it is unknown."""
    addition = (1).to_bytes(8) + b"\x82\x49"
    assert RiderReader("vp9", b"").added(addition) == ALPHA
    assert RiderReader("h264", b"").added(addition) is None
    assert RiderReader("vp9", b"").added((4).to_bytes(8) + HDR10_PLUS) is None


@pytest.mark.parametrize("codec", ["h264", "hevc", "mpeg2video", "av1"])
@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x00\x01", b"\x00\x00\x00\x09\x06", b"\xff" * 9, bytes(64)])
def test_damaged_packets_have_nothing(codec: str, data: bytes) -> None:
    """A truncated or empty packet has no side data, and raises nothing."""
    for extradata in (b"", AVCC, HVCC):
        assert RiderReader(codec, extradata).kinds(memoryview(data)) == set()

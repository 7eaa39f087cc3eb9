"""HDR10+ messages: written into packets, and read back by two parsers."""

import av
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.bitstream.picture_messages import PictureMessageReader
from codecfleet.actors.bitstream.riders import AFD, HDR10_PLUS
from codecfleet.actors.bitstream.sei import messages_of, with_messages
from codecfleet.actors.media.values import SeiMessage
from codecfleet.jobs.verify.reference import hdr10plus
from tests.hdr10plus_films import message

HEADS = b"\x00\x00\x00\x01\x46\x01\x50\x00\x00\x00\x01\x44\x01\xc0"
IDR, TRAIL = b"\x00\x00\x00\x01\x28\x01\xaf\x80", b"\x00\x00\x00\x01\x02\x01\xd0\x80"
DELIMITER, HIDDEN, HEADER, TILES = b"\x12\x00", b"\x32\x02\x10\x20", b"\x1a\x01\x90", b"\x22\x01\x55"

payloads = st.lists(st.sampled_from([0, 0, 0, 1, 2, 3, 4, 0x80, 0xFF]), min_size=1, max_size=600).map(bytes)


@given(payload=payloads)
def test_any_payload_comes_back_from_hevc(payload: bytes) -> None:
    """No start code appears in the message, and all other units stay as they are."""
    packet = with_messages("hevc", HEADS + IDR, [SeiMessage(4, payload)])
    assert [each.payload for each in messages_of("hevc", packet)] == [payload]
    assert packet.startswith(HEADS)
    assert packet.endswith(IDR)
    added = packet[len(HEADS) + 4 : -len(IDR)]
    assert not any(code in added for code in (b"\x00\x00\x00", b"\x00\x00\x01", b"\x00\x00\x02"))


@given(payload=payloads)
def test_any_payload_comes_back_from_av1(payload: bytes) -> None:
    """The message stands before the header of the shown frame, after the frame that is not shown."""
    packet = with_messages("av1", DELIMITER + HIDDEN + HEADER + TILES, [SeiMessage(4, payload)])
    assert [each.payload for each in messages_of("av1", packet)] == [payload]
    assert packet.startswith(DELIMITER + HIDDEN + b"\x2a")
    assert packet.endswith(HEADER + TILES)


@given(number=st.integers(0, 100), windows=st.integers(1, 3))
def test_both_readers_find_the_same(number: int, windows: int) -> None:
    """The reader of segments, and that of ``verify``."""
    payload = message(number, windows=windows)
    for codec, frame in (("h264", b"\x00\x00\x01\x65\x88\x80"), ("hevc", IDR), ("av1", DELIMITER + HEADER + TILES)):
        packet = with_messages(codec, frame, [SeiMessage(4, payload), SeiMessage(4, b"\xb5\x00\x31GA94")])
        assert PictureMessageReader(codec, b"").messages(av.Packet(packet)) == {HDR10_PLUS: (SeiMessage(4, payload),)}
        assert hdr10plus.MessageReader(codec, b"").read(packet) == payload


def test_messages_of_hevc_hold_until_the_next_sequence() -> None:
    """A picture without a message has the one before in decoding order; an IDR picture does not."""
    first, second = (SeiMessage(4, message(number)) for number in (1, 2))
    packets = [IDR, with_messages("hevc", TRAIL, [first]), TRAIL, with_messages("hevc", TRAIL, [second]), TRAIL, IDR]
    reader, other = PictureMessageReader("hevc", b""), hdr10plus.MessageReader("hevc", b"")
    found = [reader.messages(av.Packet(packet)).get(HDR10_PLUS, ()) for packet in packets]
    assert found == [(), (first,), (first,), (second,), (second,), ()]
    assert [other.read(packet) for packet in packets] == [b"".join(each.payload for each in held) for held in found]
    assert PictureMessageReader("hevc", b"", (first,)).messages(av.Packet(TRAIL)) == {HDR10_PLUS: (first,)}


def test_messages_of_av1_belong_to_one_picture() -> None:
    """In AV1, each picture must have its own."""
    packet, own = DELIMITER + HEADER + TILES, SeiMessage(4, message(3))
    reader = PictureMessageReader("av1", b"")
    assert reader.messages(av.Packet(with_messages("av1", packet, [own]))) == {HDR10_PLUS: (own,)}
    assert reader.messages(av.Packet(packet)) == {}


def test_active_format_descriptions() -> None:
    """They are found in H.264, HEVC and MPEG-2; those that say that there is none, and cut ones, are left out."""
    afd, none, cut = b"\xb5\x00\x31DTG1\x41\xf8", b"\xb5\x00\x31DTG1\x01\xf8", b"\xb5\x00\x31DTG1\x41"
    for codec, frame in (("h264", b"\x00\x00\x01\x65\x88\x80"), ("hevc", IDR)):
        packet = with_messages(codec, frame, [SeiMessage(4, payload) for payload in (none, afd, cut)])
        assert PictureMessageReader(codec, b"").messages(av.Packet(packet)) == {AFD: (SeiMessage(4, afd),)}
    slices = b"\x00\x00\x01\x01" + b"\x00\x00\x01\xb2DTG1\x41\xfa"
    packet = (
        b"\x00\x00\x01\x00\x00\x0f\x00\x00" + b"".join(b"\x00\x00\x01\xb2" + each[3:] for each in (none, afd)) + slices
    )
    assert PictureMessageReader("mpeg2video", b"").messages(av.Packet(packet)) == {AFD: (SeiMessage(4, afd),)}

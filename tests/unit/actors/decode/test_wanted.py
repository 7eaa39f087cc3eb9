"""Which packets of a range are fed, if only some of its pictures are wanted."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from av.packet import Packet

from codecfleet.actors.bitstream.access_points import annex_b
from codecfleet.actors.decode.wanted import WantedPictures

if TYPE_CHECKING:
    from av.video.stream import VideoStream

H264_IDR, H264_REFERENCE, H264_OTHER = b"\x65\x80", b"\x41\x80", b"\x01\x80"
TWO_SUB_LAYERS = bytes([33 << 1, 1, 1 << 1])
"""A sequence parameter set of HEVC that allows two temporal sub-layers."""
VIDEO_SET, PICTURE_SET = bytes([32 << 1, 1, 0]), bytes([34 << 1, 1, 0])
HEVC_IDR = bytes([19 << 1, 1, 0x80])


def _hevc_other(sub_layer: int) -> bytes:
    """Return a slice of a picture of a sub-layer (from 1) to which only higher sub-layers refer."""
    return bytes([0, sub_layer, 0x80])


def _fed(codec: str, packets: Sequence[Sequence[bytes]], wanted: WantedPictures) -> list[int]:
    made: list[tuple[int, Packet[VideoStream]]] = []
    for number, units in enumerate(packets):
        packet: Packet[Any] = Packet(annex_b(units))
        packet.pts = number
        made.append((number, packet))
    return [number for number, _ in wanted.needed(codec, b"", iter(made))]


@pytest.mark.parametrize(
    ("ticks", "fed"),
    [({0}, [0]), ({2}, [0, 1, 2]), ({4}, [0, 1, 3, 4]), ({2, 4}, [0, 1, 2, 3, 4]), ({5}, [0, 1, 3, 5])],
)
def test_unwanted_pictures_that_nothing_refers_to_are_left_out(ticks: set[int], fed: list[int]) -> None:
    """The packets end with the last wanted picture's."""
    packets = [[H264_IDR], [H264_REFERENCE], [H264_OTHER], [H264_REFERENCE], [H264_OTHER], [H264_OTHER], [H264_OTHER]]
    assert _fed("h264", packets, WantedPictures(frozenset(ticks), by_packet=True)) == fed


def test_all_packets_are_fed_if_times_do_not_identify_them() -> None:
    """A packet may then hold only part of a picture, or several."""
    packets = [[H264_IDR], [H264_OTHER], [H264_OTHER]]
    assert _fed("h264", packets, WantedPictures(frozenset({1}))) == [0, 1, 2]


def test_a_wanted_picture_s_parameter_set_counts_for_later_packets() -> None:
    """It allows a second sub-layer, whose pictures may refer to those of the first; other sets stand around it."""
    packets = [[VIDEO_SET, TWO_SUB_LAYERS, PICTURE_SET, HEVC_IDR], [_hevc_other(1)], [_hevc_other(2)], [_hevc_other(2)]]
    assert _fed("hevc", packets, WantedPictures(frozenset({0, 3}), by_packet=True)) == [0, 1, 3]

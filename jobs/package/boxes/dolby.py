"""Reads the speakers of AC-3 and E-AC-3 from sample entries (ETSI TS 102 366, annexes E and F)."""

from typing import Final

from ....actors.bitstream.access_points import BitReader
from .codec_strings import entry_boxes

_BY_MODE: Final = (0xA000, 0x4000, 0xA000, 0xE000, 0xA100, 0xE100, 0xB800, 0xF800)
"""The channel map of each ``acmod`` (table E.5), whose highest bits are L, C, R, Ls and Rs."""
_LFE: Final = 0x0001
_REAR_PAIR: Final = 0x0200
_WITH_REAR_PAIR: Final = 8  #: How many channels a 7.1 track has


def dolby_channels(sample_entry: bytes, channels: int) -> str:
    """Return the channel map of AC-3 or E-AC-3 as four hexadecimal digits, for example F801; "" for other codecs.

    FFmpeg's muxer misstates where the channels beyond 5.1 are, so a track of eight ``channels`` counts as 7.1.
    """
    if sample_entry[4:8] == b"ac-3":
        reader = BitReader(entry_boxes(sample_entry)[b"dac3"], is_escaped=False)
        reader.skip(2 + 5 + 3)  # fscod, bsid, bsmod
    elif sample_entry[4:8] == b"ec-3":
        reader = BitReader(entry_boxes(sample_entry)[b"dec3"], is_escaped=False)
        reader.skip(13 + 3)  # data_rate, num_ind_sub
        reader.skip(2 + 5 + 1 + 1 + 3)  # fscod, bsid, reserved, asvc, bsmod of the first substream
    else:
        return ""
    found = _BY_MODE[reader.bits(3)] | _LFE * reader.bits(1)
    return f"{found | _REAR_PAIR if channels == _WITH_REAR_PAIR else found:04X}"

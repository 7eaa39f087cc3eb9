"""Reads the channels and the rate of audio packets from their headers, without decoding.

Sources: ETSI TS 102 366, 4.4 for AC-3 and E.1.3 for E-AC-3; ISO/IEC 14496-3, 1.6.2 and 1.7.3 for AAC, 1.A.2.2 for its
ADTS headers; ISO/IEC 11172-3, 2.4.2.3, for MPEG audio; ETSI TS 102 114, 5.3.1, for DTS; RFC 9639, 9.1, for FLAC.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from .access_points import BitReader

_HEADER_BYTES: Final = 16
"""The length of the longest header, in bytes; a shorter packet is not read."""
_AC3_LAYOUTS: Final = ("stereo", "mono", "stereo", "3.0", "3.0(back)", "4.0", "quad(side)", "5.0(side)")
_AC3_LAYOUTS_LFE: Final = ("2.1", "FC+LFE", "2.1", "3.1", "FL+FR+LFE+BC", "4.1", "FL+FR+LFE+SL+SR", "5.1(side)")
_AC3_RATES: Final = (48_000, 44_100, 32_000, 0)
_AC3_BSID, _EAC3_BSID = 8, 11
_DEPENDENT: Final = 1
_AC3_STEREO: Final = 2
_AAC_RATES: Final = (
    *(96_000, 88_200, 64_000, 48_000, 44_100, 32_000),
    *(24_000, 22_050, 16_000, 12_000, 11_025, 8_000, 7_350),
)
_AAC_LAYOUTS: Final = {
    1: "mono",
    2: "stereo",
    3: "3.0",
    4: "4.0",
    5: "5.0",
    6: "5.1",
    7: "7.1",
    11: "6.1(back)",
    12: "7.1",
    14: "5.1.2",
}
"""FFmpeg's layouts by channel configuration. Encoders write 7 for 7.1, and FFmpeg's decoder reads it as 7.1."""
_REPLICATES_SPECTRUM: Final = frozenset({5, 29})
_MPEG_RATES: Final = (44_100, 48_000, 32_000, 0)
_MPEG_MONO: Final = 3
_DTS_LAYOUTS: Final = ("mono", *("stereo",) * 4, "3.0", "3.0(back)", "4.0", "quad(side)", "5.0(side)")
_DTS_LAYOUTS_LFE: Final = ("FC+LFE", *("2.1",) * 4, "3.1", "FL+FR+LFE+BC", "4.1", "FL+FR+LFE+SL+SR", "5.1(side)")
_DTS_RATES: Final = (0, 8_000, 16_000, 32_000, 0, 0, 11_025, 22_050, 44_100, 0, 0, 12_000, 24_000, 48_000, 0, 0)
_FLAC_RATES: Final = (
    *(0, 88_200, 176_400, 192_000, 8_000, 16_000, 22_050, 24_000),
    *(32_000, 44_100, 48_000, 96_000, 0, 0, 0, 0),
)
_FLAC_LAYOUTS: Final = ("mono", "stereo", "3.0", "quad", "5.0(side)", "5.1(side)", "6.1", "7.1", *("stereo",) * 3)


@dataclass(frozen=True, slots=True)
class SoundHeader:
    """The decoder's configuration, as far as packet headers state it; compared to notice changes within a track."""

    sample_rate: int  # the coded rate, which a decoder may double (spectral band replication); 0 if not stated
    layout: str  # FFmpeg's name; "" if not stated
    detail: tuple[int, ...] = ()  # other fields of the configuration


def sound_header(codec: str, data: bytes) -> SoundHeader | None:
    """Read a packet's header; return None if the packet is damaged, or headers of this codec are not read."""
    read = _READERS.get(codec)
    return None if read is None or len(data) < _HEADER_BYTES else read(data)


def aac_header(config: bytes) -> SoundHeader | None:
    """Read an AudioSpecificConfig; return None if it is truncated."""
    bits = BitReader(config, is_escaped=False)
    try:
        kind, rate, channels = _aac_object(bits), _aac_rate(bits), bits.bits(4)
        doubled = _aac_rate(bits) if kind in _REPLICATES_SPECTRUM else 0
    except EOFError:
        return None
    return SoundHeader(doubled or rate, _AAC_LAYOUTS.get(channels, ""), (kind, rate, channels))


def _aac_object(bits: BitReader) -> int:
    escape = 31
    kind = bits.bits(5)
    return kind if kind != escape else 32 + bits.bits(6)


def _aac_rate(bits: BitReader) -> int:
    explicit = 15
    index = bits.bits(4)
    if index == explicit:
        return bits.bits(24)
    return _AAC_RATES[index] if index < len(_AAC_RATES) else 0


def _begins(data: bytes, syncword: int, *, mask: int) -> bool:
    return int.from_bytes(data[:2]) & mask == syncword


def _bits_of(data: bytes, skipped: int) -> BitReader:
    bits = BitReader(data, is_escaped=False)
    bits.skip(skipped)
    return bits


def _ac3(data: bytes) -> SoundHeader | None:
    if data[:2] != b"\x0b\x77":
        return None
    bsid, mode = data[5] >> 3, data[6] >> 5
    if bsid >= _EAC3_BSID:
        return _eac3(data)
    bits = _bits_of(data[6:8], 3)
    # The centre level, the surround level and the Dolby Surround flag exist only in modes with those channels.
    bits.skip(2 * (mode & 1 and mode > 1) + 2 * (mode >> 2) + 2 * (mode == _AC3_STEREO))
    layouts = _AC3_LAYOUTS_LFE if bits.flag() else _AC3_LAYOUTS
    return SoundHeader(_AC3_RATES[data[4] >> 6] >> max(0, bsid - _AC3_BSID), layouts[mode])


def _eac3(data: bytes) -> SoundHeader:
    code, mode = data[4] >> 6, data[4] >> 1 & 7
    rate = _AC3_RATES[code] or _AC3_RATES[data[4] >> 4 & 3] >> 1
    layout = (_AC3_LAYOUTS_LFE if data[4] & 1 else _AC3_LAYOUTS)[mode]
    after = 2 * (int.from_bytes(data[2:4]) & 0x7FF) + 2
    more = data[after : after + 5]
    if more[:2] != b"\x0b\x77" or more[2] >> 6 != _DEPENDENT:
        return SoundHeader(rate, layout)
    return SoundHeader(rate, "7.1" if layout == _AC3_LAYOUTS_LFE[-1] else "", (more[4] & 15,))


def _aac(data: bytes) -> SoundHeader | None:
    if not _begins(data, 0xFFF0, mask=0xFFF6):  # the syncword of ADTS, and layer 0
        return None
    profile, index, channels = data[2] >> 6, data[2] >> 2 & 15, (data[2] & 1) << 2 | data[3] >> 6
    rate = _AAC_RATES[index] if index < len(_AAC_RATES) else 0
    return SoundHeader(rate, _AAC_LAYOUTS.get(channels, ""), (profile, channels))


def _latm(data: bytes) -> SoundHeader | None:
    """Read an AudioSyncStream whose StreamMuxConfig has version 0 and one layer; return None for any other."""
    is_sync, repeats, version = _begins(data, 0x2B7 << 5, mask=0xFFE0), data[3] >> 7, data[3] >> 6 & 1
    return None if not is_sync or repeats or version else aac_header(data[5:])


def _mpeg(data: bytes) -> SoundHeader | None:
    if not _begins(data, 0xFFE0, mask=0xFFE0):
        return None
    version, layer, mode = data[1] >> 3 & 3, data[1] >> 1 & 3, data[3] >> 6
    halvings = (2, 0, 1, 0)[version]
    layout = "mono" if mode == _MPEG_MONO else "stereo"
    return SoundHeader(_MPEG_RATES[data[2] >> 2 & 3] >> halvings, layout, (version, layer))


def _dts(data: bytes) -> SoundHeader | None:
    if data[:4] != b"\x7f\xfe\x80\x01":
        return None
    bits = _bits_of(data[:_HEADER_BYTES], 60)
    mode, rate = bits.bits(6), _DTS_RATES[bits.bits(4)]
    bits.skip(15)
    layouts = _DTS_LAYOUTS_LFE if bits.bits(2) else _DTS_LAYOUTS
    return SoundHeader(rate, layouts[mode] if mode < len(layouts) else "", (mode,))


def _flac(data: bytes) -> SoundHeader | None:
    code, channels = data[2] & 15, data[3] >> 4
    if not _begins(data, 0xFFF8, mask=0xFFFC) or channels >= len(_FLAC_LAYOUTS):
        return None
    return SoundHeader(_FLAC_RATES[code], _FLAC_LAYOUTS[channels], (code, data[3] >> 1 & 7))


_READERS: Final[Mapping[str, Callable[[bytes], SoundHeader | None]]] = {
    **dict.fromkeys(("ac3", "eac3"), _ac3),
    **dict.fromkeys(("mp1", "mp2", "mp3"), _mpeg),
    "aac": _aac,
    "aac_latm": _latm,
    "dts": _dts,
    "flac": _flac,
}
HAVE_HEADERS: Final = frozenset(_READERS)
"""The codecs whose packets state their channels and rate."""

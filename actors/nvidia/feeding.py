"""From a container's packets to what NVDEC's parser eats: Annex B units, parameter sets, and which pictures to expect.

Rules that were measured on a real H200 (docs/nvdec.md tells how):

- H.264 and HEVC want Annex B, and their parameter sets before the first packet of a range.
- A decoder that starts at an HEVC CRA or BLA loses that picture and shows the leading ones that refer to pictures
  before it. So those leading pictures (RASL) are left out, as a software decoder does by itself.
- With VP9 the decoder's timestamps are one picture late. Where a codec shows its pictures in the order of its packets
  (VP8, VP9, AV1), pictures are therefore counted, and nobody asks the decoder.

Sources: ITU-T H.265 (08/2021) sections 7.4.2.2 and 8.1.3; RFC 6386 section 9.1 for VP8.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..bitstream import annex_b, nal_units
from ..parameter_sets import annex_b_headers
from .vp9_headers import vp9_frames

__all__ = ["Chunk", "Feeder", "carries_captions", "changes_size", "shown_frames"]

_RASL = (8, 9)
_BROKEN_LINKS, _CLEAN_RANDOM_ACCESS, _LAST_IRAP = (16, 17, 18), 21, 23
_FIRST_IRAP = 16
_SLICES = 32
_CAPTIONS = b"\xb5\x00\x31GA94\x03"
"""How they begin in H.264 and HEVC: ATSC's country and provider codes, and the type."""
_ENDS = frozenset({36, 37})
"""The ends of a coded video sequence and of a bitstream."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """What is fed for one packet: its number in demux order, the bytes, and how many pictures it shows."""

    number: int
    payload: bytes
    shown: int


class Feeder:
    """Makes one range's packets ready. Used once.

    Args:
        codec: FFmpeg's canonical name.
        extradata: the track's codec configuration; it says how units are delimited.
    """

    def __init__(self, codec: str, extradata: bytes) -> None:
        self._codec = codec
        self._extradata = extradata
        self._begun = False
        self._drops_leading = False
        self._starts_sequence = True

    @property
    def counts_pictures(self) -> bool:
        """Whether pictures come in the order of the packets, so that counting tells which is which."""
        return self._codec in ("vp8", "vp9", "av1")

    def chunks(self, number: int, data: bytes) -> Iterator[Chunk]:
        """Yield what to feed for a packet: one chunk, or none where it must not be seen."""
        if self._codec == "hevc" and self._is_undecodable(data):
            return
        payload = self._payload(data)
        self._begun = True
        yield Chunk(number, payload, shown_frames(self._codec, data))

    def _payload(self, data: bytes) -> bytes:
        if self._codec not in ("h264", "hevc"):
            return data
        hevc = self._codec == "hevc"
        payload = data
        if self._extradata[:1] == b"\x01":
            payload = annex_b(nal_units(data, self._extradata, hevc=hevc))
        return payload if self._begun else annex_b_headers(self._extradata, hevc=hevc) + payload

    def _is_undecodable(self, data: bytes) -> bool:
        """Tell whether a packet holds a leading picture that refers to what lies before a point where decoding starts.

        That is the range's first picture, a broken link, and a CRA after an end of sequence (H.265 section 8.1.3).
        """
        kinds = [unit[0] >> 1 & 0x3F for unit in nal_units(data, self._extradata, hevc=True)]
        first = next((place for place, kind in enumerate(kinds) if kind < _SLICES), len(kinds))
        self._starts_sequence = self._starts_sequence or not _ENDS.isdisjoint(kinds[:first])
        if first == len(kinds):
            return False
        kind = kinds[first]
        if _FIRST_IRAP <= kind <= _LAST_IRAP:
            self._drops_leading = kind in _BROKEN_LINKS or (kind == _CLEAN_RANDOM_ACCESS and self._starts_sequence)
        self._starts_sequence = not _ENDS.isdisjoint(kinds[first:])
        return self._drops_leading and kind in _RASL


def shown_frames(codec: str, data: bytes) -> int:
    """Return how many pictures a packet shows; 1 where a codec's packets always show one.

    Damaged headers show what they seem to.
    """
    if codec == "vp8":
        return data[0] >> 4 & 1 if data else 0
    if codec == "vp9":
        return sum(frame.is_shown for frame in vp9_frames(data))
    return 1


def changes_size(codec: str, data: bytes, width: int, height: int) -> bool:
    """Tell whether a packet holds a frame of another size than the track's.

    VP9 may change it between any two frames and scale what it refers to, which NVDEC and FFmpeg do differently. The
    other codecs change it with their parameter sets, which the decoder tells.
    """
    return codec == "vp9" and any(frame.size not in (None, (width, height)) for frame in vp9_frames(data))


def carries_captions(codec: str, data: bytes) -> bool:
    """Tell whether a packet holds closed captions, which software's pictures bring along and NVDEC's do not.

    Source: ATSC A/53 part 4 (2009) section 6.2.3; CTA-708 for H.264 and HEVC.
    """
    return codec in ("h264", "hevc") and _CAPTIONS in data

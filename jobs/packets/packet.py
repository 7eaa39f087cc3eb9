"""One coded picture, taken by ``Decoder`` and returned by ``Encoder``."""

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

import av

from ...actors.bitstream.access_points import RandomAccess, random_access_kind
from ...actors.bitstream.packet_headers import av1_headers, vp8_headers, vp9_headers
from ...errors import UsageError

USUAL_TIME_BASE: Final = Fraction(1, 90_000)  #: MPEG's clock
END_OF_STREAM, DISCONTINUITY = 1, 4  #: Bits of ``decode_flag``, with the values of CUVID_PKT_* and ``VideoPacketFlag``
_ENTRIES: Final = frozenset(RandomAccess) - {RandomAccess.NONE, RandomAccess.INTRA_ONLY}
_BEGINS: Final[dict[str, Callable[[bytes], bool]]] = {
    "vp8": lambda data: vp8_headers(data).begins,
    "vp9": lambda data: vp9_headers(data, (0, 0)).begins,
    "av1": lambda data: av1_headers(data).begins,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """One coded picture, with the fields of PyNvVideoCodec's ``PacketData`` (programming guide, section 2.1).

    Times are in ticks of ``time_base``.

    Raises:
        UsageError: ``data`` is not bytes or is empty, or ``time_base`` is not a positive fraction.
    """

    data: bytes = field(repr=False)  #: H.264 and HEVC in Annex B, or with lengths as in ``extradata``; AV1 as OBUs
    pts: int | None = None  #: presentation time
    dts: int | None = None  #: decoding time
    duration: int = 0  #: the picture's duration; 0 if unknown
    time_base: Fraction = USUAL_TIME_BASE  #: seconds per tick
    pos: int | None = None  #: the packet's offset in the file, in bytes
    key: bool | None = None  #: whether decoding can begin at this packet; if None, the data decides
    #: whether packets are missing before this packet; the decoder then flushes, and continues at the next keyframe
    discontinuity: bool = False
    decode_flag: int = 0
    """Bits for the decoder: 1 (end of stream) flushes it after this packet, 4 is ``discontinuity``. 2 (a time is given)
    and 8 (the picture ends here) change nothing: a packet is one whole picture, and its time is ``pts``."""

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "data", bytes(memoryview(self.data)))
            object.__setattr__(self, "time_base", Fraction(self.time_base))
        except (TypeError, ValueError, ZeroDivisionError) as error:
            raise UsageError(f"these values do not make a packet: {error}", "Give data=bytes.") from None
        if not self.data or self.time_base <= 0:
            what = "no data" if not self.data else f"a time base of {self.time_base}"
            raise UsageError(
                f"a packet has {what}", "Give one whole coded picture, and the length of a tick in seconds."
            )

    @property
    def bsl(self) -> int:
        """The size of the data in bytes."""
        return len(self.data)

    @classmethod
    def of(cls, packet: object) -> "Packet":
        """Return a packet of this class, made from a PyAV packet if necessary.

        Raises UsageError: ``packet`` is neither kind of packet, or is empty.
        """
        if isinstance(packet, cls):
            return packet
        if not isinstance(packet, av.Packet):
            message = f"a {type(packet).__name__} is not a packet"
            raise UsageError(message, "Give a codecfleet.Packet, or a PyAV packet.")
        return cls(
            data=bytes(packet),
            pts=packet.pts,
            dts=packet.dts,
            duration=packet.duration or 0,
            time_base=packet.time_base or USUAL_TIME_BASE,
            pos=packet.pos,
            key=packet.is_keyframe,
        )

    def to_av(self) -> "av.Packet[Any]":
        """Return a PyAV packet, to mux or decode."""
        # libavcodec reads past the data, into padding that a packet made from ``bytes`` would lack.
        found: av.Packet[Any] = av.Packet(len(self.data))
        found.update(self.data)
        found.pts, found.dts, found.duration, found.time_base = self.pts, self.dts, self.duration, self.time_base
        found.is_keyframe = bool(self.key)
        return found

    def is_entry(self, codec: str, extradata: bytes) -> bool:
        """Return whether decoding can begin at the packet, by its ``key``, or by its data if ``key`` is None."""
        if self.key is not None:
            return self.key
        if codec in _BEGINS:
            return _BEGINS[codec](self.data)
        return random_access_kind(codec, self.data, extradata) in _ENTRIES or codec not in ("h264", "hevc")

"""One range in NVDEC: the awaited pictures, and the packet of each picture."""

import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Final, Generic, NamedTuple

from ....errors import EngineFailed, EngineUnfit
from ...bitstream.packet_headers import changes_configuration
from ...decode.decoding import DecodeTally, PictureT
from ...decode.wanted import WantedPictures
from .packet_prep import Chunk, Feeder
from .session import NvdecSession, SurfaceReader

if TYPE_CHECKING:
    from ...decode.decoding import VideoPacket

_ADVICE: Final = "Software decodes it instead."
_PACKETS_AT_ONCE: Final = 8
"""How many packets are fed together. Each feeding changes the CUDA context, which releases the GIL, and a dozen threads
compete for the GIL.
"""


class Fed(NamedTuple):
    """A packet that is ready to be fed."""

    chunk: Chunk
    packet: "VideoPacket"


class _Awaited(NamedTuple):
    """A picture whose packet was fed and that has not come out yet."""

    number: int
    pts: int | None
    is_given: bool  # whether a software decoder would give the picture
    is_wanted: bool  # whether the picture is also wanted: only then is its surface read


class FedRange(Generic[PictureT]):
    """A range's packets, and the pictures that come from them. Used once.

    A range consists of stretches: a packet that states new parameters (a size, colours) begins another stretch, after
    the pictures of the packets before it are drained.

    The decoder assigns the packets' presentation times to pictures in presentation order, so each picture needs a
    distinct time. ``counts_pictures`` identifies pictures by counting instead, if they come in the packets' order.

    The first packet is a random access point. ``in_order`` requires each picture before the next packet is fed;
    ``at_once`` reads each picture as soon as it is decoded; otherwise several packets are fed together. If ``wanted``
    is None, all pictures are wanted.
    """

    def __init__(
        self,
        feeder: Feeder,
        tally: DecodeTally,
        wanted: WantedPictures | None,
        *,
        counts_pictures: bool,
        in_order: bool,
        at_once: bool,
    ) -> None:
        self._feeder = feeder
        self._tally = tally
        self._wanted = wanted
        self._counts_pictures = counts_pictures
        self._in_order = in_order
        self._at_once = at_once
        self._most_waiting = 1 if in_order or at_once else _PACKETS_AT_ONCE
        self._waiting: list[Fed] = []
        self._awaited: dict[int, _Awaited] = {}
        self._coming: deque[_Awaited] = deque()  # awaited pictures whose surfaces are being read, in order
        self._tickets = 0
        self._next_ticket = 0
        self._begun = False
        self._first_pts: int | None = None

    def prepared(self, number: int, packet: "VideoPacket") -> Fed | None:
        """Return a packet in NVDEC's form, or None to leave it out; raise if NVDEC might decode the packet wrongly."""
        self._check(number, packet)
        chunk = self._feeder.chunk(number, memoryview(packet))
        if chunk is None:
            return None
        self._check_headers(chunk, packet)
        self._begun = True
        return Fed(chunk, packet)

    def feed(self, fed: Fed, session: NvdecSession, reader: SurfaceReader[PictureT]) -> Iterable[tuple[int, PictureT]]:
        """Feed a packet, now or with later packets; return (packet number, picture) of each complete picture.

        Raises the errors of ``NvdecDecoder.decode``, now or in the iteration.
        """
        self._waiting.append(fed)
        if len(self._waiting) < self._most_waiting:
            return ()
        pictures = self._fed(session, reader)
        return self._none_held_back(pictures, fed.chunk.number) if self._in_order else pictures

    def drain(
        self, session: NvdecSession, reader: SurfaceReader[PictureT]
    ) -> Generator[tuple[int, PictureT], None, None]:
        """Yield the stretch's last pictures as ``feed`` does; the session is then empty."""
        if self._waiting:
            yield from self._fed(session, reader)
        began_s = time.perf_counter()
        yield from self._accepted(session.flush(reader, self._keeps), began_s)
        missing = [awaited for awaited in self._awaited.values() if awaited.is_given]
        if missing:
            message = f"NVDEC left out {len(missing)} pictures, the first of packet {missing[0].number}"
            raise EngineFailed(message, _ADVICE)
        self._awaited.clear()
        self._next_ticket = self._tickets

    def _fed(self, session: NvdecSession, reader: SurfaceReader[PictureT]) -> Iterator[tuple[int, PictureT]]:
        waiting, self._waiting = self._waiting, []
        began_s = time.perf_counter()
        packets = ((fed.chunk.payload, self._expect(fed.chunk, fed.packet)) for fed in waiting)
        return self._accepted(session.feed(packets, reader, self._keeps, at_once=self._at_once), began_s)

    def _none_held_back(self, pictures: Iterator[tuple[int, PictureT]], number: int) -> Iterator[tuple[int, PictureT]]:
        yield from pictures
        if self._awaited:
            raise EngineFailed(f"NVDEC held back the picture of packet {number}", "Use the latency native.")

    def _check(self, number: int, packet: "VideoPacket") -> None:
        if packet.is_corrupt:
            raise EngineFailed(f"packet {number} is marked as damaged", _ADVICE)
        if changes_configuration(packet):
            raise EngineUnfit(f"the codec's configuration changes at packet {number}", _ADVICE)
        if not self._begun:
            if not packet.is_keyframe:
                raise EngineUnfit(f"decoding would begin at packet {number}, which is not a keyframe", _ADVICE)
            self._first_pts = packet.pts

    def _check_headers(self, chunk: Chunk, packet: "VideoPacket") -> None:
        if chunk.headers.has_captions:
            message = f"packet {chunk.number} carries closed captions, which only software decoding passes on"
            raise EngineUnfit(message, _ADVICE)
        if chunk.headers.resizes:
            raise EngineUnfit(f"the pictures' size changes at packet {chunk.number}, within a sequence", _ADVICE)
        if self._begun and chunk.is_new and not (chunk.headers.begins and packet.is_keyframe):
            message = f"packet {chunk.number} changes the parameters, but does not begin a sequence"
            raise EngineUnfit(message, _ADVICE)

    def _expect(self, chunk: Chunk, packet: "VideoPacket") -> int:
        # An edit list hides some pictures; a leading picture refers to pictures that were never fed.
        is_leading = packet.pts is not None and self._first_pts is not None and packet.pts < self._first_pts
        is_given = not packet.is_discard and not is_leading
        is_wanted = is_given and (self._wanted is None or self._wanted.has(chunk.number, packet.pts))
        awaited = _Awaited(chunk.number, packet.pts, is_given, is_wanted)
        if self._counts_pictures:
            for _ in range(chunk.headers.shown):
                self._awaited[self._tickets] = awaited
                self._tickets += 1
            return chunk.number
        if packet.pts is None or packet.pts in self._awaited:
            message = f"packet {chunk.number} has no distinct presentation time, by which NVDEC identifies pictures"
            raise EngineUnfit(message, _ADVICE)
        self._awaited[packet.pts] = awaited
        return packet.pts

    def _keeps(self, stated: int) -> bool:
        """Return whether to read the next picture's surface; ``stated`` is the ticket that NVDEC gives the picture."""
        ticket = self._next_ticket if self._counts_pictures else stated
        self._next_ticket += 1
        awaited = self._awaited.pop(ticket, None)
        if awaited is None:
            raise EngineFailed(f"NVDEC returned a picture at {ticket} that belongs to no packet", _ADVICE)
        self._tally.frames += awaited.is_given
        if awaited.is_wanted:
            self._coming.append(awaited)
        return awaited.is_wanted

    def _accepted(self, pictures: list[PictureT], began_s: float) -> Iterator[tuple[int, PictureT]]:
        self._tally.decode_s += time.perf_counter() - began_s
        for picture in pictures:
            awaited = self._coming.popleft()
            picture.pts = awaited.pts
            yield awaited.number, picture

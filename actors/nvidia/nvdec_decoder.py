"""NVDEC as a picture decoder: the same pictures as software's, or a reason why not."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from av.error import FFmpegError
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from ...errors import EngineFailed, EngineUnfit
from ..decoding import DecodeTally, PictureDecoder
from .feeding import Chunk, Feeder, carries_captions, changes_size
from .fitness import TrackFacts, objection, surface_format, track_facts
from .host_pictures import dress
from .nvdec_pool import NvdecPool
from .nvdec_session import NvdecSession, SessionKey

if TYPE_CHECKING:
    from ..decoding import VideoPacket

__all__ = ["NvdecDecoder"]

_ADVICE: Final = "Software decodes it instead."


class NvdecDecoder(PictureDecoder):
    """Decodes on the one device that this process sees, on warm sessions.

    Args:
        pool: the sessions.
        cannot: says why the device does not decode a track, "" where it does.
        wrong_pictures: how many pictures this process's decoders called wrong so far.
    """

    name = "nvdec"

    def __init__(self, pool: NvdecPool, cannot: Callable[[SessionKey], str], wrong_pictures: Callable[[], int]) -> None:
        self.pool = pool
        self._cannot = cannot
        self._wrong_pictures = wrong_pictures

    def decode(
        self, stream: VideoStream, packets: "Iterator[tuple[int, VideoPacket]]", tally: DecodeTally
    ) -> Iterator[tuple[int | None, VideoFrame]]:
        """Yield the pictures of a range.

        Raises:
            EngineUnfit: NVDEC may not, or cannot, decode this track exactly.
            EngineFailed: what it gave is not beyond doubt.
            DeviceError: the device failed otherwise.
        """
        facts = track_facts(stream)
        key = _session_key(facts)
        if reason := self._cannot(key):
            raise EngineUnfit(reason, _ADVICE)
        if facts.codec == "vp8":
            packets = _colours_learnt(stream, packets)
        wrong_before = self._wrong_pictures()
        with self.pool.lend(key) as session:
            for number, picture in _Range(session, Feeder(facts.codec, facts.extradata), tally).decode(packets):
                dress(picture, stream)
                yield number, picture
        if self._wrong_pictures() != wrong_before:
            message = "NVDEC could not decode every picture, of this source or of one beside it"
            raise EngineFailed(message, _ADVICE)


def _colours_learnt(
    stream: VideoStream, packets: "Iterator[tuple[int, VideoPacket]]"
) -> "Iterator[tuple[int, VideoPacket]]":
    """Yield the packets, and have software look at the first: with VP8, who has decoded nothing knows no colours."""
    for number, packet in islice(packets, 1):
        with suppress(FFmpegError):
            stream.codec_context.decode(packet)
        yield number, packet
    yield from packets


def _session_key(facts: TrackFacts) -> SessionKey:
    surface = surface_format(facts.pix_fmt)
    if (reason := objection(facts)) or surface is None or facts.pix_fmt is None:
        raise EngineUnfit(reason, _ADVICE)
    return SessionKey(facts.codec, facts.pix_fmt, surface, facts.width, facts.height)


@dataclass(frozen=True, slots=True)
class _Awaited:
    """A picture that was fed and has not come yet. ``is_wanted`` is whether a software decoder would give it."""

    number: int
    pts: int | None
    is_wanted: bool


class _Range:
    """One range on its way through a session: which pictures are awaited, and which packet each one is of.

    The decoder is given presentation times, and gives each picture one: it hands them out in their own order, so they
    must all be there and differ. Where pictures come in the order of packets, they are counted instead.
    """

    def __init__(self, session: NvdecSession, feeder: Feeder, tally: DecodeTally) -> None:
        self._session = session
        self._feeder = feeder
        self._tally = tally
        self._awaited: dict[int, _Awaited] = {}
        self._tickets = 0
        self._next_ticket = 0
        self._begun = False
        self._first_pts: int | None = None

    def decode(self, packets: "Iterator[tuple[int, VideoPacket]]") -> Iterator[tuple[int | None, VideoFrame]]:
        for number, packet in packets:
            data = bytes(packet)
            self._check(number, packet, data)
            for chunk in self._feeder.chunks(number, data):
                ticket = self._expect(chunk, packet)
                yield from self._timed(partial(self._session.feed, chunk.payload, ticket))
        yield from self._timed(self._session.flush)
        missing = [awaited for awaited in self._awaited.values() if awaited.is_wanted]
        if missing:
            message = f"NVDEC left out {len(missing)} pictures, the first of packet {missing[0].number}"
            raise EngineFailed(message, _ADVICE)

    def _check(self, number: int, packet: "VideoPacket", data: bytes) -> None:
        if packet.is_corrupt:
            message = f"packet {number} is marked as damaged"
            raise EngineFailed(message, _ADVICE)
        if packet.has_sidedata("new_extradata"):
            message = f"the codec's configuration changes at packet {number}"
            raise EngineUnfit(message, _ADVICE)
        key = self._session.key
        if carries_captions(key.codec, data):
            message = f"packet {number} carries closed captions, which come with software's pictures alone"
            raise EngineUnfit(message, _ADVICE)
        if changes_size(key.codec, data, key.width, key.height):
            message = f"the pictures' size changes at packet {number}"
            raise EngineUnfit(message, _ADVICE)
        if not self._begun:
            if not packet.is_keyframe:
                message = f"decoding would begin at packet {number}, which is no keyframe"
                raise EngineUnfit(message, _ADVICE)
            self._begun, self._first_pts = True, packet.pts

    def _expect(self, chunk: Chunk, packet: "VideoPacket") -> int:
        """Note the pictures that a chunk shows; return the ticket to feed it with."""
        awaited = _Awaited(chunk.number, packet.pts, self._is_wanted(packet))
        if self._feeder.counts_pictures:
            for _ in range(chunk.shown):
                self._awaited[self._tickets] = awaited
                self._tickets += 1
            return chunk.number
        if packet.pts is None or packet.pts in self._awaited:
            message = f"packet {chunk.number} has no presentation time of its own, and NVDEC tells pictures by it"
            raise EngineUnfit(message, _ADVICE)
        self._awaited[packet.pts] = awaited
        return packet.pts

    def _is_wanted(self, packet: "VideoPacket") -> bool:
        """Tell whether software would give a packet's picture.

        Not what an edit list hides; and not leading pictures, which are shown before the range's first and refer to
        what was never fed.
        """
        is_leading = packet.pts is not None and self._first_pts is not None and packet.pts < self._first_pts
        return not packet.is_discard and not is_leading

    def _timed(self, call: Callable[[], list[tuple[int, VideoFrame]]]) -> Iterator[tuple[int | None, VideoFrame]]:
        began = time.perf_counter()
        pictures = call()
        self._tally.decode_s += time.perf_counter() - began
        for ticket, picture in pictures:
            yield from self._accepted(ticket, picture)

    def _accepted(self, ticket: int, picture: VideoFrame) -> Iterator[tuple[int | None, VideoFrame]]:
        if self._feeder.counts_pictures:
            ticket, self._next_ticket = self._next_ticket, self._next_ticket + 1
        awaited = self._awaited.pop(ticket, None)
        if awaited is None:
            message = f"NVDEC gave a picture that no packet promised, at {ticket}"
            raise EngineFailed(message, _ADVICE)
        if awaited.is_wanted:
            self._tally.frames += 1
            picture.pts = awaited.pts
            yield awaited.number, picture

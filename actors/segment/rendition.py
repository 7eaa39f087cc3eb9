"""One rendition of a segment: the pictures as the encoder gets them, and their encoding."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ...errors import EncoderFailed
from ..bitstream.picture_messages import Messages, PictureMessages
from ..bitstream.sei import with_messages
from ..closing import Closing
from ..decode.decoding import PictureT
from ..device.interface import WorkerDevice
from ..encode.session import EncodedPacket, EncoderSession
from ..encode.settings import EncoderSettings, usable_cores, with_threads
from ..encode.software import SoftwareEncoder
from ..media.timeline import is_increasing
from ..surfaces.device_frame import TimedPicture
from .burn import Burner
from .decode_path import DecodePath
from .filtering import FilterSettings
from .frame_rate import CountedGrid, KeyframeGrid, Pacer

if TYPE_CHECKING:
    from fractions import Fraction

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True, kw_only=True)
class RenditionSettings:
    """How one rendition of a segment is made; the fields are those of ``EncodeSegment``."""

    segment: int
    time_base: "Fraction"
    interval: tuple[int | None, int | None]
    filters: FilterSettings
    encoder: EncoderSettings
    numbers: tuple[int, int] | None
    keyframes: KeyframeGrid | CountedGrid | None
    kept_messages: frozenset[str]
    cores: int
    frames: int  # how many pictures the index promises
    measured: FilterSettings | None = None  # makes the pictures to compare with; None means ``filters``

    @property
    def original(self) -> "RenditionSettings":
        """The settings of the pictures with which the encoded pictures are compared."""
        return self if self.measured is None else replace(self, filters=self.measured)


class PictureSink(Protocol):
    """Takes the pictures of a rendition, in order."""

    @property
    def done(self) -> int:
        """How many pictures are done."""

    def take(self, ticks: int, picture: Any, messages: Messages = (), /) -> None:  # noqa: ANN401 - any memory
        """Take a picture with its time, or its number if the track has its own rate, and the messages to write."""

    def follow(self, pictures: Sequence[Any], /) -> None:
        """Take the pictures of the seam after the segment, once all pictures of the segment are taken."""

    def drain(self) -> bool:
        """Do a part of what is left after the last picture; return False if nothing is left."""


class Prepared(Closing, Generic[PictureT]):
    """Filters, paces and burns a rendition's pictures, and gives them to ``sink``.

    With ``own_pictures``, ``sink`` gets new frames instead of the decoder's; both may have the same pixels in memory.
    """

    def __init__(
        self, made: RenditionSettings, path: DecodePath[PictureT], sink: PictureSink, *, own_pictures: bool = False
    ) -> None:
        self.sink = sink
        self.began_ticks: int | None = None  # if the track has its own rate: the time of the first source picture
        self.chain = path.open_chain(made.filters, made.time_base, made.interval, own_pictures=own_pictures)
        self._made = made
        self._following: list[PictureT] = []
        self._pacer: Pacer[tuple[PictureT, Messages]] | None = None
        if made.filters.rate is not None and made.numbers is not None:
            self._pacer = Pacer(made.filters.rate, range(*made.numbers))
        burn = made.filters.burn
        self._burner = None if burn is None else Burner(burn, made.filters.output)

    def close(self) -> None:
        """Close the filters."""
        self.chain.close()

    def take(self, ticks: int, picture: PictureT, messages: PictureMessages) -> Iterator[None]:
        """Give a filtered picture, or the pictures at the track's own rate that are certain now; yield after each."""
        end = self._made.interval[1]
        if end is not None and ticks >= end:
            self._following.append(self._burnt(ticks * self._made.time_base, picture))
            return
        kept = tuple(each for kind, own in messages.items() if kind in self._made.kept_messages for each in own)
        if self._pacer is None:
            self._give(ticks, picture, kept)
            yield
            return
        self.began_ticks = ticks if self.began_ticks is None else self.began_ticks
        for number, shown in self._pacer.push(ticks, (picture, kept)):
            self._give(number, *shown)
            yield

    def take_last(self) -> Iterator[None]:
        """Give the pictures that show the last source picture, and then those of the seam."""
        if self._pacer is not None:
            for number, shown in self._pacer.finish():
                self._give(number, *shown)
                yield
        self.sink.follow(self._following)
        self._following.clear()

    def due(self, taken: list[int]) -> list[int]:
        """Return the times that the packets should have: those of the pictures or, with a rate, the picture numbers."""
        numbers = self._made.numbers
        if numbers is None:
            return taken
        return list(range(*numbers)) if taken or self.began_ticks is not None else []

    def _give(self, ticks: int, picture: PictureT, messages: Messages) -> None:
        rate = self._made.filters.rate
        shown_s = (ticks if rate is None else rate.shown_at(ticks)) * self._made.time_base
        self.sink.take(ticks, self._burnt(shown_s, picture), messages)

    def _burnt(self, at_s: "Fraction", frame: Any) -> Any:  # noqa: ANN401 - a picture in host memory if anything is burnt in
        return frame if self._burner is None else self._burner.burn(at_s, frame)


class RenditionEncoding(Closing):
    """Encodes a rendition's pictures, which are on ``device`` if ``on_device``, otherwise in host memory."""

    def __init__(self, made: RenditionSettings, device: WorkerDevice | None, *, on_device: bool) -> None:
        self._made = made
        self._on_device = on_device
        self.packets: list[EncodedPacket] = []
        self._messages: dict[int, Messages] = {}  # to write, by the encoder's time of the picture
        self.encode_s = 0.0
        self._fed = 0
        self._is_followed = False  # whether the encoder has pictures of the seam
        self._is_past = False  # whether the encoder has returned a packet of the seam
        self._base_ticks: int | None = None
        self._last_ticks: int | None = None
        self._keyframes: list[int] = []
        self._encoder = self._opened_encoder(device)
        self._remaining = self._encoder.remaining()

    @property
    def done(self) -> int:
        """Pictures done: a picture is half done when the encoder takes it, and done when its packet is there."""
        return (self._fed + len(self.packets)) // 2

    @property
    def extradata(self) -> bytes:
        """The encoder's parameter sets."""
        return self._encoder.extradata

    def close(self) -> None:
        """Close the encoder; the packets stay."""
        self._encoder.close()

    def take(self, ticks: int, picture: Any, messages: Messages = (), /) -> None:  # noqa: ANN401 - any memory
        """Encode a picture, and write its messages into its packet."""
        # Times are relative to the segment, so that the encoder's output does not depend on the segment's place in the
        # track.
        self._base_ticks = ticks if self._base_ticks is None else self._base_ticks
        if self._on_device:
            picture = TimedPicture(picture.frame, ticks - self._base_ticks)
        else:
            picture.pts, picture.time_base = ticks - self._base_ticks, self._made.encoder.time_base
        grid = self._made.keyframes
        keyframe = grid is not None and grid.is_keyframe(ticks, self._last_ticks)
        self._keyframes += [ticks] if keyframe else []
        self._last_ticks = ticks
        if messages:
            self._messages[ticks - self._base_ticks] = messages
        self._keep(self._timed(partial(self._encoder.encode, picture, keyframe=keyframe)))
        self._fed += 1

    def follow(self, pictures: Sequence[Any], /) -> None:
        """Show these pictures to the encoder in turn, ``ahead_frames`` altogether; their packets are not kept.

        Without them, x264 and x265 save bits in the last pictures of a segment, to which no later picture refers. The
        first of them is a keyframe, so no packet of the segment refers to them. They only show the encoder what
        follows, so they may have the times of a constant rate, and lack a subtitle that begins after the segment.
        """
        settings, last = self._made.encoder, self._last_ticks
        if last is None or not pictures or not settings.ahead_frames:
            return
        step_ticks = max(1, round(1 / (settings.format.frame_rate * settings.time_base)))
        self._is_followed = True
        for number in range(settings.ahead_frames):
            picture = pictures[number % len(pictures)]
            picture.pts = last - (self._base_ticks or 0) + (number + 1) * step_ticks
            picture.time_base = settings.time_base
            self._keep(self._timed(partial(self._encoder.encode, picture, keyframe=not number)))

    def drain(self) -> bool:
        """Fetch a packet that the encoder still holds; return False after the segment's last."""
        if self._is_followed and len(self.packets) == self._fed:
            return False  # the pictures of the seam need not be encoded
        packet = self._timed(partial(next, self._remaining, None))
        self._keep([] if packet is None else [packet])
        return packet is not None

    def check(self, due: list[int]) -> None:
        """Raise ``EncoderFailed`` if the packets' times are not those that are ``due``, or if keyframes are missing."""
        given = sorted(self.pts_ticks())
        if given != due:
            message = f"segment {self._made.segment}: {len(due)} frames went in and {len(given)} came out"
            raise EncoderFailed(message, "Try another --preset or --codec, and please report this with the input.")
        if not is_increasing(given):
            message = f"segment {self._made.segment}: two frames share one presentation time"
            raise EncoderFailed(message, "Please report this with the input.")
        self._check_keyframes()

    def pts_ticks(self) -> list[int]:
        """Return the packets' times, in decoding order."""
        return [packet.pts_ticks + (self._base_ticks or 0) for packet in self.packets]

    def _keep(self, packets: Sequence[EncodedPacket]) -> None:
        """Keep the packets before the seam's first. Later ones, which may refer to the seam, count as missing."""
        for packet in packets:
            is_after = packet.pts_ticks + (self._base_ticks or 0) > (self._last_ticks or 0)
            self._is_past = self._is_past or is_after
            if not self._is_past:
                self.packets.append(self._with_messages(packet))

    def _with_messages(self, packet: EncodedPacket) -> EncodedPacket:
        """Return the packet with its picture's messages, which thus depend on neither the decoder nor the encoder."""
        messages = self._messages.pop(packet.pts_ticks, ())
        if not messages:
            return packet
        return replace(packet, payload=with_messages(self._made.encoder.codec, packet.payload, messages))

    def _opened_encoder(self, device: WorkerDevice | None) -> EncoderSession[Any]:
        settings = self._made.encoder
        if device is None or not settings.on_device:
            return SoftwareEncoder(with_threads(settings, min(self._made.cores, usable_cores())))
        return device.open_encoder(settings, from_host=not self._on_device)

    def _timed(self, call: Callable[[], ResultT]) -> ResultT:
        began = time.perf_counter()
        result = call()
        self.encode_s += time.perf_counter() - began
        return result

    def _check_keyframes(self) -> None:
        """Check that the encoder has made exactly the requested keyframes."""
        pairs = zip(self.pts_ticks(), self.packets, strict=True)
        given = sorted(ticks for ticks, packet in pairs if packet.is_keyframe)
        if self._made.keyframes is not None and given != self._keyframes:
            wanted, name = len(self._keyframes), self._made.encoder.implementation
            message = (
                f"segment {self._made.segment}: {name} made {len(given)} keyframes, and not the {wanted} keyframes "
                "that the keyframe interval requires"
            )
            raise EncoderFailed(message, "Leave out --encoder-option and --keyframe-interval, or use another --codec.")

"""Finds changes in the format of a sound track: broadcasts switch channels and sample rates.

Packet headers show a change, or the container sends a new configuration with a packet. If codec and container cannot
announce a change, only the track's first packet is read.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from av.audio.codeccontext import AudioCodecContext
from av.audio.layout import AudioLayout

from ...actors.bitstream.sound_headers import HAVE_HEADERS, SoundHeader, aac_header, sound_header
from ...actors.media.av_stream import extradata
from ...actors.media.opening import side_data

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.stream import Stream

    from .tracks import SourceDescription, Track

_SEVERAL = 2
_MOST_SHOWN = 3
#: Containers that, like mp4, can send a new configuration with a packet
_NEW_CONFIGURATIONS = frozenset({"flv", "ogg"})


@dataclass(frozen=True, slots=True)
class SoundFormat:
    """A format of a track's sound, and when this format starts."""

    start_s: Fraction  #: On the source's clock
    sample_rate: int
    layout: str  #: FFmpeg's name
    header: SoundHeader  #: The decoder's configuration
    shown_s: Fraction | None = None  #: The start, counted from the first picture; None if unknown

    @property
    def channels(self) -> int:
        """The number of channels."""
        return AudioLayout(self.layout).nb_channels

    @property
    def name(self) -> str:
        """The format in words."""
        return f"{self.layout} at {self.sample_rate} Hz"


class SoundLives:
    """Watches an open source's packets for sound tracks whose format changes.

    With ``has_several``, an mp4 has several sample descriptions. Then, or with ``all_packets``, every sound track is
    watched; otherwise only tracks whose packets, or whose container, can announce a change.
    """

    def __init__(self, container: "InputContainer", *, has_several: bool = False, all_packets: bool = False) -> None:
        given = has_several or all_packets or container.format.name in _NEW_CONFIGURATIONS
        self._lives: dict[int, _Life] = {}
        for stream in container.streams:
            context = stream.codec_context
            if isinstance(context, AudioCodecContext) and context.sample_rate > 0:
                codec, stated = context.codec.canonical_name, extradata(stream)
                if given or has_headers(codec, stated):
                    self._lives[stream.index] = _Life(stream, context)

    def follows(self, stream: "Stream") -> bool:
        """Return whether this track's format can change; all its packets must then be read."""
        return stream.index in self._lives

    def see(self, packet: "Packet[Stream]") -> None:
        """Take the next packet of any track."""
        life = self._lives.get(packet.stream_index)
        if life is not None:
            life.see(packet)

    def formats(self, index: int) -> tuple[SoundFormat, ...]:
        """Return the formats of a track, by its stream index; () if its format never changes."""
        life = self._lives.get(index)
        return () if life is None or len(life.formats) < _SEVERAL else tuple(life.formats)

    def described(self, source: "SourceDescription") -> "SourceDescription":
        """Return a copy of the source's description that includes the formats found."""
        tracks = (replace(track, formats=self.formats(track.index)) for track in source.tracks)
        return replace(source, tracks=tuple(tracks))


def in_words(formats: tuple[SoundFormat, ...]) -> str:
    """Return the changes of a track's sound in words, with times after the first picture."""
    first, *later = formats
    if not later:
        return f"{first.name} in this part, but another format at the track's start"
    steps = [
        f"then {found.name}" if found.shown_s is None else f"from {float(found.shown_s):.3f} s on {found.name}"
        for found in later[:_MOST_SHOWN]
    ]
    more = [f"{len(later) - _MOST_SHOWN} more"] if len(later) > _MOST_SHOWN else []
    return ", ".join([first.name, *steps, *more])


def in_part(
    source: "SourceDescription", start_s: Fraction | None, end_s: Fraction | None, first_s: Fraction | None = None
) -> "SourceDescription":
    """Return the description of a part of the source, with only the sound formats of that part.

    ``first_s`` is the first picture's time on the source's clock; None if the clock is reset.
    """
    parts = (_track_in_part(track, start_s, end_s) for track in source.tracks)
    return replace(source, tracks=tuple(replace(part, formats=counted_from(part.formats, first_s)) for part in parts))


def counted_from(formats: tuple[SoundFormat, ...], first_s: Fraction | None) -> tuple[SoundFormat, ...]:
    """Return copies of the formats that have ``shown_s``; ``first_s`` is as in ``in_part``."""
    return tuple(replace(found, shown_s=None if first_s is None else found.start_s - first_s) for found in formats)


def _track_in_part(track: "Track", start_s: Fraction | None, end_s: Fraction | None) -> "Track":
    begins = [found.start_s for found in track.formats]
    if track.audio is None or not begins or begins != sorted(begins):
        return track  # if the clock steps back, times do not show which packets are in the part
    ends = [*begins[1:], None]
    kept = tuple(
        found
        for found, end in zip(track.formats, ends, strict=True)
        if (start_s is None or end is None or end > start_s)
        and (end_s is None or found.start_s < end_s or found is track.formats[0])
    )
    if {found.header for found in kept} == {track.formats[0].header}:
        return replace(track, formats=())
    audio = replace(track.audio, sample_rate=kept[0].sample_rate, layout=kept[0].layout, channels=kept[0].channels)
    return replace(track, formats=kept, audio=audio)


class _Life:
    def __init__(self, stream: "Stream", context: AudioCodecContext) -> None:
        self._codec = context.codec.canonical_name
        self._stated = context.sample_rate, context.layout.name
        self._configuration = extradata(stream)
        self._has_headers = has_headers(self._codec, self._configuration)
        self._coming: SoundFormat | None = None  #: A new format that one packet has had so far, perhaps due to damage
        self.formats: list[SoundFormat] = []

    def see(self, packet: "Packet[Stream]") -> None:
        given = self._given(packet)
        header = _header_of(self._codec, given) if given else self._header(packet)
        if header is None:
            return
        if self.formats and header == self.formats[-1].header:
            self._coming = None
        elif self._coming is not None and header == self._coming.header:
            self._add(self._coming)
        else:
            self._coming = self._format(packet, header)
            if given:
                self._add(self._coming)

    def _given(self, packet: "Packet[Stream]") -> bytes:
        """Return a packet's new configuration, or the track's for the first packet; b"" if there is none."""
        if (configuration := side_data(packet).get("new_extradata")) is not None:
            return bytes(configuration)
        return b"" if self.formats or self._has_headers else self._configuration

    def _header(self, packet: "Packet[Stream]") -> SoundHeader | None:
        is_read = self._has_headers and not packet.is_corrupt
        return sound_header(self._codec, bytes(packet)) if is_read else None

    def _add(self, found: SoundFormat) -> None:
        self.formats.append(found)
        self._coming = None

    def _format(self, packet: "Packet[Stream]", header: SoundHeader) -> SoundFormat:
        ticks = packet.pts if packet.pts is not None else packet.dts
        start_s = (ticks or 0) * Fraction(packet.time_base)
        rate, layout = self._stated
        if self.formats and header != self.formats[0].header:
            # If the decoder doubled the stated rate (SBR) at first, it does so throughout.
            is_doubled = self.formats[0].header.sample_rate * 2 == rate == header.sample_rate * 2
            rate = rate if is_doubled else header.sample_rate or rate
            layout = AudioLayout(header.layout).name if header.layout else layout
        return SoundFormat(start_s, rate, layout, header)


def has_headers(codec: str, configuration: bytes) -> bool:
    """Return whether each packet states channels and rate; for AAC, only if the container has no configuration."""
    return codec in HAVE_HEADERS and not (codec == "aac" and configuration)


def _header_of(codec: str, configuration: bytes) -> SoundHeader | None:
    """Return a parsed configuration; for codecs other than AAC, a value that only identifies the configuration."""
    if codec == "aac":
        return aac_header(configuration)
    return SoundHeader(0, "", tuple(configuration))

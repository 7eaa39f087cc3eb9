"""Writes a text track as WebVTT: a cue for each packet that shows something, at the package's times."""

from fractions import Fraction
from typing import Final

from ...actors.tracks.subtitles import read_cue, webvtt_cue, write_cue
from ...errors import ProofFailed
from .proven import packets_of
from .values import GivenTrack

MILLISECOND: Final = Fraction(1, 1000)  #: The tick of WebVTT
_CODEC: Final = "mov_text"


def webvtt_of(given: GivenTrack) -> str:
    """Return a text track of a proven file as a WebVTT file. Raises ProofFailed: the track is no text of mp4.

    The file names no ``X-TIMESTAMP-MAP``: its time 0 is then that of the other tracks (RFC 8216bis, 3.1.4).
    """
    cues = ["WEBVTT\n"]
    with packets_of(given) as (stream, packets):
        codec = stream.codec_context.name if stream.codec_context else stream.type
        if codec != _CODEC:
            message = f"track {given.name} in {given.path} has {codec}, and only {_CODEC} becomes WebVTT"
            raise ProofFailed(message, "Please report this error together with the file.")
        for packet in packets:
            text = read_cue(_CODEC, bytes(packet))
            if text:
                tick = Fraction(packet.time_base or 1) / MILLISECOND
                begin = max(0, round((packet.pts or 0) * tick))
                end = round(((packet.pts or 0) + (packet.duration or 0)) * tick)
                cues.append(webvtt_cue(begin, max(begin + 1, end), write_cue("webvtt", text).decode()))
    return "\n".join(cues)

"""Writes a text track as WebVTT: a cue for each packet that shows something, at the package's times."""

import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Final, NamedTuple

from ...actors.tracks.subtitles import plain_cue, read_cue, webvtt_cue, write_cue
from ...errors import ProofFailed
from .proven import packets_of
from .values import GivenTrack

MILLISECOND: Final = Fraction(1, 1000)  #: The tick of WebVTT
_CODEC: Final = "mov_text"
_TIMES: Final = re.compile(r"(\d+):(\d\d):(\d\d)\.(\d{3}) --> (\d+):(\d\d):(\d\d)\.(\d{3})")
_ADVICE: Final = "Please report this error together with the file."


class _Cue(NamedTuple):
    """A cue's times in milliseconds, and its text with line breaks."""

    begin: int
    end: int
    text: str


def webvtt_of(given: GivenTrack) -> str:
    """Return a text track of a proven file as a WebVTT file. Raises ProofFailed: its codec is not ``mov_text``.

    The file names no ``X-TIMESTAMP-MAP``: its time 0 is then that of the other tracks (RFC 8216bis, 3.1.4).
    """
    cues = [webvtt_cue(cue.begin, cue.end, write_cue("webvtt", cue.text).decode()) for cue in _cues(given)]
    return "\n".join(["WEBVTT\n", *cues])


def check_text(path: Path, given: GivenTrack) -> None:
    """Read a WebVTT file back, and compare it with the proven file's text. Raises ProofFailed: they differ."""
    head, *blocks = path.read_text(encoding="utf-8").split("\n\n")
    if head.strip() != "WEBVTT":
        raise ProofFailed(f"{path.name} does not begin with WEBVTT", _ADVICE)
    found, due = [_parsed(block) for block in blocks if block.strip()], list(_cues(given))
    for one, other in zip(found, due, strict=False):
        if one != other._replace(text=plain_cue(other.text)):
            raise ProofFailed(f"{path.name} shows {one}, where {other} is due", _ADVICE)
    if len(found) != len(due):
        raise ProofFailed(f"{path.name} has {len(found)} cues, and the proven file {len(due)}", _ADVICE)


def _cues(given: GivenTrack) -> Iterator[_Cue]:
    with packets_of(given) as (stream, packets):
        codec = stream.codec_context.name if stream.codec_context else stream.type
        if codec != _CODEC:
            message = f"track {given.name} in {given.path} has {codec}, and only {_CODEC} becomes WebVTT"
            raise ProofFailed(message, _ADVICE)
        for packet in packets:
            text = read_cue(_CODEC, bytes(packet))
            tick = Fraction(packet.time_base or 1) / MILLISECOND
            begin = max(0, round((packet.pts or 0) * tick))
            end = round(((packet.pts or 0) + (packet.duration or 0)) * tick)
            if text:
                yield _Cue(begin, max(begin + 1, end), text)


def _parsed(block: str) -> _Cue:
    """Return the cue in a block of WebVTT. Raises ProofFailed: the block is not a cue."""
    times, _, payload = block.strip("\n").partition("\n")
    stated = _TIMES.fullmatch(times)
    if stated is None:
        raise ProofFailed(f"{times!r} is not the time line of a cue", _ADVICE)
    fields = [int(each) for each in stated.groups()]
    begin, end = (((h * 60 + m) * 60 + s) * 1000 + ms for h, m, s, ms in (fields[:4], fields[4:]))
    return _Cue(begin, end, plain_cue(read_cue("webvtt", payload.encode())))

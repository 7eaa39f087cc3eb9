"""Subtitle tracks of bitmaps for tests, written by hand, without FFmpeg's encoders: PGS, DVB and VobSub."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.container import InputContainer, OutputContainer
from av.packet import Packet
from numpy.typing import NDArray

__all__ = ["Cue", "bars", "dvb_packet", "pgs_packet", "vobsub_packet", "with_subtitles"]

INK = ((0, 0, 0, 0), (235, 128, 128, 255), (40, 110, 240, 255), (81, 240, 90, 128))
"""Colours of a palette: Y', Cr and Cb of limited range, and alpha. The first is transparent."""


@dataclass(frozen=True, slots=True)
class Cue:
    """A packet of a track, shown from ``start_s`` on; the container states ``duration_s``."""

    start_s: Fraction
    payload: bytes
    duration_s: Fraction = Fraction(0)


def bars(width: int, height: int) -> NDArray[np.uint8]:
    """Return places in a palette of four: stripes that differ from row to row, with a hole in the middle."""
    down, across = np.mgrid[:height, :width]
    places = 1 + (across // 4 + down // 3) % 3
    places[height // 3 : height // 2, width // 3 : width // 2] = 0
    return np.asarray(places, np.uint8)


def pgs_packet(
    canvas: tuple[int, int], parts: Sequence[tuple[int, int, NDArray[np.uint8]]], palette: Sequence[Sequence[int]] = INK
) -> bytes:
    """Return a display set as in Matroska. ``parts`` are (x, y, places in the palette); an empty set clears."""
    objects = b"".join(struct.pack(">HBBHH", n, n, 0, x, y) for n, (x, y, _) in enumerate(parts))
    composition = struct.pack(">HHBHBBBB", *canvas, 0x10, 0, 0x80, 0, 0, len(parts)) + objects
    windows = b"".join(struct.pack(">BHHHH", n, x, y, *part.shape[::-1]) for n, (x, y, part) in enumerate(parts))
    segments = [(0x16, composition), (0x17, bytes([len(parts)]) + windows)]
    if parts:
        segments.append((0x14, bytes([0, 0]) + b"".join(bytes([n, *colour]) for n, colour in enumerate(palette))))
    for number, (_, _, places) in enumerate(parts):
        data = struct.pack(">HH", *places.shape[::-1]) + b"".join(_pgs_row(row) for row in places)
        segments.append((0x15, struct.pack(">HBB", number, 0, 0xC0) + len(data).to_bytes(3, "big") + data))
    return b"".join(struct.pack(">BH", kind, len(body)) + body for kind, body in [*segments, (0x80, b"")])


def _pgs_row(row: NDArray[np.uint8]) -> bytes:
    found, at = bytearray(), 0
    while at < len(row):
        colour, end = int(row[at]), at
        while end < len(row) and row[end] == colour and end - at < 0x3FFF:
            end += 1
        length = end - at
        long = bytes([0, 0xC0 | length >> 8, length & 0xFF, colour])
        found += bytes([colour] * length) if colour and length < 4 else long
        at = end
    return bytes(found + b"\0\0")


def dvb_packet(x: int, y: int, places: NDArray[np.uint8], *, version: int, timeout_s: int = 30) -> bytes:
    """Return a page of one region and one object; without samples, a page without a region, which clears the screen.

    Decoders ignore a page that has the ``version`` of the page before.
    """
    height, width = places.shape
    lines = [b"\x12" + row.tobytes() + b"\0\0" + b"\xf0" for row in np.where(places, places, 1)]
    top, bottom = b"".join(lines[::2]), b"".join(lines[1::2])
    page = struct.pack(">BB", timeout_s, version << 4 | 2 << 2)
    segments = [(0x10, page + (struct.pack(">BBHH", 0, 0, x, y) if places.size else b""))]
    if places.size:
        segments.append(
            (
                0x11,
                struct.pack(">BBHHBBBB", 0, 8, width, height, 3 << 5 | 3 << 2, 0, 0, 0) + struct.pack(">HHH", 0, 0, 0),
            )
        )
        entries = b"".join(
            bytes([n, 0x21, colour[0], colour[1], colour[2], 255 - colour[3]]) for n, colour in enumerate(INK)
        )
        segments.append((0x12, bytes([0, 0]) + entries))
        segments.append((0x13, struct.pack(">HBHH", 0, 0, len(top), len(bottom)) + top + bottom))
    segments.append((0x80, b""))
    return b"".join(struct.pack(">BBHH", 0x0F, kind, 1, len(body)) + body for kind, body in segments)


def vobsub_packet(x: int, y: int, places: NDArray[np.uint8], end_s: Fraction | None) -> bytes:
    """Return a subpicture unit of four colours; without ``end_s``, the unit states no end."""
    height, width = places.shape
    fields = [b"".join(_vobsub_row(row) for row in places[first::2]) for first in (0, 1)]
    begin = 4 + sum(map(len, fields))
    area = (x << 12 | x + width - 1).to_bytes(3, "big") + (y << 12 | y + height - 1).to_bytes(3, "big")
    shown = bytes([0x01, 0x03, 0x32, 0x10, 0x04, 0x8F, 0xF0, 0x05]) + area
    shown += struct.pack(">BHHB", 0x06, 4, 4 + len(fields[0]), 0xFF)
    following = begin + 4 + len(shown)
    control = struct.pack(">HH", 0, begin if end_s is None else following) + shown
    if end_s is not None:
        control += struct.pack(">HHBB", int(end_s * 90_000) // 1024, following, 0x02, 0xFF)
    return struct.pack(">HH", begin + len(control), begin) + b"".join(fields) + control


def _vobsub_row(row: NDArray[np.uint8]) -> bytes:
    """Return a row, padded to a byte: a run of up to 3 samples takes one nibble, up to 15 two, 63 three, 255 four."""
    nibbles: list[int] = []
    at = 0
    while at < len(row):
        colour, end = int(row[at]), at
        while end < len(row) and row[end] == colour and end - at < 255:
            end += 1
        code = (end - at) << 2 | colour
        nibbles += (
            [code >> shift & 15 for shift in (12, 8, 4, 0)]
            if code > 0xFF
            else ([0, code >> 4 & 15, code & 15] if code > 0x3F else [code >> 4, code & 15] if code > 0xF else [code])
        )
        at = end
    nibbles += [0] * (len(nibbles) % 2)
    return bytes(high << 4 | low for high, low in zip(nibbles[::2], nibbles[1::2], strict=True))


def with_subtitles(
    film: Path,
    path: Path,
    tracks: Sequence[tuple[str, str, Sequence[Cue]]],
    *,
    extradata: bytes = b"",
    tick_s: Fraction = Fraction(1, 1000),
) -> Path:
    """Copy a film of one track, with subtitle tracks beside it: (FFmpeg's decoder, language, packets).

    The film's container must state decoding times.
    """
    with av.open(str(film)) as before, av.open(str(path), "w") as after:
        assert isinstance(before, InputContainer)
        assert isinstance(after, OutputContainer)
        video = after.add_stream_from_template(before.streams.video[0])
        packets: list[tuple[Fraction, Packet]] = []
        for packet in before.demux(before.streams.video[0]):
            if packet.size:
                assert packet.dts is not None
                packet.stream = video
                packets.append((packet.dts * Fraction(packet.time_base), packet))
        for decoder, language, cues in tracks:
            stream = after.add_data_stream(decoder)
            stream.metadata["language"] = language
            stream.time_base = tick_s
            if decoder == "subrip":
                stream.codec_context.subtitle_header = b"[Script Info]\n"  # SubRip's unused encoder wants it
            if extradata:
                # Opened first: FFmpeg's encoders, which are not used, begin with extradata of their own.
                stream.codec_context.open()
                stream.codec_context.extradata = extradata
            for cue in cues:
                packet = Packet(cue.payload)
                packet.stream, packet.time_base = stream, tick_s
                packet.pts = packet.dts = round(cue.start_s / tick_s)
                packet.duration = round(cue.duration_s / tick_s)
                packets.append((cue.start_s, packet))
        for _, packet in sorted(packets, key=lambda each: each[0]):
            after.mux(packet)
    return path

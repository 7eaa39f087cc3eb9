"""Hashes of decoded pictures, with which neighbouring segments prove that they agree at their cut."""

import hashlib
from dataclasses import dataclass

import numpy as np
from av.video.frame import VideoFrame

DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class PictureHash:
    """The time and hash of a picture at a cut; the segments on both sides must agree on them."""

    ticks: int
    digest: bytes


def picture_hash(ticks: int, frame: VideoFrame) -> PictureHash:
    """Hash the format and the visible samples of every plane, without padding and metadata."""
    # Decoders that start in different ranges may call the same samples yuv420p or yuvj420p.
    layout = frame.format.name.replace("yuvj", "yuv")
    digest = hashlib.blake2b(f"{frame.width}x{frame.height} {layout}".encode(), digest_size=DIGEST_BYTES)
    for number, plane in enumerate(frame.planes):
        row_bytes = sum((c.bits + 7) // 8 * c.width for c in frame.format.components if c.plane == number)
        view = memoryview(plane)
        # The line size is negative if rows are stored, and thus hashed, bottom up; it is 0 for a palette, which has no
        # rows.
        pitch_bytes = abs(plane.line_size) or plane.buffer_size
        if len(view) >= plane.height * pitch_bytes:
            rows = np.frombuffer(view, np.uint8, plane.height * pitch_bytes).reshape(plane.height, pitch_bytes)
            digest.update(np.ascontiguousarray(rows[:, :row_bytes]).data)
            continue
        for offset in range(0, plane.height * pitch_bytes, pitch_bytes):
            digest.update(view[offset : offset + row_bytes])
    return PictureHash(ticks, digest.digest())

"""The file of an overlay picture: read whole, with a limit, and decoded as a PNG and nothing else."""

import hashlib
import io
import struct
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self

import av
import av.error
import numpy as np
from av.container import InputContainer
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from ...actors.media.location import is_local, local_path
from ...actors.media.storage_retry import try_again
from ...actors.media.stores import open_store
from ...errors import InputNotFound, InputUnreadable, redacted

MOST_BYTES: Final = 1 << 20
"""The largest file: its picture travels with each segment's work, so that workers need not see the file."""
_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_HEADER_BYTES: Final = 24
_AS_PNG: Final = "Save it as a PNG with 8 bits a channel; transparency is kept."


@dataclass(frozen=True)
class OverlayFile:
    """The bytes of a PNG file; ``name`` is for messages."""

    name: str
    content: bytes

    @classmethod
    def read(cls, place: str) -> Self:
        """Read a path or an fsspec URL.

        Raises:
            InputNotFound: there is nothing.
            InputUnreadable: it may not be read, is larger than ``MOST_BYTES``, or not a PNG.
        """
        name = redacted(place)
        try:
            content = _content(place)
        except FileNotFoundError:
            raise InputNotFound(f"there is no overlay picture {name}", "Check the path of --overlay.") from None
        except Exception as error:  # noqa: BLE001 - every store raises errors of its own
            message = f"the overlay picture {name} cannot be read: {getattr(error, 'strerror', None) or error}"
            raise InputUnreadable(message, "Check the path of --overlay, and who may read it.") from None
        if len(content) > MOST_BYTES:
            message = f"the overlay picture {name} is larger than {MOST_BYTES >> 20} MiB"
            raise InputUnreadable(message, "Make it smaller: it travels with every segment.")
        if not content.startswith(_SIGNATURE) or len(content) < _HEADER_BYTES:
            raise InputUnreadable(f"the overlay picture {name} is not a PNG file", _AS_PNG)
        return cls(name, content)

    @cached_property
    def sha256(self) -> str:
        """Its SHA-256, in hexadecimal."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def size(self) -> tuple[int, int]:
        """(width, height), as its header says; nothing is decoded for it."""
        width, height = struct.unpack(">II", self.content[16:_HEADER_BYTES])
        return width, height

    def samples(self) -> NDArray[np.uint8]:
        """Return its rows of R, G, B and alpha in 8 bits: (height, width, 4).

        Raises:
            InputUnreadable: it is damaged, or has more than 8 bits a channel.
        """
        try:
            container = av.open(io.BytesIO(self.content), format="png_pipe")
            if not isinstance(container, InputContainer):
                raise TypeError(container)
            with container:
                frame = next(container.decode(video=0))
            samples = _rgba(frame)
        except (av.error.FFmpegError, StopIteration, ValueError) as error:
            message = f"the overlay picture {self.name} cannot be decoded: {getattr(error, 'strerror', None) or error}"
            raise InputUnreadable(message, _AS_PNG) from error
        if samples is None:
            message = f"the overlay picture {self.name} is of a kind that is not taken here: {frame.format.name}"
            raise InputUnreadable(message, _AS_PNG)
        return samples


def deflated(samples: NDArray[np.uint8]) -> bytes:
    """Return rows of samples in few bytes."""
    return zlib.compress(samples.tobytes(), 9)


def _content(place: str) -> bytes:
    if is_local(place):
        with local_path(place).open("rb") as stream:
            return stream.read(MOST_BYTES + 1)
    store, path = open_store(place)
    content: bytes = try_again(lambda: store.cat_file(path, start=0, end=MOST_BYTES + 1))
    return content


def _rgba(frame: VideoFrame) -> NDArray[np.uint8] | None:
    """Return a picture's R, G, B and alpha, none of them converted; None where it has more than 8 bits."""
    kind, plane = frame.format.name, frame.planes[0]
    rows: NDArray[Any] = np.frombuffer(memoryview(plane), np.uint8).reshape(-1, plane.line_size)[: frame.height]
    if kind == "pal8":
        palette = np.frombuffer(memoryview(frame.planes[1]), "<u4")[:256]
        colours = np.stack([palette >> shift & 255 for shift in (16, 8, 0, 24)], axis=1).astype(np.uint8)
        return np.asarray(colours[rows[:, : frame.width]])
    channels = {"rgba": (0, 1, 2, 3), "rgb24": (0, 1, 2), "gray": (0, 0, 0), "ya8": (0, 0, 0, 1)}.get(kind)
    if channels is None:
        return None
    samples = rows[:, : frame.width * (max(channels) + 1)].reshape(frame.height, frame.width, -1)[..., channels]
    if len(channels) == 3:  # noqa: PLR2004 - no alpha: it covers all
        opaque = np.full((*samples.shape[:2], 1), 255, np.uint8)
        samples = np.concatenate([samples, opaque], axis=2)
    return np.asarray(samples)

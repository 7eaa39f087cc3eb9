"""The file of an overlay picture: a PNG, read whole, with a limit."""

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from io import BufferedReader
from typing import TYPE_CHECKING, Final, Self

from ....actors.limits import InputLimits
from ....actors.media.location import is_local, local_path
from ....actors.media.opening import open_regular
from ....actors.media.storage_retry import try_again
from ....actors.media.stores import open_store
from ....actors.segment.overlay_png import png_samples, png_size
from ....errors import InputNotFound, InputUnreadable, redacted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ....actors.segment.steps import Size

MOST_BYTES: Final = 1 << 20  #: It travels with each segment's work, so that workers need not see the file


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
            InputTooLarge: its header states more pixels than a source's pictures may have.
            InputUnreadable: it may not be read, is not a regular file, is larger than ``MOST_BYTES``, or not a PNG.
        """
        name = redacted(place)
        content = content_of(place, "overlay picture", "--overlay", MOST_BYTES)
        width, height = png_size(content, name)
        InputLimits.of(os.environ).check_size(f"the overlay picture {name}", width, height)
        return cls(name, content)

    @cached_property
    def sha256(self) -> str:
        """Its SHA-256, in hexadecimal."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def size(self) -> "Size":
        """(width, height), as its header says; nothing is decoded for it."""
        return png_size(self.content, self.name)

    def samples(self) -> "NDArray[np.uint8]":
        """Return (height, width, 4) of R, G, B and alpha in 8 bits. Raises InputUnreadable: damaged, or deeper."""
        return png_samples(self.content, self.name)


def content_of(place: str, what: str, flag: str, most_bytes: int) -> bytes:
    """Return the bytes of a small file, a path or an fsspec URL; ``what`` it is and its ``flag`` are for messages.

    Raises InputNotFound; InputUnreadable: it may not be read, is not a regular file, or is over ``most_bytes``.
    """
    name = redacted(place)
    try:
        content = _content(place, most_bytes + 1)
    except FileNotFoundError:
        raise InputNotFound(f"there is no {what} {name}", f"Check the path of {flag}.") from None
    except InputUnreadable:
        raise
    except Exception as error:  # every store raises errors of its own
        message = f"the {what} {name} cannot be read: {getattr(error, 'strerror', None) or error}"
        raise InputUnreadable(message, f"Check the path of {flag}, and who may read it.") from error
    if len(content) > most_bytes:
        message = f"the {what} {name} is larger than {most_bytes >> 20} MiB"
        raise InputUnreadable(message, f"Give a smaller one with {flag}.")
    return content


def _content(place: str, most_bytes: int) -> bytes:
    if is_local(place):
        with BufferedReader(open_regular(local_path(place))) as stream:
            return stream.read(most_bytes)
    store, path = open_store(place)
    content: bytes = try_again(lambda: store.cat_file(path, start=0, end=most_bytes))
    return content

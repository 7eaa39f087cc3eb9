"""The PNG file of an overlay picture, read in full up to a limit."""

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
from ....actors.segment.overlay import png_samples, png_size
from ....errors import InputNotFound, InputUnreadable, redacted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ....actors.segment.steps import Size

#: The largest file: it is sent with each segment's work, because workers may be unable to read it
MOST_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class OverlayFile:
    """The bytes of a PNG file; ``name`` is for messages."""

    name: str
    content: bytes

    @classmethod
    def read(cls, place: str) -> Self:
        """Read a path or an fsspec URL.

        Raises:
            InputNotFound: the file does not exist.
            InputTooLarge: the picture has more pixels than a source's pictures may have.
            InputUnreadable: the file cannot be read, is not a regular file, is larger than ``MOST_BYTES``, or is not a
                PNG.
        """
        name = redacted(place)
        content = content_of(place, "overlay picture", "--overlay", MOST_BYTES)
        width, height = png_size(content, name)
        InputLimits.of(os.environ).check_size(f"the overlay picture {name}", width, height)
        return cls(name, content)

    @cached_property
    def sha256(self) -> str:
        """The file's SHA-256, in hexadecimal."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def size(self) -> "Size":
        """(width, height), from the PNG's header."""
        return png_size(self.content, self.name)

    def samples(self) -> "NDArray[np.uint8]":
        """Return (height, width, 4) of R, G, B and alpha in 8 bits.

        Raises InputUnreadable: the PNG is damaged, or has over 8 bits.
        """
        return png_samples(self.content, self.name)


def content_of(place: str, what: str, flag: str, most_bytes: int) -> bytes:
    """Return the bytes of a small file at a path or fsspec URL. Messages name the file by ``what`` and ``flag``.

    Raises InputNotFound; InputUnreadable: the file cannot be read, is not a regular file, or is over ``most_bytes``.
    """
    name = redacted(place)
    try:
        content = _content(place, most_bytes + 1)
    except FileNotFoundError:
        raise InputNotFound(f"there is no {what} {name}", f"Check the path of {flag}.") from None
    except InputUnreadable:
        raise
    except Exception as error:  # fsspec's stores have no common base class of errors
        message = f"the {what} {name} cannot be read: {getattr(error, 'strerror', None) or error}"
        raise InputUnreadable(message, f"Check the path of {flag}, and the permissions of the file.") from error
    if len(content) > most_bytes:
        message = f"the {what} {name} is larger than {most_bytes >> 20} MiB"
        raise InputUnreadable(message, f"Name a smaller file with {flag}.")
    return content


def _content(place: str, most_bytes: int) -> bytes:
    if is_local(place):
        with BufferedReader(open_regular(local_path(place))) as stream:
            return stream.read(most_bytes)
    store, path = open_store(place)
    content: bytes = try_again(lambda: store.cat_file(path, start=0, end=most_bytes))
    return content

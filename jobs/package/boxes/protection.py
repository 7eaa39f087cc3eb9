"""The description of an encrypted track in its sample entry (ISO/IEC 14496-12, 8.12; ISO/IEC 23001-7, 8.2)."""

import struct
from typing import NamedTuple

from ....errors import ProofFailed
from .codec_strings import entry_boxes, inner_boxes, is_sound
from .fragments import box

_ADVICE = "Nothing was published. Please report this error together with the input and the options."
_KID_AT = 8  # in tenc, after version, flags, a reserved byte, pattern, whether samples are encrypted, and IVs' size


class Protection(NamedTuple):
    """What a sample entry says of encryption."""

    entry: bytes  #: The sample entry with the kind that a clear track has; it still holds ``sinf``
    scheme: str
    kid: bytes


def protected_entry(entry: bytes, information: bytes) -> bytes:
    """Turn a clear track's sample entry into that of an encrypted track; ``information`` is the content of ``sinf``."""
    return box(b"enca" if is_sound(entry) else b"encv", entry[8:], box(b"sinf", information))


def stated_protection(entry: bytes) -> Protection:
    """Read the sample entry of an encrypted track. Raises ProofFailed: it does not say that samples are encrypted."""
    found = inner_boxes(entry_boxes(entry).get(b"sinf", b""))
    terms = inner_boxes(found.get(b"schi", b"")).get(b"tenc", b"")
    kind, scheme = found.get(b"frma", b""), found.get(b"schm", b"")[4:8]
    if len(kind) != struct.calcsize("4s") or not scheme or terms[6:7] != b"\1":
        raise ProofFailed("the header does not say that the track is encrypted", _ADVICE)
    return Protection(entry[:4] + kind + entry[8:], scheme.decode("latin-1"), terms[_KID_AT : _KID_AT + 16])

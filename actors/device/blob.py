"""Bytes that many pieces of work need, such as a network: named by what is in them, so that they travel once."""

import hashlib
from dataclasses import dataclass, field
from typing import Self

__all__ = ["Blob"]


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes and what tells them from others. Two parcels are equal if their contents are.

    A pool may leave the content out of the work that has it and send it ahead, once to each machine; wherever work runs
    it is there.
    """

    digest: str
    content: bytes = field(repr=False, compare=False)

    @classmethod
    def of(cls, content: bytes) -> Self:
        """Return a parcel of ``content``."""
        return cls(hashlib.sha256(content).hexdigest(), content)

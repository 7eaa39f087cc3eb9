"""Bytes that many pieces of work need, such as a network: named by their content, so that they are sent once."""

import hashlib
from dataclasses import dataclass, field
from typing import Self


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes and their digest; blobs are equal if their contents are.

    A pool may strip the content from the work and send it ahead, once to each machine; running work has it.
    """

    digest: str
    content: bytes = field(repr=False, compare=False)

    @classmethod
    def of(cls, content: bytes) -> Self:
        """Return the blob of ``content``."""
        return cls(hashlib.sha256(content).hexdigest(), content)

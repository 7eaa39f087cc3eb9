"""Packs work for a worker: pickled without its blobs, which are sent separately, once to each machine."""

import io
import pickle
from collections.abc import Callable, Sequence
from typing import Any

from ...actors.device.work import Blob, Work
from ...errors import UsageError


class BlobCache:
    """Packs one client's work, and sends each blob ahead once; it is kept until the client is gone.

    ``send`` stores bytes where every machine can fetch them, and returns a reference for calls of a worker.
    """

    def __init__(self, send: Callable[[bytes], Any]) -> None:
        self._send = send
        self._sent: dict[str, Any] = {}

    def pack(self, work: Work[Any]) -> tuple[bytes, tuple[Any, ...]]:
        """Return ``work`` pickled, and the references of its blobs.

        Raises:
            UsageError: it does not pickle.
        """
        file = io.BytesIO()
        packer = _Packer(file)
        try:
            packer.dump(work)
        except Exception as error:  # whatever a user's class raises when it is pickled
            message = f"{work.label} cannot be pickled: {type(error).__name__}: {error}"
            raise UsageError(message, "Work must be a value of importable classes.") from error
        return file.getvalue(), tuple(map(self._address, packer.blobs.values()))

    def _address(self, blob: Blob) -> Any:
        if blob.digest not in self._sent:
            self._sent[blob.digest] = self._send(blob.content)
        return self._sent[blob.digest]


def unpack(packed: bytes, contents: Sequence[bytes]) -> Work[Any]:
    """Return the work, given its blobs' contents in order; errors of its classes are raised as they are."""
    work: Work[Any] = _Unpacker(io.BytesIO(packed), contents).load()
    return work


class _Packer(pickle.Pickler):
    """Replaces each blob by its place among the contents, and its digest."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.blobs: dict[str, Blob] = {}

    def persistent_id(self, value: object) -> tuple[int, str] | None:
        if not isinstance(value, Blob):
            return None
        self.blobs.setdefault(value.digest, value)
        return list(self.blobs).index(value.digest), value.digest


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, contents: Sequence[bytes]) -> None:
        super().__init__(file)
        self._contents = contents

    def persistent_load(self, place: tuple[int, str]) -> Blob:
        index, digest = place
        return Blob(digest, self._contents[index])

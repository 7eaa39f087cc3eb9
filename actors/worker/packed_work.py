"""Work as bytes, which can pass through processes that lack its classes.

Work is pickled without its blobs, which are sent once to each machine.
"""

import io
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ...errors import CodecfleetError, UsageError
from ..device.work import Blob, Work, WorkContext


class BlobCache:
    """Packs one client's work, and sends each blob once; ``send`` returns a reference to pass to a worker."""

    def __init__(self, send: Callable[[bytes], Any]) -> None:
        self._send = send
        self._sent: dict[str, Any] = {}

    def pack(self, work: Work[Any]) -> tuple[bytes, tuple[Any, ...]]:
        """Return ``work`` pickled, and references to its blobs. Raises UsageError: the work cannot be pickled."""
        file = io.BytesIO()
        packer = _Packer(file)
        try:
            packer.dump(work)
        except Exception as error:  # a user's class may raise any error when it is pickled
            message = f"{work.label} cannot be pickled: {type(error).__name__}: {error}"
            raise UsageError(message, "Work must be a value of importable classes.") from error
        return file.getvalue(), tuple(map(self._reference, packer.blobs.values()))

    def _reference(self, blob: Blob) -> object:
        if blob.digest not in self._sent:
            self._sent[blob.digest] = self._send(blob.content)
        return self._sent[blob.digest]


def unpack(packed: bytes, contents: Sequence[bytes]) -> Work[Any]:
    """Return the work, given its blobs in order. Raises UsageError, or a CodecfleetError raised while unpickling."""
    try:
        work: Work[Any] = _Unpacker(io.BytesIO(packed), contents).load()
    except CodecfleetError:
        raise
    except Exception as error:  # a user's class may raise any error when it is unpickled
        message = f"the work cannot be unpickled on the worker: {type(error).__name__}: {error}"
        advice = "Define the work's class in a module that is installed on every worker's machine."
        raise UsageError(message, advice) from error
    return work


class _Packer(pickle.Pickler):
    """Replaces each blob by its index and digest."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWork(Work[Any]):
    """Pickled work, with its blobs in order; ``of_file`` is the ``file`` of the work."""

    of_file: str
    packed: bytes
    blobs: tuple[Blob, ...] = ()

    @property
    def file(self) -> str:
        """The work's own ``file``."""
        return self.of_file

    def run(self, context: WorkContext) -> object:
        """Unpack the work, and run it; raises the errors of both steps."""
        return unpack(self.packed, [blob.content for blob in self.blobs]).run(context)


def base_fields(work: Work[Any]) -> dict[str, Any]:
    """Return the values of the fields that all work has, by name, for a ``PackedWork`` of this work."""
    return {"of_file": work.file, **{field.name: getattr(work, field.name) for field in fields(Work)}}


def packed_work(base: dict[str, Any], packed: bytes, blobs: Sequence[Blob]) -> PackedWork:
    """Return packed work that has the fields of ``base_fields``."""
    return PackedWork(**base, packed=packed, blobs=tuple(blobs))

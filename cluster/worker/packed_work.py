"""Work as bytes: it passes through processes that need not have its classes, and is unpacked where it runs."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from ...actors.device.work import Blob, Work, WorkContext
from .blobs import unpack
from .outcome import unreadable_work


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWork(Work[Any]):
    """Pickled work, with the blobs that it was pickled without, in order; ``of_file`` is the work's ``file``."""

    of_file: str
    packed: bytes
    blobs: tuple[Blob, ...] = ()

    @property
    def file(self) -> str:
        """Name what the work works on."""
        return self.of_file

    def run(self, context: WorkContext) -> Any:
        """Run the work.

        Raises:
            UsageError: its class is not installed here.
            CodecfleetError: the work's own.
        """
        try:
            work = unpack(self.packed, [blob.content for blob in self.blobs])
        except Exception as error:  # whatever a user's class raises when it is unpickled
            raise unreadable_work(error) from error
        return work.run(context)


def base_fields(work: Work[Any]) -> dict[str, Any]:
    """Return what every work has, by name: what a pool may read of it."""
    return {"of_file": work.file, **{field.name: getattr(work, field.name) for field in fields(Work)}}


def packed_work(base: dict[str, Any], packed: bytes, blobs: Sequence[Blob]) -> PackedWork:
    """Return packed work with the fields that ``base_fields`` returned."""
    return PackedWork(**base, packed=packed, blobs=tuple(blobs))

"""A job that was killed after its output got its name, and before its work was removed."""

import hashlib

from ...actors.media.location import is_local, local_path
from ...actors.media.stores import open_store
from ..join.proof import file_sha256
from ..report.report import Report, Resumed
from ..request.spec import TranscodeSpec
from .header import asks_again
from .records import Complete
from .replay import Replay


def published(found: Replay, spec: TranscodeSpec) -> Report | None:
    """Return the report of the job that has published what ``spec`` asks for; None where that is not certain.

    The output must be the very file that the journal notes, and the source what it was. Reads the output, if it has the
    noted size.
    """
    if found.header is None or found.complete is None or not asks_again(found.header, spec):
        return None
    if not _is_there(spec.output, found.complete):
        return None
    try:
        report = Report.model_validate(dict(found.complete.report))
    except ValueError:
        return None  # written by a checkout between two versions
    segments = tuple(each.model_copy(update={"restored": True}) for each in report.segments)
    resumed = Resumed(restored=found.segments_done, redone=0, published=True)
    return report.model_copy(update={"segments": segments, "resumed": resumed})


def _is_there(output: str, noted: Complete) -> bool:
    try:
        if is_local(output):
            path = local_path(output)
            return path.stat().st_size == noted.output_bytes and file_sha256(path) == noted.output_sha256
        store, name = open_store(output)
        if store.size(name) != noted.output_bytes:
            return False
        with store.open(name, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == noted.output_sha256
    except Exception:  # noqa: BLE001 - stores raise errors of their own; an output that cannot be read is not certain
        return False

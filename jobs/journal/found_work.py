"""Finds unfinished work, reports its state, and removes work without an owner.

All calls raise InputNotFound: the place does not exist or has no work; StorageFailed: the work cannot be read.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from ...actors.media.location import is_local, local_path
from ...actors.media.stores import open_store
from ...errors import InputNotFound, JournalRefused, OutputInUse, OutputUnwritable, StorageFailed
from ..join.owner import OWNER_FILE, Owner
from ..join.publish import WORK_SUFFIX, work_folder
from ..join.spool import RENDITIONS, Spool
from ..request.spec import TranscodeSpec
from .header import spec_of
from .journal import Replay, replay
from .records import read_stream
from .stores import FolderStore, ObjectStore, Store, StoreLease, read_owner
from .work import place_of, published


class WorkState(Enum):
    """The state of one job's work."""

    RUNNING = "running"  #: a job is running
    UNFINISHED = "unfinished"  #: ``codecfleet resume`` continues it
    USELESS = "useless"  #: no segment is finished
    UNREADABLE = "unreadable"  #: the work belongs to another user


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundWork:
    """The unfinished work of one job."""

    work: str  #: the path or URL of the work location
    state: WorkState
    owner: Owner | None
    found: Replay
    size_bytes: int
    age_s: float | None  #: the time since the last write; None if the store does not state it

    def to_json(self) -> dict[str, Any]:
        """Return the work as plain JSON values, which docs/cli.md describes."""
        header = self.found.header
        return {
            "work": self.work,
            "state": self.state.value,
            "output": header.output if header else None,
            "source": header.spec.get("source") if header else None,
            "encoder_kind": header.encoder.get("kind") if header else None,
            "segments": header.segments if header else None,
            "segments_done": self.found.segments_done,
            "segments_in_flight": len(self.found.in_flight),
            "size_bytes": self.size_bytes,
            "age_s": None if self.age_s is None else round(self.age_s),
            "host": self.owner.host if self.owner else None,
            "pid": self.owner.pid if self.owner else None,
            "damage": self.found.broken,
        }


def find_work(place: str) -> list[FoundWork]:
    """Return the work at ``place``: all work below a folder or URL, or the work of a work location or an output."""
    return [_look(work) for work in _works(place)]


def names_work(place: str) -> bool:
    """Return whether a place is one work location, or an output with unfinished work."""
    return _is_work(_of_output(place))


def work_at(work: str) -> FoundWork:
    """Return the work at a location, or for the output with that name."""
    found = find_work(work)
    if len(found) != 1 or not names_work(work):
        message = f"{work} has no unfinished work"
        raise InputNotFound(message, "`codecfleet jobs unfinished FOLDER` shows what is unfinished there.")
    return found[0]


def unfinished_spec(work: str) -> TranscodeSpec:
    """Return the request of the job at a work location, or for the output with that name, to run the job again.

    Raises:
        InputNotFound: there is no work, or it was moved after the job began.
        JournalRefused: the job was begun by a version of codecfleet that has other options.
    """
    there = work_at(work)
    work, header = there.work, there.found.header
    if header is None:
        raise InputNotFound(f"{work} has no journal that can be read", "Start the job again with its own command.")
    try:
        spec = spec_of(header)
    except ValueError as error:
        message = f"{work} was begun by codecfleet {header.job.get('codecfleet')}, which has other options"
        raise JournalRefused(
            message, "Continue the job with that version, or start it again with its own command."
        ) from error
    if _normal(place_of(spec)) != _normal(work):
        message = f"{work} was at {place_of(spec)} when its job began"
        raise InputNotFound(message, "Move the work back, or start the job there with its own command.")
    return spec


def is_published(spec: TranscodeSpec) -> bool:
    """Return whether an earlier run published this job's output, but was killed before it removed the work."""
    if spec.no_journal:
        return False
    try:
        return published(work_at(place_of(spec)).found, spec) is not None
    except (InputNotFound, StorageFailed):
        return False


def remove_record(work: str) -> None:
    """Remove the record of a published output at its work location, unless another job's work is there now.

    Raises:
        OutputInUse: another job for the output is running.
        OutputUnwritable, StorageFailed: the location cannot be written.
    """
    if not is_local(work):
        stores: list[Store] = [ObjectStore(work)]
    elif local_path(work).is_dir():
        stores = [FolderStore(each) for each in _shown(local_path(work))]
    else:
        return
    if not any(each.has_payloads() for each in stores):
        _remove(work)


def remove_work(place: str) -> tuple[list[str], list[str]]:
    """Remove the work at a place. Return the removed work, and the work that a living job or another user owns."""
    removed: list[str] = []
    kept: list[str] = []
    for work in _works(place, of_ladders=True):
        try:
            _remove(work)
            removed.append(work)
        except (OutputInUse, OutputUnwritable):
            kept.append(work)
    return removed, kept


def _of_output(place: str) -> str:
    """Return the work folder of the output ``place`` if it exists; otherwise ``place``, a work location or a folder."""
    if _is_work(place) or (is_local(place) and local_path(place).is_dir()):
        return place
    work = work_folder(place)
    return str(work) if work.is_dir() else place


def _works(place: str, *, of_ladders: bool = False) -> list[str]:
    """Return the work at a place; instead of a ladder's work, that of its renditions, unless ``of_ladders``."""
    place = _of_output(place)
    if _is_work(place) and (not is_local(place) or local_path(place).is_dir()):
        return [place]
    if is_local(place):
        return [str(path) for path in _local_works(local_path(place), of_ladders=of_ladders)]
    try:
        files, root = open_store(place)
        names = sorted(path.rstrip("/") for path in files.ls(root, detail=False))
    except FileNotFoundError:
        raise _not_there(place) from None
    except Exception as error:  # each kind of store raises different errors
        raise StorageFailed(f"{place} cannot be listed: {error}", "Check the address and the credentials.") from error
    return [f"{place.rstrip('/')}/{name.rpartition('/')[2]}" for name in names if _is_work(name)]


def _local_works(folder: Path, *, of_ladders: bool) -> Iterator[Path]:
    beside = [work_folder(str(folder))] if folder.name else []  # of a ladder or stills with its name
    try:
        for path in (*filter(Path.is_dir, beside), *sorted(filter(_is_local_work, folder.iterdir()))):
            yield from (path,) if of_ladders else _shown(path)
    except (FileNotFoundError, NotADirectoryError):
        raise _not_there(str(folder)) from None
    except OSError as error:
        raise StorageFailed(f"{folder} cannot be listed: {error.strerror}", "Check its permissions.") from error


def _shown(work: Path) -> list[Path]:
    """Return the work folders of a ladder's renditions; otherwise, or if they cannot be read, ``work`` itself."""
    with suppress(OSError):
        return sorted(filter(_is_local_work, (work / RENDITIONS).rglob("*"))) or [work]
    return [work]


def _is_local_work(path: Path) -> bool:
    return _is_work(path.name) and path.is_dir()


def _is_work(place: str) -> bool:
    return place.rstrip("/").endswith(WORK_SUFFIX)


def _not_there(place: str) -> InputNotFound:
    message = f"there is no folder {place}, nor unfinished work on an output of that name"
    return InputNotFound(message, "`codecfleet jobs unfinished FOLDER` shows what is unfinished there.")


def _normal(work: str) -> str:
    return str(local_path(work).absolute()) if is_local(work) else work.rstrip("/")


def _look(work: str) -> FoundWork:
    if is_local(work):
        try:
            return _look_in_folder(local_path(work))
        except (PermissionError, StorageFailed) as error:
            if not isinstance(error.__cause__ or error, PermissionError):
                raise
            state = WorkState.UNREADABLE
            return FoundWork(work=work, state=state, owner=None, found=Replay(), size_bytes=0, age_s=None)
    store = ObjectStore(work)
    owner, renewed_s = read_owner(store)
    found = replay(read_stream(store.read()))
    state = _state(found, owner, time.time() - renewed_s)
    return FoundWork(work=work, state=state, owner=owner, found=found, size_bytes=store.size_bytes, age_s=None)


def _look_in_folder(folder: Path) -> FoundWork:
    found, now_s = replay(read_stream(FolderStore(folder).read())), time.time()
    try:
        entries = {path.name: path.lstat() for path in folder.iterdir()}
        owner = Owner.of(folder) if OWNER_FILE in entries else None
    except FileNotFoundError:  # the job that owns the work has just ended
        entries, owner = {}, None
    renewed_s = entries[OWNER_FILE].st_mtime if OWNER_FILE in entries else 0.0
    return FoundWork(
        work=str(folder),
        state=_state(found, owner, now_s - renewed_s),
        owner=owner,
        found=found,
        size_bytes=sum(each.st_size for each in entries.values()),
        age_s=now_s - max((each.st_mtime for each in entries.values()), default=now_s),
    )


def _state(found: Replay, owner: Owner | None, lease_age_s: float) -> WorkState:
    if owner is not None and owner.lives(Owner.here(), lease_age_s):
        return WorkState.RUNNING
    return WorkState.UNFINISHED if found.encoded else WorkState.USELESS


def _remove(work: str) -> None:
    if not is_local(work):
        store = ObjectStore(work)
        lease = StoreLease(store, work)
        lease.acquire()
        store.remove()
        lease.release()
        return
    spool = Spool(local_path(work), work)
    spool.open(discards=True)
    spool.remove()

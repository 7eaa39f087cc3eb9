"""Where a job works: its spool, its journal, who owns them, and what becomes of them at its end."""

from contextlib import ExitStack
from typing import Protocol

from ...actors.media.location import is_local, local_path
from ...errors import JournalRefused, OutputInUse, OutputUnwritable, StorageFailed
from ..join.owner import FolderOwner
from ..join.publish import work_folder, work_name
from ..join.spool import Spool, SpooledSegment, payload_name, unwritable
from ..report.report import Report
from ..request.spec import TranscodeSpec
from .header import difference
from .journal import Journal
from .lease import StoreLease
from .published import published
from .records import Complete, Encoded, JobHeader, read_stream
from .replay import Replay, replay
from .stores import FolderStore, ObjectStore, Store


class _Ownership(Protocol):
    def holds(self) -> bool:
        """Return whether it is still owned."""
        ...

    def release(self) -> None:
        """Let go."""
        ...


class WorkPlace:
    """One job's spool and journal, owned from ``open`` to ``keep`` or ``remove``. Its calls block."""

    def __init__(self, spec: TranscodeSpec) -> None:
        self._spec = spec
        self._elsewhere = None if spec.work is None or spec.no_journal else place_of(spec)
        self._owner: _Ownership | None = None
        self._store = Store()
        folder = work_folder(spec.output)
        payloads = None
        if self._elsewhere is not None and is_local(self._elsewhere):
            payloads = local_path(self._elsewhere)
        self.spool = Spool(folder, spec.output, payloads=payloads, is_durable=not spec.no_journal)
        self.journal = Journal(self._store)
        self.found = Replay()
        self._is_open = False

    @property
    def location(self) -> str:
        """Where the journal is; "" without one."""
        return "" if self._spec.no_journal else place_of(self._spec)

    def open(self) -> None:
        """Own the work location and read its journal.

        Raises:
            JournalRefused: work of this output lies where this job does not look for it.
            OutputInUse: another job writes the same output.
            OutputUnwritable: the location cannot be made.
            StorageFailed: it cannot be read.
        """
        spec = self._spec
        continues = self._elsewhere is None and not spec.no_journal
        self.spool.open(continues=continues, discards=spec.restart)
        with ExitStack() as stack:
            stack.callback(self.spool.remove if not continues else self.spool.keep)
            self._store, self._owner = self._opened()
            stack.callback(self._release)
            self.journal = Journal(self._store)
            self.found = self.journal.open()
            if spec.restart:
                self.forget()
            self._is_open = True
            stack.pop_all()

    def refusal(self, header: JobHeader, *, encoder: bool = True) -> JournalRefused | None:
        """Return why the job of this header cannot go on with what was found; None where it can, or nothing was."""
        if self.found.header is None or not (differs := difference(self.found.header, header, encoder=encoder)):
            return None
        message = f"unfinished work for {self._spec.output} cannot be continued: {differs.reason}"
        otherwise = f", or {differs.continued_by}" if differs.continued_by else ""
        return JournalRefused(message, f"Use --restart to start over{otherwise}.")

    def restore(self, header: JobHeader) -> Replay:
        """Begin the job of this header, or go on with what was found of it; payloads that are damaged are left out.

        Raises:
            JournalRefused: what was found is of another job.
            StorageFailed: the store fails.
        """
        if (refusal := self.refusal(header)) is not None:
            raise refusal
        if self.found.header is None:
            self.journal.begin(header)
            return self.found
        spooled = {number: self.spooled(each) for number, each in self.found.encoded.items()}
        whole = {number: each for number, each in spooled.items() if self._is_whole(each)}
        # What is damaged goes too: it may be a folder, where the segment that is done again could not be written.
        self._store.sweep([each.path.name for each in whole.values()])
        return self.found.without(frozenset(spooled.keys() - whole.keys()))

    def forget(self) -> None:
        """Start over: what was found is of no use."""
        self.found = Replay()

    def spooled(self, record: Encoded) -> SpooledSegment:
        """Return the segment of a record; its payload may be damaged or gone."""
        path = self.spool.payloads / payload_name(record.segment, record.payload_sha256)
        return SpooledSegment(record.facts, path, record.payload_bytes, record.payload_sha256)

    def encoded(self, record: Encoded) -> None:
        """Keep a segment that was spooled, and note it. Raises StorageFailed."""
        if self.journal.keeps:
            self._store.put(self.spooled(record).path)
            self.journal.encoded(record)

    def complete(self, report: Report) -> None:
        """Note the output that gets its name next. Raises StorageFailed."""
        if self.journal.keeps:
            fields = report.model_dump(mode="json")
            self.journal.complete(Complete(report.output_bytes, report.proof.output_sha256, fields))

    def published(self) -> Report | None:
        """Return the report of an earlier run that has published the output; None where none did, or it is another."""
        return published(self.found, self._spec)

    def check(self) -> None:
        """Make sure that the output is still this job's to write.

        Raises:
            OutputInUse: another job has taken it over.
        """
        self.spool.check()
        if self._owner is not None and not self._owner.holds():
            message = f"{self.location} is no longer this job's: another job has taken it over"
            raise OutputInUse(message, "Nothing was published. Wait for the other job, or start again.")

    def keep(self) -> int:
        """Let go of everything but what the job can be continued from; return how many segments that are.

        Where that is nothing, nothing is left. Never raises.
        """
        if not self._is_open:
            return 0
        try:
            done = replay(read_stream(self._store.read())).segments_done
        except StorageFailed:
            done = self.found.segments_done  # the store is away, with what is in it
        if not done:
            self.remove()
            return 0
        if self._elsewhere is None:
            self.spool.keep()
        else:
            self.spool.remove()
        self._release()
        return done

    def remove(self) -> None:
        """Delete everything; never raises."""
        if not self._is_open:
            return
        if self._elsewhere is not None:
            # The journal goes last: from it a run that finds the output published knows that it may clean up.
            self.spool.remove()
        self._store.remove()
        if isinstance(self._owner, FolderOwner):
            self._owner.remove()
        self._release()
        self.spool.remove()

    def _opened(self) -> tuple[Store, _Ownership | None]:
        if self._spec.no_journal:
            return Store(), None
        if self._elsewhere is None:
            return FolderStore(self.spool.folder), None
        if not is_local(self._elsewhere):
            store = ObjectStore(self._elsewhere)
            lease = StoreLease(store, self._spec.output)
            try:
                lease.acquire()
            except StorageFailed as error:
                if isinstance(error.__cause__, FileNotFoundError | PermissionError):
                    raise OutputUnwritable(error.message, error.next_step) from error
                raise
            return store, lease
        owner = FolderOwner(self.spool.payloads, self._spec.output)
        try:
            self.spool.payloads.parent.mkdir(parents=True, exist_ok=True)
            owner.acquire()
        except OSError as error:
            raise unwritable(error, self.spool.payloads.parent) from error
        return FolderStore(self.spool.payloads), owner

    def _is_whole(self, segment: SpooledSegment) -> bool:
        """Return whether a payload is what was written; it is brought here if it is not."""
        if not _has(segment):
            self._store.fetch(segment.path)
        return _has(segment)

    def _release(self) -> None:
        if self._owner is not None:
            self._owner.release()


def place_of(spec: TranscodeSpec) -> str:
    """Return where the journal of a job lies: beside its output, or where it was asked for."""
    if spec.work is None:
        return str(work_folder(spec.output))
    return f"{spec.work.rstrip('/')}/{work_name(spec.output)}"


def _has(segment: SpooledSegment) -> bool:
    try:
        segment.payload()
    except StorageFailed:
        return False
    return True

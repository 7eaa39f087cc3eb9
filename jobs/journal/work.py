"""A job's work location: its spool and journal, their ownership, and the files that stay at the end."""

from contextlib import ExitStack, suppress

from ...actors.media.location import is_local, local_path
from ...errors import JournalRefused, OutputInUse, OutputUnwritable, StorageFailed
from ..join.owner import FolderOwner
from ..join.proof import has_content
from ..join.publish import work_folder, work_name
from ..join.spool import Spool, SpooledSegment, payload_name, unwritable
from ..report.report import Report, Resumed
from ..request.spec import TranscodeSpec
from .header import asks_again, difference
from .journal import Journal, Replay, replay
from .records import Complete, Encoded, JobHeader, read_stream
from .stores import FolderStore, ObjectStore, Store, StoreLease


class WorkPlace:
    """One job's spool and journal, owned from ``open`` until ``keep`` or ``remove``. All calls block."""

    def __init__(self, spec: TranscodeSpec) -> None:
        self._spec = spec
        self._elsewhere = None if spec.work is None or spec.no_journal else place_of(spec)
        self._owner: FolderOwner | StoreLease | None = None
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
        """Where the journal is; "" if there is no journal."""
        return "" if self._spec.no_journal else place_of(self._spec)

    def open(self) -> None:
        """Take ownership of the work location and read its journal.

        Raises:
            JournalRefused: another location has work on this output.
            OutputInUse: another job writes the same output.
            OutputUnwritable: the location cannot be created.
            StorageFailed: the location cannot be read.
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
            if spec.restart or self._is_record_of_another():
                self.forget()
            self._is_open = True
            stack.pop_all()

    def refusal(self, header: JobHeader, *, encoder: bool = True) -> JournalRefused | None:
        """Return the error if the job with this header cannot continue the found work, otherwise None."""
        if self.found.header is None or not (differs := difference(self.found.header, header, encoder=encoder)):
            return None
        message = f"unfinished work for {self._spec.output} cannot be continued: {differs.reason}"
        otherwise = f", or {differs.continued_by}" if differs.continued_by else ""
        return JournalRefused(message, f"Use --restart to start over{otherwise}.")

    def restore(self, header: JobHeader) -> Replay:
        """Begin the job with this header, or continue the found work without its damaged payloads.

        Raises:
            JournalRefused: the found work belongs to another job.
            StorageFailed: the store failed.
        """
        if (refusal := self.refusal(header)) is not None:
            raise refusal
        if self.found.header is None:
            self.journal.begin(header)
            return self.found
        spooled = {number: self.spooled(each) for number, each in self.found.encoded.items()}
        whole = {number: each for number, each in spooled.items() if self._is_whole(each)}
        # Damaged payloads are removed: a folder in a payload's place would prevent writing the segment again.
        self._store.sweep([each.path.name for each in whole.values()])
        return self.found.without(frozenset(spooled.keys() - whole.keys()))

    def forget(self) -> None:
        """Forget the found work, so that the job starts over."""
        self.found = Replay()

    def spooled(self, record: Encoded) -> SpooledSegment:
        """Return the segment of a record. Its payload may be damaged or missing."""
        path = self.spool.payloads / payload_name(record.segment, record.payload_sha256)
        return SpooledSegment(record.facts, path, record.payload_bytes, record.payload_sha256)

    def encoded(self, record: Encoded) -> None:
        """Store a spooled segment, and record it. Raises StorageFailed."""
        if self.journal.keeps:
            self._store.put(self.spooled(record).path)
            self.journal.note(record)

    def complete(self, report: Report) -> None:
        """Record the output before it is published. Raises StorageFailed."""
        if self.journal.keeps:
            fields = report.model_dump(mode="json")
            self.journal.note(Complete(report.output_bytes, report.proof.output_sha256, fields))

    def check(self) -> None:
        """Raise OutputInUse if another job has taken the output over."""
        self.spool.check()
        if self._owner is not None and not self._owner.holds():
            message = f"this job has lost {self.location}: another job has taken it over"
            raise OutputInUse(message, "Nothing was published. Wait for the other job, or start again.")

    def keep(self) -> int:
        """Release everything; return how many segments are kept, and if none is, remove everything. Never raises."""
        if not self._is_open:
            return 0
        try:
            done, has_work = replay(read_stream(self._store.read())).segments_done, self._store.has_payloads()
        except StorageFailed:
            done, has_work = self.found.segments_done, True  # the store does not answer
        if not done:
            self.remove()
            return 0
        if self._elsewhere is None:
            self.spool.keep()
        else:
            self.spool.remove()
        self._release()
        return done if has_work else 0

    def keep_record(self) -> None:
        """Release everything, and keep only the journal, which shows a later run that the output is published.

        Without a journal, remove everything. Never raises.
        """
        if not self.journal.keeps:
            self.remove()
            return
        with suppress(StorageFailed):
            self._store.sweep([])
        if self._elsewhere is None:
            self.spool.keep()
        else:
            self.spool.remove()
        self._release()

    def remove(self) -> None:
        """Delete everything; never raises."""
        if not self._is_open:
            return
        if self._elsewhere is not None:
            # The journal is removed last: it tells a later run that the output is published and the other
            # files can be removed.
            self.spool.remove()
        self._store.remove()
        if isinstance(self._owner, FolderOwner):
            self._owner.remove()
        self._release()
        self.spool.remove()

    def _is_record_of_another(self) -> bool:
        """Return whether the journal only records what another request has published."""
        header, complete = self.found.header, self.found.complete
        if header is None or complete is None or asks_again(header, self._spec):
            return False
        is_swept = not self._store.has_payloads()
        return is_swept or has_content(self._spec.output, complete.output_bytes, complete.output_sha256)

    def _opened(self) -> tuple[Store, FolderOwner | StoreLease | None]:
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
        """Return whether a payload is undamaged, here or in the store."""
        if not _has(segment):
            self._store.fetch(segment.path)
        return _has(segment)

    def _release(self) -> None:
        if self._owner is not None:
            self._owner.release()


def place_of(spec: TranscodeSpec) -> str:
    """Return a job's work location: the requested one, or by default one beside the output."""
    if spec.work is None:
        return str(work_folder(spec.output))
    return f"{spec.work.rstrip('/')}/{work_name(spec.output)}"


def published(found: Replay, spec: TranscodeSpec) -> Report | None:
    """Return the report of a job that was killed after it published ``spec``'s output; None if that is not certain.

    The output must have the size and content in the journal, and the source must be unchanged.
    """
    if found.header is None or found.complete is None or not asks_again(found.header, spec):
        return None
    if not has_content(spec.output, found.complete.output_bytes, found.complete.output_sha256):
        return None
    try:
        report = Report.model_validate(dict(found.complete.report))
    except ValueError:
        return None  # the journal was written by an unreleased version
    segments = tuple(each.model_copy(update={"restored": True}) for each in report.segments)
    resumed = Resumed(restored=found.segments_done, redone=0, published=True)
    return report.model_copy(update={"segments": segments, "resumed": resumed})


def _has(segment: SpooledSegment) -> bool:
    try:
        segment.payload()
    except StorageFailed:
        return False
    return True

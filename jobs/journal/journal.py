"""The journal of a running job, to which any thread appends records, and a job's state according to its records."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from .records import (
    BadRecord,
    Begun,
    Complete,
    Encoded,
    JobHeader,
    OtherBytes,
    Record,
    RecordStream,
    framed,
    packed,
    read_stream,
    unpacked,
)
from .stores import Store


@dataclass(frozen=True, slots=True)
class Replay:
    """A job's progress, from the records of its journal."""

    header: JobHeader | None = None
    encoded: dict[int, Encoded] = field(default_factory=dict)  #: by segment
    in_flight: frozenset[int] = frozenset()  #: the segments that went to a worker, and are not encoded
    other_bytes: Mapping[int, int] = field(default_factory=dict)  #: the size of all but the pictures, by pass
    complete: Complete | None = None  #: the complete output, unless a later record begins or ends a segment
    good_records: int = 0  #: how many records are valid
    broken: str = ""  #: the damage in words; an incomplete last record is no damage, since any kill may leave one

    @property
    def segments_done(self) -> int:
        """How many planned segments are encoded."""
        return sum(each.until - each.segment + 1 for each in self.encoded.values())

    def after(self, record: Record) -> "Replay":
        """Return the state after another record. Raises BadRecord: the record cannot follow the records before it."""
        counted = replace(self, good_records=self.good_records + 1, complete=None)
        match record, self.header:
            case JobHeader(), None:
                return replace(counted, header=record)
            case Begun(segment), JobHeader() as header if 0 <= segment < header.segments:
                return replace(counted, in_flight=self.in_flight | {segment})
            case Encoded(segment=first, until=last), JobHeader() as header if 0 <= first <= last < header.segments:
                # Segments that overlap this segment were encoded before the cut between them was removed.
                others = {n: each for n, each in self.encoded.items() if each.until < first or n > last}
                encoded = dict(sorted({**others, first: record}.items()))
                return replace(counted, encoded=encoded, in_flight=self.in_flight - set(range(first, last + 1)))
            case OtherBytes(number, other_bytes), JobHeader():
                return replace(counted, other_bytes={**self.other_bytes, number: other_bytes})
            case Complete(), JobHeader():
                return replace(counted, complete=record)
            case _:
                raise BadRecord(f"a {type(record).__name__} cannot be the next record")

    def without(self, segments: frozenset[int]) -> "Replay":
        """Return the state in which these segments have to be encoded again."""
        encoded = {n: each for n, each in self.encoded.items() if n not in segments}
        return replace(self, encoded=encoded, in_flight=self.in_flight | segments)


def replay(stream: RecordStream) -> Replay:
    """Return the state according to a stream's records, up to the first invalid record."""
    state = Replay()
    for content in stream.contents:
        try:
            state = state.after(unpacked(content))
        except BadRecord as error:
            lost = len(stream.contents) - state.good_records
            return replace(state, broken=f"record {state.good_records} makes no sense ({error}); {lost} are left out")
    if stream.rest_bytes and not stream.is_torn:
        return replace(state, broken=f"{stream.rest_bytes} bytes after record {state.good_records} are damaged")
    return state


class Journal:
    """A job's records in a store. Call ``open`` first, and then ``begin`` unless the job continues.

    Raises StorageFailed.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._checksum = read_stream(b"").checksum

    @property
    def keeps(self) -> bool:
        """Whether records are kept; if so, payloads stay until the output is published."""
        return self._store.keeps

    def open(self) -> Replay:
        """Read the records, and cut off the unreadable end."""
        stream = read_stream(self._store.read())
        found = replay(stream)
        good, checksum = [], self._checksum
        for content in stream.contents[: found.good_records]:
            record, checksum = framed(content, checksum)
            good.append(record)
        self._checksum = checksum
        if stream.rest_bytes or len(good) < len(stream.contents):
            self._store.truncate(good)
        return found

    def begin(self, header: JobHeader) -> None:
        """Remove all records and payloads, and start the journal of a job."""
        self._store.truncate(())
        self._store.sweep(())
        self._checksum = read_stream(b"").checksum
        self.note(header)

    def note(self, record: Record) -> None:
        """Append a record. Unless it is a ``Begun``, it and all records before it survive a power loss."""
        content = packed(record)
        with self._lock:
            written, checksum = framed(content, self._checksum)
            self._store.append(written, is_durable=not isinstance(record, Begun))
            self._checksum = checksum

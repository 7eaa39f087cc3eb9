"""The journal of a running job: records go into its store, one at a time, from any thread."""

import threading

from .records import Begun, JobHeader, Record, framed, packed, read_stream
from .replay import Replay, replay
from .stores import Store


class Journal:
    """A job's records, in a store. ``open`` comes first, then ``begin`` unless the job goes on.

    Every call raises StorageFailed where the store fails.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._checksum = read_stream(b"").checksum

    @property
    def keeps(self) -> bool:
        """Whether anything is kept: payloads then stay until the output is published."""
        return self._store.keeps

    def open(self) -> Replay:
        """Read what there is, and cut off what cannot be read."""
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
        """Remove everything, and start the journal of a job."""
        self._store.truncate(())
        self._store.sweep(())
        self._checksum = read_stream(b"").checksum
        self.note(header)

    def note(self, record: Record) -> None:
        """Append a record. All but a ``Begun`` survive a loss of power, with those before them."""
        content = packed(record)
        with self._lock:
            written, checksum = framed(content, self._checksum)
            self._store.append(written, is_durable=not isinstance(record, Begun))
            self._checksum = checksum

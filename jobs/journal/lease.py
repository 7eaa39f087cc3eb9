"""Owning work in a store, which has no locks: an object that names its owner, who renews it.

Of two jobs that begin at the same moment, one reads the other's name back and stops. A store without read-after-write
consistency may let both begin; then the first that publishes wins.
"""

import json
import threading
import time
from contextlib import suppress

from ...errors import StorageFailed
from ..join.owner import OWNER_FILE, RENEWED_EVERY_S, Owner, in_use, still_holds
from .stores import ObjectStore


class StoreLease:
    """Owns the work in a store, from ``acquire`` to ``release``; ``what`` is the output, for errors.

    Machines that share a store must agree on the time within seconds.
    """

    def __init__(self, store: ObjectStore, what: str) -> None:
        self._store = store
        self._what = what
        self._here = Owner.here()
        self._released = threading.Event()
        self._writing = threading.Lock()

    def acquire(self) -> None:
        """Take ownership. Raises OutputInUse: another job has it; StorageFailed: the store does not answer."""
        other, renewed_s = read_owner(self._store)
        age_s = time.time() - renewed_s
        lives = other is not None and other.lives(self._here, age_s)
        if still_holds(other, self._here, lives=lives, locks_work=False):
            raise in_use(self._what, other, age_s, self._here)
        self._write()
        if not self.holds():
            raise in_use(self._what, read_owner(self._store)[0], 0, self._here)
        threading.Thread(target=self._renew, name="codecfleet-lease", daemon=True).start()

    def holds(self) -> bool:
        """Return whether the work is still this owner's, which it is where the store does not say."""
        try:
            return read_owner(self._store)[0] == self._here
        except StorageFailed:
            return True

    def release(self) -> None:
        """Release it. Idempotent; never raises."""
        if not self._released.is_set():
            self._released.set()
            with self._writing, suppress(StorageFailed):
                if self.holds():
                    self._store.write(OWNER_FILE, b"")

    def _write(self) -> None:
        stated = json.loads(self._here.content) | {"renewed_s": time.time()}
        self._store.write(OWNER_FILE, json.dumps(stated).encode())

    def _renew(self) -> None:
        while not self._released.wait(RENEWED_EVERY_S):
            self._renew_once()

    def _renew_once(self) -> None:
        with self._writing, suppress(StorageFailed):
            if not self._released.is_set() and self.holds():
                self._write()


def read_owner(store: ObjectStore) -> tuple[Owner | None, float]:
    """Return who owned the work in a store last, and when, in seconds since 1970, that was renewed."""
    with suppress(KeyError, TypeError, ValueError):
        stated = json.loads(store.content(OWNER_FILE))
        renewed_s = float(stated.pop("renewed_s"))
        return Owner.read(json.dumps(stated).encode()), renewed_s
    return None, 0.0

"""The size of a private Ray's object store, computed before Ray starts."""

from typing import Final

from .. import machine

_STORE_MAX_BYTES: Final = 512 << 20
_STORE_MIN_BYTES: Final = 80 << 20  #: Ray refuses less than 75 MiB
_SHARED_MEMORY_FLOOR_BYTES: Final = 128 << 20


def store_bytes() -> int:
    """Return the size of the object store of a private Ray that starts now."""
    return _store_bytes(machine.memory_bytes(), machine.shared_memory_free_bytes())


def _store_bytes(memory_bytes: int, shared_memory_free_bytes: int) -> int:
    """Return an eighth of the memory, from 80 to 512 MiB, and at most three quarters of the free shared memory.

    Very small shared memory (64 MiB in a plain container) is no limit, because Ray then maps a file instead.
    """
    wanted = min(_STORE_MAX_BYTES, memory_bytes // 8)
    if shared_memory_free_bytes >= _SHARED_MEMORY_FLOOR_BYTES:
        wanted = min(wanted, shared_memory_free_bytes * 3 // 4)
    return max(wanted, _STORE_MIN_BYTES)

"""What SIGTERM does to a process that has Ray in it.

Python's ``signal`` works in the main thread only, and does not see what Ray's C++ installs: hence the C library.
"""

import ctypes
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref
from typing import Any, ClassVar


class _SigAction(ctypes.Structure):
    """``struct sigaction`` of glibc and musl on 64-bit Linux (signal.h)."""

    _fields_: ClassVar = [
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * 16),  # 1,024 signals
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    ]


def _sigaction(new: Any, former: Any) -> None:
    """Call sigaction(2) for SIGTERM."""
    call = ctypes.CDLL(None, use_errno=True).sigaction
    call.argtypes = (ctypes.c_int, ctypes.POINTER(_SigAction), ctypes.POINTER(_SigAction))
    if call(signal.SIGTERM, new, former):
        raise OSError(ctypes.get_errno(), "sigaction")


@contextmanager
def sigterm_untouched() -> Iterator[None]:
    """Preserve the kernel's disposition of SIGTERM, whatever Ray does inside.

    Connecting installs a C handler that prints stack frames before it calls the former one; disconnecting resets to the
    default, which would lose a handler of the user's.
    """
    former = _SigAction()
    _sigaction(None, byref(former))
    try:
        yield
    finally:
        _sigaction(byref(former), None)


def sigterm_kills() -> None:
    """Have SIGTERM end this process at once, as SIGKILL would.

    An actor of Ray's that is told to terminate takes no more calls, and lives on for about 20 s (Ray 2.60); its jobs
    would wait for it. Ray would also take that end for the actor's own wish, and not start it again.
    """
    _sigaction(byref(_SigAction()), None)

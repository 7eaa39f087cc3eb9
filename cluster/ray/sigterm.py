"""The effect of SIGTERM on a process that uses Ray.

Python's ``signal`` works only in the main thread, and does not see the handlers of Ray's C++ code, so the C library is
called.
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
    call = ctypes.CDLL(None, use_errno=True).sigaction
    call.argtypes = (ctypes.c_int, ctypes.POINTER(_SigAction), ctypes.POINTER(_SigAction))
    if call(signal.SIGTERM, new, former):
        raise OSError(ctypes.get_errno(), "sigaction")


@contextmanager
def sigterm_untouched() -> Iterator[None]:
    """Preserve this process's handling of SIGTERM.

    Ray installs a C handler when it connects, and resets to the default when it disconnects: a user's would be lost.
    """
    former = _SigAction()
    _sigaction(None, byref(former))
    try:
        yield
    finally:
        _sigaction(byref(former), None)


def sigterm_kills() -> None:
    """Let SIGTERM end this process at once, as SIGKILL would.

    A Ray actor that gets one takes no more calls, yet lives on for about 20 s (Ray 2.60) in which its jobs wait. Ray
    would also count that as an intended exit, and not restart the actor.
    """
    _sigaction(byref(_SigAction()), None)

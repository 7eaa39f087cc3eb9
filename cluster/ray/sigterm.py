"""Controls the effect of SIGTERM on a process that uses Ray.

The C library is called, because Python's ``signal`` works only in the main thread, and does not see handlers that Ray's
C++ code installs.
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
    """Preserve this process's handling of SIGTERM during the block.

    Ray installs a C handler when it connects. When it disconnects, it restores the default instead of the user's
    handler.
    """
    former = _SigAction()
    _sigaction(None, byref(former))
    try:
        yield
    finally:
        _sigaction(byref(former), None)


def sigterm_kills() -> None:
    """Let SIGTERM end this process at once, as SIGKILL would.

    Otherwise, after SIGTERM, a Ray actor (2.60) takes no more calls but runs for about 20 s, while its jobs wait. Ray
    would then not restart the actor, because the exit would seem intended.
    """
    _sigaction(byref(_SigAction()), None)

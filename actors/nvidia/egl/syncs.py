"""EGLSync and CUDA's events: one interface waits for the other on the GPU where the driver can, else on the host.

Sources: CUDA for Tegra 4.3; EGL_KHR_fence_sync; EGL_NV_cuda_event. Both ways without the host are Tegra's alone: other
drivers export no ``cuEventCreateFromEGLSync``. Events made from a sync are only waited for, never recorded or timed.
"""

import ctypes
from typing import Final

from ....errors import EngineHung, EngineUnfit
from ..cuda.context import Stream
from .calls import EglCuda
from .library import NONE, EglDisplay

CUDA_EVENT: Final = "EGL_NV_cuda_event"
_SYNC_CUDA_EVENT, _CUDA_EVENT_HANDLE = 0x323C, 0x323B
_FLUSH: Final = 1
_EXPIRED: Final = 0x30F5
_LIMIT_NS: Final = 60_000_000_000
_DISABLE_TIMING: Final = 2


def wait_for_sync(calls: EglCuda, display: EglDisplay, sync: int, stream: Stream) -> bool:
    """Make a CUDA stream wait for a sync (EGLSyncKHR); return whether the host did not have to.

    Raises:
        UsageError: it is not a sync of that display.
        EngineHung: its work did not end within a minute.
        DeviceError: the driver failed.
    """
    try:
        event = calls.call("cuEventCreateFromEGLSync", calls.driver.EGLSyncKHR(sync), 0)
    except EngineUnfit:
        if display.egl.call("eglClientWaitSyncKHR", display.handle, sync, _FLUSH, _LIMIT_NS) == _EXPIRED:
            message = "the work in front of an EGLSync did not end within a minute"
            raise EngineHung(message, "Look at the interface that made it.") from None
        return False
    try:
        calls.call("cuStreamWaitEvent", stream.handle, event, 0)
    finally:
        calls.call("cuEventDestroy", event)
    return True


def sync_after(calls: EglCuda, display: EglDisplay, stream: Stream) -> int | None:
    """Return a sync for everything put into a CUDA stream so far; None: the host has waited for it."""
    if CUDA_EVENT not in display.extensions:
        calls.finish(stream)
        return None
    event = calls.call("cuEventCreate", _DISABLE_TIMING)
    try:
        calls.call("cuEventRecord", event, stream.handle)
        wanted = (ctypes.c_ssize_t * 3)(_CUDA_EVENT_HANDLE, int(event), NONE)
        return int(display.egl.call("eglCreateSync64KHR", display.handle, _SYNC_CUDA_EVENT, wanted))
    finally:
        # Destroyed once its work is done; the sync keeps what it needs.
        calls.call("cuEventDestroy", event)

"""A DLA without CUDA: memory, events and their fences are NvSci objects that the caller brings.

Written from cudla.h and CUDA for Tegra 5.1.3 to 5.1.5; never run on hardware. NVIDIA's binding refuses this mode, so it
goes straight to ``libcudla.so.1``. NvSci itself is not touched: its objects come and go as plain addresses, and waiting
for a fence is the caller's to do (``NvSciSyncFenceWait``), because its libraries and contexts are the caller's.
"""

import ctypes
from collections.abc import Callable, Sequence
from enum import IntFlag
from typing import Final

from ...errors import CodecfleetError, EngineHung, Unsupported
from .engine_session import EngineSession, Timing
from .library import NativeCudla
from .session import Access, DlaTask, Fence, FenceKind, Registration
from .states import Happening

__all__ = ["StandaloneSession", "SyncRole", "load_native_cudla"]

LIBRARY: Final = "libcudla.so.1"
_SEMAPHORE_BYTES: Final = 8
"""What a registered sync object counts as; cuDLA asks for no size."""

FenceWait = Callable[[Fence, float], bool]
"""Waits for a fence for so many seconds at most, and says whether it was reached."""


class SyncRole(IntFlag):
    """What an NvSciSync object is for, from cuDLA's side (``cudlaNvSciSyncAttributes``)."""

    WAIT = 1
    SIGNAL = 2


def load_native_cudla(load: Callable[[str], object] = ctypes.CDLL) -> NativeCudla:
    """Load cuDLA's library.

    Raises:
        Unsupported: it is not on this machine.
    """
    try:
        return NativeCudla(load(LIBRARY))
    except OSError as error:
        message = f"this machine has no DLA: {error}"
        raise Unsupported(message, "Inference needs a Jetson or DRIVE with DLAs (Xavier, Orin): docs/dla.md.") from None


class StandaloneSession(EngineSession):
    """``DlaSession`` in standalone mode (``CUDLA_STANDALONE``). Never run on hardware.

    ``register`` takes NvSciBufObjs. The last task of a submission must signal, for its fence is all there is to wait
    for; NvSciSync reports no error of the engine, so ``synchronize`` asks cuDLA afterwards (5.1.5).

    Args:
        library: cuDLA.
        device: the number of the DLA.
        wait_for_fence: how to wait for an NvSciSync fence, and whether it was reached; called in the session's thread.
        timing: time limits and clock.
    """

    def __init__(
        self, library: NativeCudla, device: int, wait_for_fence: FenceWait, timing: Timing | None = None
    ) -> None:
        super().__init__(library, device, timing or Timing())
        self._native = library
        self._wait_for_fence = wait_for_fence
        self._latest: Fence | None = None
        self._open()

    def register_semaphore(self, sync: int) -> Registration:
        """Make an NvSciSyncObj usable by the DLA (``cudlaImportExternalSemaphore``); ``unregister`` ends it.

        Raises:
            UsageError: it is registered already.
        """
        with self._turn:
            self._refuse_unless(sync != 0, "no sync object")
            dla_address = self._ask(
                "cudlaImportExternalSemaphore", lambda: self._native.import_semaphore(self._handle, sync)
            )
            return self._keep(Registration(sync, _SEMAPHORE_BYTES, dla_address))

    def fill_sync_attributes(self, attribute_list: int, role: SyncRole) -> None:
        """Write into an NvSciSyncAttrList what cuDLA needs of it (``cudlaGetNvSciSyncAttributes``)."""
        with self._turn:
            self._ask("cudlaGetNvSciSyncAttributes", lambda: self._native.sync_attributes(attribute_list, role))

    def _enter(self) -> None:
        """Do nothing: there is no context to enter."""

    def _leave(self) -> None:
        """Do nothing: memory and sync objects are the caller's."""

    def _registered(self, memory: int, size_bytes: int, access: Access) -> int:
        return self._native.import_memory(self._handle, memory, size_bytes, access)

    def _check_events(self, tasks: Sequence[DlaTask]) -> None:
        self._refuse_unless(
            tasks[-1].signal is not None, "without CUDA the last task must signal: nothing else ends it"
        )
        for task in tasks:
            addresses = [fence.address for fence in task.waits]
            self._refuse_unless(len(addresses) == len(set(addresses)), "a task waits for the same fence twice")
            kinds = {fence.kind for fence in task.waits}
            self._refuse_unless(kinds <= {FenceKind.END_OF_TASK}, "a task can only wait for the end of something")
            signal = task.signal
            self._refuse_unless(signal is None or self._holds(signal.semaphore), "the semaphore is not registered here")

    def _stream_of(self, stream: int | None) -> int:
        self._refuse_unless(stream is None, "there are no streams without CUDA")
        return 0

    def _submitted(self, tasks: Sequence[DlaTask], stream: int) -> None:
        del stream
        signal = tasks[-1].signal
        self._latest = None if signal is None else signal.fence

    def _wait_for_tasks(self) -> None:
        latest = self._latest
        if latest is None:
            return
        patience_s = self._deadlines.patience_s(self._timing.clock())
        # The watchdog is a little more patient than the wait itself, which may end orderly.
        grace_s = self._timing.limits.grace_s
        waiting = "waiting for the last task's fence"
        if not self._ask(waiting, lambda: self._wait_for_fence(latest, patience_s), patience_s + grace_s):
            message = f"DLA {self._device}: the last task's fence was not reached within {patience_s:.1f} s"
            error = EngineHung(message, "Its process has to be ended; codecfleet doctor shows whether the DLA is well.")
            self._give_up(Happening.HANG, error)
        self._latest = None

    def _failed_finally(self, error: CodecfleetError) -> None:
        """Tell nobody: sessions of this mode do not know each other."""

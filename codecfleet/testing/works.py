"""Tiny work items that test whether a pool keeps its promises. They can also test your own pool."""

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from ..actors.device.work import Work, WorkContext
from ..errors import CodecfleetError

_PART_BYTES = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask(Work[int]):
    """Return the id of the process in which the work runs."""

    def run(self, context: WorkContext) -> int:
        context.advance()
        return os.getpid()


@dataclass(frozen=True, slots=True, kw_only=True)
class Count(Work[int]):
    """Report ``frames`` frames, one at a time, and return their number."""

    frames: int = 1

    def run(self, context: WorkContext) -> int:
        for _ in range(self.frames):
            context.advance()
        return self.frames


@dataclass(frozen=True, slots=True, kw_only=True)
class Dwell(Work[tuple[float, float]]):
    """Report a frame every 10 ms for ``seconds``; return when the work began and ended, in monotonic seconds."""

    seconds: float

    def run(self, context: WorkContext) -> tuple[float, float]:
        began = time.monotonic()
        while time.monotonic() < began + self.seconds:
            context.advance()
            time.sleep(0.01)
        return began, time.monotonic()


@dataclass(frozen=True, slots=True, kw_only=True)
class StandStill(Work[None]):
    """Report one frame, and then nothing for ``seconds``, like a codec that hangs.

    Meanwhile, the work does not notice a cancellation.
    """

    seconds: float

    def run(self, context: WorkContext) -> None:
        context.advance()
        time.sleep(self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeArray(Work[NDArray[np.uint8]]):
    """Return ``length`` bytes that are determined by a seed."""

    length: int
    seed: int = 0

    def run(self, context: WorkContext) -> NDArray[np.uint8]:
        context.advance()
        return self.expected()

    def expected(self) -> NDArray[np.uint8]:
        """Return the bytes that ``run`` returns, in any process."""
        return np.random.default_rng(self.seed).integers(0, 256, self.length, dtype=np.uint8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hoard(Work[int]):
    """Allocate and use ``length`` bytes of memory; return the length."""

    length: int

    def run(self, context: WorkContext) -> int:
        parts: list[NDArray[np.uint8]] = []
        while len(parts) * _PART_BYTES < self.length:
            parts.append(np.ones(_PART_BYTES, dtype=np.uint8))
            context.advance()
        return len(parts) * _PART_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class RaiseError(Work[NoReturn]):
    """Raise one of codecfleet's own errors."""

    error: CodecfleetError

    def run(self, context: WorkContext) -> NoReturn:
        context.advance()
        raise self.error


@dataclass(frozen=True, slots=True, kw_only=True)
class Raise(Work[NoReturn]):
    """Raise an exception that codecfleet does not define, perhaps one that ends a thread or a process."""

    error: type[BaseException] = ValueError
    message: str = "out of tune"

    def run(self, context: WorkContext) -> NoReturn:
        context.advance()
        raise self.error(self.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash(Work[NoReturn]):
    """End the whole process without a message, as a codec that crashes does. Never run this in your own process."""

    def run(self, context: WorkContext) -> NoReturn:
        context.advance()
        os._exit(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Touch(Work[None]):
    """Create an empty file, which shows that the work ran."""

    path: str

    def run(self, context: WorkContext) -> None:
        context.advance()
        Path(self.path).touch()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpicklable(Work[int]):
    """Hold a value that cannot be pickled."""

    held: object = lambda: None  # a lambda has no importable name

    def run(self, context: WorkContext) -> int:
        context.advance()
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnUnpicklable(Work[object]):
    """Return a value that cannot be pickled."""

    def run(self, context: WorkContext) -> object:
        context.advance()
        return threading.Lock()

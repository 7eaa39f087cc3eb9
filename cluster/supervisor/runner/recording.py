"""Records a supervisor's decisions in files, so that they can be replayed even after the process was killed."""

import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..core.core import Core
from ..state.events import Effect, SupervisorEvent

SUFFIX: Final = ".events"
KEPT: Final = 10_000  # the least number of events that are kept; the most is twice this number
COPIED_EVERY: Final = 500
"""The number of events between two copies of the core in the recording; a replay compares its core with each copy."""


@dataclass(frozen=True, slots=True)
class Decided:
    """One event, the time of the core's decision on it, and the resulting orders."""

    now_s: float
    event: SupervisorEvent
    effects: tuple[Effect, ...]
    defect: str = ""  # the error that the decision ended with


class Recording:
    """The newest decisions of a core, in two files with pickles of ``Decided`` and of the core."""

    def __init__(self, core: Core, folder: Path, kept: int = KEPT) -> None:
        self._core = core
        self._kept = kept
        self._count = 0
        self._files: list[Path] = []
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._append(core)

    def note(self, decided: Decided) -> None:
        """Keep a decision that the core has just made."""
        self._append(decided)
        self._count += 1
        if self._count % min(COPIED_EVERY, self._kept) == 0:
            self._append(self._core)

    def packed(self) -> bytes:
        """Return all kept decisions, and the current core."""
        return b"".join(path.read_bytes() for path in self._files) + pickle.dumps(self._core)

    def _append(self, content: Decided | Core) -> None:
        path = self._folder / f"{os.getpid()}-{id(self)}-{self._count // self._kept:06}{SUFFIX}"
        if path not in self._files:
            for old in self._files[:-1]:
                old.unlink(missing_ok=True)
            self._files = [*self._files[-1:], path]
        with path.open("ab") as file:
            file.write(pickle.dumps(content))


def decide(core: Core, event: SupervisorEvent, now_s: float) -> Decided:
    """Let the core decide on an event; if it fails, return a record with the error and without effects."""
    try:
        return Decided(now_s, event, tuple(core.decide(event, now_s)))
    except Exception as error:  # noqa: BLE001 - a defect in one decision must not end the supervisor
        return Decided(now_s, event, (), f"{type(error).__name__}: {error}")

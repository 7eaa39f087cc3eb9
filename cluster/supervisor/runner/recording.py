"""What a supervisor decided, so that it can be decided again: its core as it was, and each event since."""

import os
import pickle
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..core.core import Core
from ..state.events import Effect, SupervisorEvent

SUFFIX: Final = ".events"
KEPT: Final = 10_000
"""How many events are kept at least; at most twice as many."""


@dataclass(frozen=True, slots=True)
class Decided:
    """One event, when it was decided, and what was ordered."""

    now_s: float
    event: SupervisorEvent
    effects: tuple[Effect, ...]
    defect: str = ""  # the error that the decision ended with


@dataclass(frozen=True, slots=True)
class Recorded:
    """Decisions one after the other; the core is pickled as it was before the first, and after the last."""

    before: bytes
    decided: Sequence[Decided]
    after: bytes


class Recording:
    """The newest decisions of a core."""

    def __init__(self, core: Core, kept: int = KEPT) -> None:
        self._core = core
        self._kept = kept
        self._spans: list[tuple[bytes, list[Decided]]] = [(pickle.dumps(core), [])]

    def note(self, decided: Decided) -> None:
        """Keep a decision that the core has just made."""
        self._spans[-1][1].append(decided)
        if len(self._spans[-1][1]) >= self._kept:
            self._spans = [self._spans[-1], (pickle.dumps(self._core), [])]

    def packed(self) -> bytes:
        """Return all of it, as a pickle of ``Recorded``."""
        decided = [each for _, span in self._spans for each in span]
        return pickle.dumps(Recorded(self._spans[0][0], decided, pickle.dumps(self._core)))

    def write(self, folder: Path) -> None:
        """Write all of it to a new file of a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{os.getpid()}-{time.time_ns()}{SUFFIX}").write_bytes(self.packed())


def decide(core: Core, event: SupervisorEvent, now_s: float) -> Decided:
    """Return a core's decision; a defect of ours costs this decision alone."""
    try:
        return Decided(now_s, event, tuple(core.decide(event, now_s)))
    except Exception as error:  # noqa: BLE001 - it must not end the supervisor
        return Decided(now_s, event, (), f"{type(error).__name__}: {error}")

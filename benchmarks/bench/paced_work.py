"""Work that sleeps for a fixed time per frame, so that a busy machine does not change the results."""

import time
from dataclasses import dataclass

from codecfleet.actors.device.work import Work, WorkContext

__all__ = ["FRAMES", "FRAME_S", "Paced"]

FRAMES = 100
FRAME_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Paced(Work[int]):
    """Sleep ``FRAME_S`` for each of ``FRAMES`` frames."""

    def run(self, context: WorkContext) -> int:
        """Sleep."""
        for _ in range(FRAMES):
            time.sleep(FRAME_S)
            context.advance()
        return FRAMES

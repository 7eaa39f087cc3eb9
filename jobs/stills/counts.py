"""What the ranges of a job for stills met."""

from collections import Counter
from dataclasses import dataclass, field

from ...actors.stills.work import SeenSegment
from ...cluster.grouping import counted


@dataclass(slots=True)
class DecodeCounts:
    """What was met so far. ``decoded_by`` counts ranges by decoder; ``fallbacks`` says why not by a GPU."""

    frames: int = 0
    damaged: int = 0
    decoded_by: Counter[str] = field(default_factory=Counter)
    fallbacks: set[str] = field(default_factory=set)

    def add(self, seen: SeenSegment) -> None:
        """Count what one range met."""
        tally = seen.tally
        self.frames += seen.frames_decoded
        self.damaged += tally.damaged
        self.decoded_by[tally.decoded_by] += 1
        self.fallbacks |= {tally.fallback} if tally.fallback else set()

    def warnings(self) -> list[str]:
        """Return what the user should know of it."""
        met = f"{counted(self.damaged, 'range')} met damage; what could be decoded was used"
        software = [f"software decoded what a GPU could not: {reason}" for reason in sorted(self.fallbacks)]
        return [met] * bool(self.damaged) + software

"""Merges overlapping text cues for containers that show one cue at a time (mp4, mov). Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple


class Shown(NamedTuple):
    """A cue's text, and when it is shown, in ticks."""

    begin: int
    end: int
    text: str


@dataclass(slots=True)
class CueRow:
    """Takes cues in the order of their beginnings, and yields cues without overlap.

    A merged cue has the texts of its cues in that order.
    """

    crowded: int = 0  #: how many cues have no length, or begin while others are shown
    _at: int | None = None
    _shown: list[Shown] = field(default_factory=list)

    def add(self, cue: Shown) -> Iterator[Shown]:
        """Take the next cue, and yield the cues shown until it begins."""
        begin = cue.begin if self._at is None else max(cue.begin, self._at)
        yield from self._until(begin)
        self._at = begin
        self.crowded += bool(self._shown) or cue.end <= begin
        if cue.end > begin:
            self._shown.append(cue._replace(begin=begin))
        else:
            yield Shown(begin, begin, cue.text)

    def finish(self) -> Iterator[Shown]:
        """Yield the cues shown after the last cue has begun."""
        yield from self._until(max((cue.end for cue in self._shown), default=0))

    def _until(self, limit: int) -> Iterator[Shown]:
        at = self._at or 0
        while self._shown and at < limit:
            end = min(limit, *(cue.end for cue in self._shown))
            yield Shown(at, end, "\n".join(cue.text for cue in self._shown))
            self._shown = [cue for cue in self._shown if cue.end > end]
            at = end

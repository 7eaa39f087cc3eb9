"""What lists the stills of a folder: ``index.json`` for programs, and WebVTT for players."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import floor
from typing import Any, Final

from .moments import Moment
from .sheets import Tile

INDEX: Final = "index.json"
SCHEMA: Final = 1
_MS_PER_S: Final = 1_000
_MS_PER_MINUTE: Final = 60 * _MS_PER_S
_MS_PER_HOUR: Final = 60 * _MS_PER_MINUTE


@dataclass(frozen=True, slots=True)
class PictureFile:
    """A picture file of the folder."""

    file: str
    width: int
    height: int
    sha256: str

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {"file": self.file, "width": self.width, "height": self.height, "sha256": self.sha256}


@dataclass(frozen=True, slots=True)
class Still:
    """One still, numbered from 1: its moment, its picture's own time in ticks, and its file, or its place on a sheet.

    ``file`` names the sheet's file where it has a ``tile``.
    """

    number: int
    moment: Moment
    ticks: int
    file: str
    tile: Tile | None


def listing(
    facts: dict[str, Any],
    stills: Sequence[Still],
    files: Sequence[PictureFile],
    *,
    first_ticks: int,
    time_base: Fraction,
    size: tuple[int, int],
) -> dict[str, Any]:
    """Return ``index.json``: ``facts`` of the whole, the stills, and the sheets where there are any."""
    by_name = {each.file: each for each in files}

    def entry(still: Still) -> dict[str, Any]:
        tile = still.tile
        place = {"x": tile.x, "y": tile.y} if tile is not None else {"sha256": by_name[still.file].sha256}
        return {
            "number": still.number,
            "at_s": float(still.moment.at_s),
            "pts": still.ticks,
            "time_s": float((still.ticks - first_ticks) * time_base),
            "file": still.file,
            "width": size[0],
            "height": size[1],
            **place,
        }

    has_sheets = any(still.tile is not None for still in stills)
    return {
        "schema": SCHEMA,
        **facts,
        "time_base": [time_base.numerator, time_base.denominator],
        "stills": [entry(still) for still in stills],
        "sheets": [each.to_json() for each in files] if has_sheets else [],
    }


def webvtt(stills: Sequence[Still], begin_s: Fraction, end_s: Fraction, size: tuple[int, int]) -> str:
    """Return WebVTT with a cue for each still, from ``begin_s`` to ``end_s`` without a gap.

    A still that is missing is covered by the one before it. A cue shorter than a millisecond is left out.
    """
    starts_s = [begin_s, *(still.moment.begin_s for still in stills[1:]), end_s]
    cues = [
        f"{_clock(begin)} --> {_clock(end)}\n{_target(still, size)}\n"
        for still, (begin, end) in zip(stills, pairwise(map(_ms, starts_s)), strict=True)
        if begin < end
    ]
    return "\n".join(["WEBVTT\n", *cues])


def _target(still: Still, size: tuple[int, int]) -> str:
    if still.tile is None:
        return still.file
    return f"{still.file}#xywh={still.tile.x},{still.tile.y},{size[0]},{size[1]}"


def _ms(seconds: Fraction) -> int:
    return floor(seconds * _MS_PER_S)


def _clock(ms: int) -> str:
    hours, rest = divmod(ms, _MS_PER_HOUR)
    minutes, rest = divmod(rest, _MS_PER_MINUTE)
    return f"{hours:02}:{minutes:02}:{rest // _MS_PER_S:02}.{rest % _MS_PER_S:03}"

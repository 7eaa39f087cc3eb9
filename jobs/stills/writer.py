"""Writes stills into a folder as ranges arrive, with a JSON index for programs and WebVTT for players."""

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import floor
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...actors.stills.files import encode_still
from ...actors.stills.taking import TakenPicture, TakenStills
from ...actors.tracks.subtitles import webvtt_cue
from ...cluster.grouping import counted
from ...errors import InputUnreadable, ProofFailed, redacted
from ..join.spool import storage_error
from .moments import Moment
from .plan import StillsPlan

INDEX: Final = "index.json"
VTT: Final = "stills.vtt"
SHEETS_VTT: Final = "sprites.vtt"
_MS_PER_S: Final = 1_000


@dataclass(frozen=True, slots=True)
class Tile:
    """A still's position: the sheet, counted from 1, and ``x`` and ``y`` in pixels."""

    sheet: int
    x: int
    y: int


@dataclass(frozen=True)
class PictureFile:
    """A picture file in the folder: a still or a sheet."""

    file: str
    width: int
    height: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Still:
    """One still that was taken, and where it was written."""

    number: int  # from 1
    moment: Moment
    ticks: int  # the PTS of the still's picture
    file: str  # the file of the still or of its sheet
    tile: Tile | None  # the still's position on a sheet


@dataclass(slots=True)
class Sheets:
    """Lays out stills of one size on sprite sheets, row by row; the last sheet may have fewer rows."""

    columns: int
    rows: int
    # takes the number and samples (rows, columns, 3) of each complete sheet
    write: Callable[[int, NDArray[np.uint8]], None]
    _tiles: list[NDArray[np.uint8]] = field(default_factory=list)
    _sheets: int = 0

    def add(self, tile: NDArray[np.uint8]) -> Tile:
        """Add the next still, an array of (rows, columns, 3) samples."""
        if len(self._tiles) == self.columns * self.rows:
            self.finish()
        row, column = divmod(len(self._tiles), self.columns)
        self._tiles.append(tile)
        height, width, _ = tile.shape
        return Tile(self._sheets + 1, column * width, row * height)

    def finish(self) -> None:
        """Write the unfinished sheet, if there is one."""
        if not self._tiles:
            return
        height, width, _ = self._tiles[0].shape
        rows = -(-len(self._tiles) // self.columns)
        sheet = np.zeros((rows * height, self.columns * width, 3), dtype=np.uint8)
        for place, tile in enumerate(self._tiles):
            y, x = (each * side for each, side in zip(divmod(place, self.columns), (height, width), strict=True))
            sheet[y : y + height, x : x + width] = tile
        self._sheets += 1
        self._tiles = []
        self.write(self._sheets, sheet)


@dataclass(slots=True)
class StillsWriter:
    """Fills ``folder`` with the stills of ``moments``. The folder must exist."""

    folder: Path
    plan: StillsPlan
    moments: tuple[Moment, ...]
    delay_s: Fraction  # added to the times in the WebVTT file, which count from the track's first picture
    stills: list[Still] = field(default_factory=list)
    files: list[PictureFile] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)  # the numbers of stills whose pictures do not decode
    _sheets: Sheets | None = field(init=False)

    def __post_init__(self) -> None:
        grid = self.plan.spec.sheet
        self._sheets = None if grid is None else Sheets(*grid, self._write_sheet)

    @property
    def size(self) -> tuple[int, int]:
        """The size of each still."""
        return self.plan.look.width, self.plan.look.height

    @property
    def vtt(self) -> str:
        """The name of the WebVTT file."""
        return VTT if self._sheets is None else SHEETS_VTT

    def add(self, taken: TakenStills) -> None:
        """Write the stills of the next range. Raises EncoderFailed or StorageFailed."""
        for place in taken.shown:
            number = len(self.stills) + len(self.missing) + 1
            if place is None:
                self.missing.append(number)
            else:
                self.stills.append(self._still(number, taken.pictures[place]))

    def finish(self) -> None:
        """Write the last sheet and the lists.

        Raises EncoderFailed; StorageFailed; InputUnreadable: no still could be taken; ProofFailed: a still was neither
        taken nor reported missing.
        """
        if len(self.stills) + len(self.missing) != len(self.moments):
            message = f"{len(self.moments)} stills were planned, but {len(self.stills)} were taken"
            raise ProofFailed(message, "Please report this error together with the input.")
        if not self.stills:
            message = f"no picture of {self.plan.spec.source} decodes at the time of any still"
            raise InputUnreadable(message, "The source may be damaged; get a complete copy.")
        if self._sheets is not None:
            self._sheets.finish()
        plan = self.plan
        self._write(self.vtt, webvtt(self.stills, plan.begin_s, plan.end_s, self.size, self.delay_s).encode())
        index = listing(
            self._facts(),
            self.stills,
            self.files,
            first_ticks=plan.index.first_ticks,
            time_base=plan.index.time_base,
            size=self.size,
        )
        self._write(INDEX, (json.dumps(index, indent=1) + "\n").encode())

    def warnings(self) -> list[str]:
        """Return a warning if stills are missing."""
        if not self.missing:
            return []
        stills = counted(len(self.missing), "still")
        return [f"{stills} left out, the first is number {self.missing[0]}: no picture decodes at or before its time"]

    def _facts(self) -> dict[str, Any]:
        plan = self.plan
        spec = plan.spec
        return {
            "source": redacted(spec.source).rpartition("/")[2],
            "video_track": spec.video_track,
            "every_s": None if spec.every_s is None else float(spec.every_s),
            "count": spec.count,
            "scene_threshold": spec.scene_threshold if spec.scene else None,
            "begin_s": float(plan.begin_s),
            "end_s": float(plan.end_s),
            "missing": self.missing,
            "vtt": self.vtt,
        }

    def _still(self, number: int, picture: TakenPicture) -> Still:
        width, height = self.size
        moment = self.moments[number - 1]
        if self._sheets is None:
            name = self._name(f"{number:05}")
            self._write_picture(name, picture.data.tobytes(), self.size)
            return Still(number, moment, picture.ticks, name, None)
        # This is a copy, because a view would keep the whole result in memory.
        tile = self._sheets.add(picture.data.reshape(height, width, 3).copy())
        return Still(number, moment, picture.ticks, self._name(f"sheet-{tile.sheet:05}"), tile)

    def _write_sheet(self, number: int, rgb: NDArray[np.uint8]) -> None:
        height, width, _ = rgb.shape
        content = encode_still(rgb, self.plan.spec.format, self.plan.look.quality)
        self._write_picture(self._name(f"sheet-{number:05}"), content, (width, height))

    def _name(self, stem: str) -> str:
        return f"{stem}.{self.plan.spec.format.value}"

    def _write_picture(self, name: str, content: bytes, size: tuple[int, int]) -> None:
        self._write(name, content)
        self.files.append(PictureFile(name, *size, hashlib.sha256(content).hexdigest()))

    def _write(self, name: str, content: bytes) -> None:
        path = self.folder / name
        try:
            path.write_bytes(content)
        except OSError as error:
            raise storage_error(error, path) from error


def listing(
    facts: dict[str, Any],
    stills: Sequence[Still],
    files: Sequence[PictureFile],
    *,
    first_ticks: int,
    time_base: Fraction,
    size: tuple[int, int],
) -> dict[str, Any]:
    """Return the content of ``index.json``: the job's ``facts``, a list of stills and, if any, a list of sheets."""
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
        "schema": 1,
        **facts,
        "time_base": [time_base.numerator, time_base.denominator],
        "stills": [entry(still) for still in stills],
        "sheets": [asdict(each) for each in files] if has_sheets else [],
    }


def webvtt(
    stills: Sequence[Still], begin_s: Fraction, end_s: Fraction, size: tuple[int, int], delay_s: Fraction = Fraction(0)
) -> str:
    """Return WebVTT with a cue for each still; the cues last from ``begin_s`` to ``end_s`` without a gap.

    All cues are ``delay_s`` later.

    If a still is missing, the still before it covers its time. Cues shorter than a millisecond are left out.
    """
    starts_s = [begin_s, *(still.moment.begin_s for still in stills[1:]), end_s]
    cues = [
        webvtt_cue(begin, end, _target(still, size))
        for still, (begin, end) in zip(
            stills, pairwise(floor((each + delay_s) * _MS_PER_S) for each in starts_s), strict=True
        )
        if begin < end
    ]
    return "\n".join(["WEBVTT\n", *cues])


def _target(still: Still, size: tuple[int, int]) -> str:
    if still.tile is None:
        return still.file
    return f"{still.file}#xywh={still.tile.x},{still.tile.y},{size[0]},{size[1]}"


def listed_stills(path: Path) -> frozenset[str]:
    """Return the index of a folder of stills and the files that it lists; nothing if it cannot be read."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        index = json.loads((path / INDEX).read_text(encoding="utf-8"))
        return frozenset({INDEX, index["vtt"], *(each["file"] for each in index["stills"])})
    return frozenset()

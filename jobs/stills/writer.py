"""Writes stills and what lists them into a folder, as ranges come in, in order."""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...actors.stills.files import encode_still
from ...actors.stills.taking import TakenPicture, TakenStills
from ...cluster.grouping import counted
from ...errors import InputUnreadable, ProofFailed
from ..join.spool import storage_error
from .listing import INDEX, PictureFile, Still, listing, webvtt
from .moments import Moment
from .plan import StillsPlan
from .sheets import Sheets

VTT: Final = "stills.vtt"
SHEETS_VTT: Final = "sprites.vtt"


@dataclass(slots=True)
class StillsWriter:
    """Fills ``folder``, which exists, with the stills of ``moments``."""

    folder: Path
    plan: StillsPlan
    moments: tuple[Moment, ...]
    stills: list[Still] = field(default_factory=list)
    files: list[PictureFile] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    """The numbers of stills whose picture does not decode."""
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
        """Write the stills of the next range.

        Raises:
            EncoderFailed: a sheet cannot be encoded.
            StorageFailed: a file cannot be written.
        """
        for place in taken.shown:
            number = len(self.stills) + len(self.missing) + 1
            if place is None:
                self.missing.append(number)
            else:
                self.stills.append(self._still(number, taken.pictures[place]))

    def finish(self) -> None:
        """Write what is left, and the lists.

        Raises:
            InputUnreadable: no still at all could be taken.
            ProofFailed: a moment was left out.
            EncoderFailed: a sheet cannot be encoded.
            StorageFailed: a file cannot be written.
        """
        if len(self.stills) + len(self.missing) != len(self.moments):
            message = f"{len(self.moments)} stills were planned, and {len(self.stills)} taken"
            raise ProofFailed(message, "Please report it with the input.")
        if not self.stills:
            message = f"no picture of {self.plan.spec.source} decodes where a still is wanted"
            raise InputUnreadable(message, "It may be damaged; get a complete one.")
        if self._sheets is not None:
            self._sheets.finish()
        plan = self.plan
        self._write(self.vtt, webvtt(self.stills, plan.begin_s, plan.end_s, self.size).encode())
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
        """Return what the user should know of what was written."""
        if not self.missing:
            return []
        stills = counted(len(self.missing), "still")
        return [f"{stills} left out, number {self.missing[0]} first: no picture decodes at or before it"]

    def _facts(self) -> dict[str, Any]:
        plan = self.plan
        spec = plan.spec
        return {
            "source": spec.source.rpartition("/")[2],
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
        # A copy: as it came, it may be a view that keeps the whole result in memory.
        tile = self._sheets.add(picture.data.reshape(height, width, 3).copy())
        return Still(number, moment, picture.ticks, self._sheet_name(tile.sheet), tile)

    def _write_sheet(self, number: int, rgb: NDArray[np.uint8]) -> None:
        height, width, _ = rgb.shape
        spec, look = self.plan.spec, self.plan.look
        self._write_picture(self._sheet_name(number), encode_still(rgb, spec.format, look.quality), (width, height))

    def _sheet_name(self, number: int) -> str:
        return self._name(f"sheet-{number:05}")

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

"""Joins the tensors of many segments into one ``.npz`` file. Tensors are written to disk as they arrive."""

import shutil
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np
from numpy.lib import format as npy

from ...actors.dla.inference import InferredSegment
from ...errors import ProofFailed
from ..join.spool import storage_error

if TYPE_CHECKING:
    from numpy.typing import NDArray


PTS: Final = "pts_ticks"
TIME_BASE: Final = "time_base"
_DATE: Final = (1980, 1, 1, 0, 0, 0)  #: The same date in every file, so that a file's bytes depend only on its content


@dataclass(frozen=True, slots=True)
class GatheredTensor:
    """One tensor of the output; ``shape`` is the shape for all frames together."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class TensorGather:
    """Takes segments in order and writes the file. ``folder`` is for unfinished work, and must exist."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ticks: list[NDArray[np.int64]] = []
        self._kinds: list[tuple[str, tuple[int, ...], np.dtype[Any]]] | None = None

    @property
    def frames(self) -> int:
        """How many frames have been joined."""
        return sum(len(ticks) for ticks in self._ticks)

    @property
    def tensors(self) -> tuple[GatheredTensor, ...]:
        """The tensors in the file, with their names there and their shapes over all frames."""
        kinds = self._kinds or []
        names = _unique([name for name, _, _ in kinds])
        return tuple(
            GatheredTensor(name, (self.frames, *shape), dtype)
            for name, (_, shape, dtype) in zip(names, kinds, strict=True)
        )

    def join(self, segment: InferredSegment) -> None:
        """Take the next segment.

        Raises StorageFailed; ProofFailed: times or tensors do not fit the previous segments.
        """
        self._check(segment)
        for number, tensor in enumerate(segment.tensors):
            path = self._spooled(number)
            try:
                with path.open("ab") as stream:
                    stream.write(np.ascontiguousarray(tensor.values).tobytes())
            except OSError as error:
                raise storage_error(error, path) from error
        self._ticks.append(np.array(segment.pts_ticks))

    def finish(self, time_base: tuple[int, int]) -> Path:
        """Write the file into the folder, and return the file's path. Raises StorageFailed."""
        path = self._folder / "tensors.npz"
        ticks = np.concatenate(self._ticks) if self._ticks else np.zeros(0, dtype=np.int64)
        try:
            with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
                for name, array in ((PTS, ticks), (TIME_BASE, np.array(time_base, dtype=np.int64))):
                    with _member(archive, name) as stream:
                        npy.write_array(stream, array, allow_pickle=False)
                for number, tensor in enumerate(self.tensors):
                    self._write(archive, number, tensor)
        except OSError as error:
            raise storage_error(error, path) from error
        return path

    def _write(self, archive: zipfile.ZipFile, number: int, tensor: GatheredTensor) -> None:
        header = {"descr": npy.dtype_to_descr(tensor.dtype), "fortran_order": False, "shape": tensor.shape}
        with _member(archive, tensor.name) as stream:
            npy.write_array_header_1_0(stream, header)
            if self.frames:
                with self._spooled(number).open("rb") as spooled:
                    shutil.copyfileobj(spooled, stream, 1 << 20)

    def _check(self, segment: InferredSegment) -> None:
        ticks = segment.pts_ticks
        last = next((earlier[-1] for earlier in reversed(self._ticks) if len(earlier)), None)
        if last is not None and len(ticks) and ticks[0] <= last:
            message = f"segment {segment.segment} begins at {ticks[0]} ticks, before the previous one's end, {last}"
            raise ProofFailed(message, "Please report this error together with the input.")
        kinds = [(tensor.name, tensor.values.shape[1:], tensor.values.dtype) for tensor in segment.tensors]
        if self._kinds is None:
            self._kinds = kinds
        if kinds != self._kinds:
            message = f"segment {segment.segment} has the tensors {kinds}, but earlier segments have {self._kinds}"
            raise ProofFailed(message, "Install the same software on every machine.")

    def _spooled(self, number: int) -> Path:
        return self._folder / f"tensor-{number}.bin"


def _member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    return archive.open(zipfile.ZipInfo(f"{name}.npy", _DATE), "w", force_zip64=True)


def _unique(names: Sequence[str]) -> Iterator[str]:
    """Yield the names of tensors in the file: distinct, without folders, and different from the names of the times."""
    taken = {PTS, TIME_BASE}
    for number, name in enumerate(names):
        plain = "".join(c if c.isalnum() or c in "_.-" else "_" for c in name) or f"output_{number}"
        while plain in taken:
            plain += "_"
        taken.add(plain)
        yield plain

"""What a machine can do with each codec, from its trials: hardware, software, or not at all."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ..probes.node.report import NodeReport
from ..probes.report.engines import CodecCase, Direction, Engine, How, MediaCodec, Trial
from ..probes.trials.cases import SAMPLES


class CodecSupport(Enum):
    """Who does a case."""

    HARDWARE = "hardware"  #: an engine of a device; where the processor can do it too, that is not said
    SOFTWARE = "software"  #: the processor alone
    NONE = "no"  #: no engine here
    UNTRIED = "not tried"  #: not asked of any engine


@dataclass(frozen=True, slots=True)
class Cell:
    """Who does one case, and how that is known (the surest of those who can do it)."""

    way: CodecSupport
    how: How | None = None


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """One codec with one chroma and bit depth, both ways."""

    codec: MediaCodec
    chroma: str
    bit_depth: int
    decode: Cell
    encode: Cell


_SURENESS: Final = {how: rank for rank, how in enumerate(How)}
_CHROMAS: Final = ("4:2:0", "4:2:2", "4:4:4", "4:0:0")


def all_trials(report: NodeReport) -> tuple[Trial, ...]:
    """Return the trials of all engines of a machine."""
    return (*(trial for device in report.devices for trial in device.trials), *report.software)


def ways(trials: Iterable[Trial]) -> dict[CodecCase, Cell]:
    """Return who does each case that anybody was asked for."""
    cells: dict[CodecCase, Cell] = {}
    for trial in sorted(trials, key=lambda trial: (not trial.works, trial.engine is Engine.CPU, _SURENESS[trial.how])):
        if trial.case not in cells:
            able = CodecSupport.SOFTWARE if trial.engine is Engine.CPU else CodecSupport.HARDWARE
            cells[trial.case] = Cell(able if trial.works else CodecSupport.NONE, trial.how)
    return cells


def capability_matrix(trials: Iterable[Trial]) -> tuple[MatrixRow, ...]:
    """Return a row for each codec, chroma and bit depth that is or was asked for, in a fixed order."""
    cells = ways(trials)
    asked = {(case.codec, case.chroma, case.bit_depth) for case in cells}
    rows = sorted(asked | {(sample.codec, sample.chroma, sample.bit_depth) for sample in SAMPLES}, key=_order)
    untried = Cell(CodecSupport.UNTRIED)
    # What no engine offers to encode was never tried, and cannot be done.
    absent = Cell(CodecSupport.NONE)
    return tuple(
        MatrixRow(
            codec,
            chroma,
            bit_depth,
            cells.get(CodecCase(codec, Direction.DECODE, chroma, bit_depth), untried),
            cells.get(CodecCase(codec, Direction.ENCODE, chroma, bit_depth), absent),
        )
        for codec, chroma, bit_depth in rows
    )


def _order(row: tuple[MediaCodec, str, int]) -> tuple[int, int, int]:
    codec, chroma, bit_depth = row
    known = _CHROMAS.index(chroma) if chroma in _CHROMAS else len(_CHROMAS)
    return (list(MediaCodec).index(codec), known, bit_depth)

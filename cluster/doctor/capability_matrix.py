"""Makes a table of the codecs that a machine decodes and encodes, from the results of trials."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from ..probes.node.report import NodeReport
from ..probes.report.engines import CodecCase, Direction, Engine, How, MediaCodec, Trial
from ..probes.trials.cases import SAMPLES


class CodecSupport(Enum):
    """How a machine supports a codec case."""

    HARDWARE = "hardware"  #: a device's engine supports the case, whether or not software does too
    SOFTWARE = "software"  #: only the CPU supports the case
    NONE = "no"  #: neither a device nor the CPU supports the case
    UNTRIED = "not tried"  #: there is no trial of the case


@dataclass(frozen=True, slots=True)
class Cell:
    """How one case is supported, and how that is known."""

    way: CodecSupport
    how: How | None = None

    @property
    def is_promised(self) -> bool:
        """Whether the case was not tried, but a driver, a document or a simulated fleet claims that it works."""
        return self.way in (CodecSupport.HARDWARE, CodecSupport.SOFTWARE) and self.how is not How.TRIED


_SURENESS: Final = {how: rank for rank, how in enumerate(How)}
_CHROMAS: Final = ("4:2:0", "4:2:2", "4:4:4", "4:0:0")
_CELL_WIDTH: Final = 10
_DEPTHS: Final = (8, 10, 12)

Format: TypeAlias = tuple[MediaCodec, str, int]
"""A codec, its chroma and bit depth."""


def all_trials(report: NodeReport) -> tuple[Trial, ...]:
    """Return the trials of all engines of a machine."""
    return (*(trial for device in report.devices for trial in device.trials), *report.software)


def ways(trials: Iterable[Trial]) -> dict[CodecCase, Cell]:
    """Return how each case in the trials is supported."""
    cells: dict[CodecCase, Cell] = {}
    for trial in sorted(trials, key=lambda trial: (not trial.works, trial.engine is Engine.CPU, _SURENESS[trial.how])):
        if trial.case not in cells:
            able = CodecSupport.SOFTWARE if trial.engine is Engine.CPU else CodecSupport.HARDWARE
            cells[trial.case] = Cell(able if trial.works else CodecSupport.NONE, trial.how)
    return cells


def capability_matrix(trials: Iterable[Trial]) -> dict[Format, tuple[Cell, Cell]]:
    """Return two cells for each known format, one for decoding and one for encoding, in a fixed order."""
    cells = ways(trials)
    asked = {(case.codec, case.chroma, case.bit_depth) for case in cells}
    formats = sorted(asked | {(sample.codec, sample.chroma, sample.bit_depth) for sample in SAMPLES}, key=_order)
    untried = Cell(CodecSupport.UNTRIED)
    # Formats that no engine encodes have no encode trial.
    absent = Cell(CodecSupport.NONE)
    return {
        (codec, chroma, bit_depth): (
            cells.get(CodecCase(codec, Direction.DECODE, chroma, bit_depth), untried),
            cells.get(CodecCase(codec, Direction.ENCODE, chroma, bit_depth), absent),
        )
        for codec, chroma, bit_depth in formats
    }


def _order(row: Format) -> tuple[int, int, int]:
    codec, chroma, bit_depth = row
    known = _CHROMAS.index(chroma) if chroma in _CHROMAS else len(_CHROMAS)
    return (list(MediaCodec).index(codec), known, bit_depth)


def matrix_lines(matrix: Mapping[Format, tuple[Cell, Cell]]) -> Iterator[str]:
    """Yield the matrix: a row per codec and chroma, a column per direction and bit depth."""
    head = "".join(f"{f'{depth} bit':{_CELL_WIDTH}}" for depth in _DEPTHS)
    yield f"{'codecs':16}{'decode':{len(head)}}  encode"
    yield f"{'':16}{head}  {head}".rstrip()
    for codec, chroma in dict.fromkeys((codec, chroma) for codec, chroma, _ in matrix):
        cells = [matrix.get((codec, chroma, depth), (None, None)) for depth in _DEPTHS]
        decode, encode = ("".join(f"{_text(cell):{_CELL_WIDTH}}" for cell in way) for way in zip(*cells, strict=True))
        yield f"  {codec.value:6}{chroma:8}{decode}  {encode}".rstrip()
    yield "  hardware: a device's engine; software: the CPU"
    yield "  ?: not tried; -: no such format"
    if any(cell.is_promised for pair in matrix.values() for cell in pair):
        yield "  *: not tried; claimed by the driver, a document or a simulated fleet"


def _text(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    word = "?" if cell.way is CodecSupport.UNTRIED else cell.way.value
    return f"{word}{'*' if cell.is_promised else ''}"

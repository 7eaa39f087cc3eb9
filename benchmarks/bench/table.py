"""Tables for a terminal, and figures reduced to median and range."""

import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["Spread", "number", "parts", "save_results", "spread", "table_lines"]

RESULTS = Path(__file__).resolve().parents[1] / "results"

Spread = dict[str, float]
"""``median``, ``least`` and ``most`` of some runs."""


def spread(values: Sequence[float]) -> Spread:
    """Return the median of some runs, the smallest and the largest."""
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def parts(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median of some values, the 99th percentile, and the largest."""
    ordered = sorted(values)
    return statistics.median(ordered), ordered[math.ceil(0.99 * len(ordered)) - 1], ordered[-1]


def number(value: float | None, digits: int) -> str:
    """Return a figure with ``digits`` decimals; a dash if it was not measured."""
    return "-" if value is None else f"{value:.{digits}f}"


def table_lines(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return an aligned Markdown table: the first column left-aligned, the others right-aligned."""
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]

    def line(cells: Sequence[str]) -> str:
        first, *rest = zip(cells, widths, strict=True)
        return "| " + " | ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)]) + " |"

    rule = "|" + "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])]) + "|"
    return [line(heads), rule, *(line(row) for row in rows)]


def save_results(name: str, document: dict[str, Any], folder: Path = RESULTS) -> Path:
    """Write results as JSON under a name; the file appears only when it is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    partial.replace(path)
    return path

"""Unfinished work, as text for people."""

from typing import TYPE_CHECKING, Any

from .text import bytes_text, clock_text

if TYPE_CHECKING:
    from ..jobs.journal.found_work import FoundWork


def work_rows(found: "list[FoundWork]") -> list[str]:
    """Return a row for each."""
    if not found:
        return ["no unfinished work"]
    rows = [("state", "segments", "size", "written", "output", "work"), *map(_row, found)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def work_lines(work: "FoundWork") -> list[str]:
    """Return all there is to say of one."""
    facts = work.to_json()
    state, segments, size, written, *_ = _row(work)
    owner = f"process {facts['pid']} on {facts['host']}" if facts["pid"] else ""
    rows = [
        ("work", work.work),
        ("state", state),
        ("source", facts["source"]),
        ("output", facts["output"]),
        ("encoder", facts["encoder_kind"]),
        ("segments", f"{segments} done, {facts['segments_in_flight']} were or are in flight"),
        ("size", size),
        ("written", written),
        ("last owner", owner),
        ("damage", facts["damage"]),
    ]
    return [f"{label:<12}{text}" for label, text in rows if text]


def _row(work: "FoundWork") -> tuple[str, ...]:
    facts: dict[str, Any] = work.to_json()
    segments = f"{facts['segments_done']}/{facts['segments']}" if facts["segments"] is not None else "-"
    written = "-" if work.age_s is None else f"{clock_text(max(0.0, work.age_s))} ago"
    return (work.state.value, segments, bytes_text(work.size_bytes), written, facts["output"] or "-", work.work)

"""Evaluates the decoding benchmark's rows: shares of the best raw figure, scaling, targets, tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from .decode_child import ChildWay
from .decode_fleet import FleetWay, SessionCounts
from .table import number, table_lines

__all__ = ["compare_rows", "first_line", "profile_lines", "row_lines", "session_excess", "target_lines", "targets"]

Row = dict[str, Any]

DEVICE_SHARE, HOST_SHARE, SEGMENT_SHARE, SCALING = 0.97, 0.95, 0.90, 0.97
FIRST_PICTURE_S = 0.5


def compare_rows(rows: Sequence[Row]) -> None:
    """Add to each row its share of the best raw figure with the same number of GPUs, and its scaling.

    Scaling is relative to the same way's best figure on the run's fewest GPUs, multiplied by the ratio of GPUs.
    """
    for row in rows:
        raw = _best(rows, ChildWay.RAW, row["gpus"])
        row["of_best_raw"] = row["fps"]["median"] / raw if raw else None
        fewest = min(other["gpus"] for other in rows)
        alone = _best(rows, row["what"], fewest)
        row["scaling"] = _scaling(row["fps"]["median"], row["gpus"], alone, fewest) if row["gpus"] > fewest else None


def _best(rows: Sequence[Row], what: str, gpus: int) -> float:
    figures = [row["fps"]["median"] for row in rows if row["what"] == what and row["gpus"] == gpus]
    return max(figures, default=0.0)


def _scaling(fps: float, gpus: int, alone_fps: float, fewest: int) -> float | None:
    return fps / gpus / (alone_fps / fewest) if alone_fps else None


def targets(
    rows: Sequence[Row], first_pictures_s: Sequence[float], sessions: Mapping[str, SessionCounts]
) -> list[dict[str, Any]]:
    """Return the targets that this run measured, each with its figure."""
    found: list[dict[str, Any]] = []

    def add(what: str, value: float | None, wanted: float, *, at_most: bool = False) -> None:
        if value is not None:
            is_met = value <= wanted if at_most else value >= wanted
            found.append({"what": what, "value": value, "wanted": wanted, "at_most": at_most, "is_met": is_met})

    for gpus in sorted({row["gpus"] for row in rows}):
        at = f", {gpus} GPU" if gpus == 1 else f", {gpus} GPUs"
        raw = _best(rows, ChildWay.RAW, gpus)
        stream = _best(rows, FleetWay.HOST, gpus)
        add(f"on the device, share of the best raw{at}", _share(_best(rows, FleetWay.DEVICE, gpus), raw), DEVICE_SHARE)
        add(f"in host memory, share of the best raw{at}", _share(stream, raw), HOST_SHARE)
        add(
            f"2 s segments, share of one stream{at}",
            _share(_best(rows, FleetWay.SEGMENTS, gpus), stream),
            SEGMENT_SHARE,
        )
    fewest = min((row["gpus"] for row in rows), default=1)
    for gpus in sorted({row["gpus"] for row in rows} - {fewest}):
        for way in (ChildWay.RAW, *FleetWay):
            alone = _best(rows, way, fewest)
            fps = _best(rows, way, gpus)
            add(f"{way.value}: {gpus} GPUs over {fewest}", _scaling(fps, gpus, alone, fewest) if fps else None, SCALING)
    add("first picture of a warm worker, worst, s", max(first_pictures_s, default=None), FIRST_PICTURE_S, at_most=True)
    excess = [counts.made / counts.at_once for counts in sessions.values() if counts.at_once]
    add("sessions made for each thread, at most", max(excess, default=None), 1.0, at_most=True)
    return found


def _share(part: float, whole: float) -> float | None:
    return part / whole if part and whole else None


def session_excess(sessions: Mapping[str, SessionCounts]) -> list[str]:
    """Name the workers that made more sessions than they had busy threads, although the film has a single format."""
    return [
        f"{device}: {counts.made} sessions for {counts.at_once} threads"
        for device, counts in sessions.items()
        if counts.made > counts.at_once
    ]


def row_lines(rows: Sequence[Row]) -> list[str]:
    """Return the rows as a table."""
    heads = (
        "decoding",
        "GPUs",
        "sessions",
        "fps",
        "least to most",
        "of best raw",
        "scaling",
        "NVDEC",
        "cores",
        "stolen",
    )
    cells = [
        [
            row["what"],
            str(row["gpus"]),
            str(row["sessions"]),
            number(row["fps"]["median"], 0),
            f"{number(row['fps']['least'], 0)} to {number(row['fps']['most'], 0)}",
            number(row["of_best_raw"], 3),
            number(row["scaling"], 3),
            " ".join(f"{percent}" for percent in row["nvdec_percent"]) + " %",
            number(row["busy_cores"], 1),
            number(row["stolen_cores"], 2),
        ]
        for row in rows
    ]
    return table_lines(heads, cells)


def target_lines(found: Sequence[dict[str, Any]]) -> list[str]:
    """Return the targets as a table."""
    cells = [
        [
            one["what"],
            number(one["value"], 3),
            f"{'at most' if one['at_most'] else 'at least'} {one['wanted']:g}",
            "met" if one["is_met"] else "MISSED",
        ]
        for one in found
    ]
    return table_lines(("target", "measured", "wanted", ""), cells)


def first_line(first_pictures_s: Sequence[float], median_s: float) -> str:
    """Return the time to the first picture in one line."""
    return (
        f"first picture after {median_s * 1e3:.1f} ms, at worst {max(first_pictures_s) * 1e3:.1f} ms "
        f"({len(first_pictures_s)} segments, one after the other, on a warm worker)"
    )


def profile_lines(profiles: Sequence[dict[str, Any]]) -> list[str]:
    """Return profiles as a table of thread microseconds per picture."""
    stages = list(dict.fromkeys(name for one in profiles for name in one["stages_us_per_picture"]))
    heads = ("thread us per picture", "GPUs", "sessions", "fps", "all", *stages)
    cells = [
        [
            one["what"],
            str(one["gpus"]),
            str(one["sessions"]),
            number(one["fps"], 0),
            number(one["thread_us_per_picture"], 1),
            *(number(one["stages_us_per_picture"].get(name, 0.0), 1) for name in stages),
        ]
        for one in profiles
    ]
    return table_lines(heads, cells)

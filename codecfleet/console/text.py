"""Numbers, times and the proof as text."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from ..cluster.grouping import counted
from ..errors import one_line

if TYPE_CHECKING:
    from ..jobs.report.events import JournalOpened, Planned, Progress, SegmentFinished, StageStarted
    from ..jobs.report.report import LoudnessReport, Report, TargetReport, Warning_


_THOUSAND: Final = 1_000
_BYTE_UNITS: Final = ("bytes", "kB", "MB", "GB", "TB")
LABEL_WIDTH: Final = 10
_ROWS_SHOWN: Final = 20
_STAGES: Final = {
    "index": "reading the index",
    "plan": "planning",
    "startup": "starting workers",
    "probe": "probing the film",
    "encode": "encoding",
    "gather": "joining",
    "proof": "reading the output back",
    "publish": "publishing",
}
"""The words that name each stage of a job to the user."""


def bytes_text(size_bytes: int) -> str:
    """Return a size with a decimal unit and about three digits: ``712 bytes``, ``4.2 MB``."""
    size, units = float(size_bytes), list(_BYTE_UNITS)
    while round(size, 1) >= _THOUSAND and len(units) > 1:
        size /= _THOUSAND
        units.pop(0)
    return f"{size_bytes} bytes" if len(units) == len(_BYTE_UNITS) else f"{size:.1f} {units[0]}"


def clock_text(seconds: float) -> str:
    """Return a duration as ``0:42``, ``12:05`` or ``1:02:03``, rounded to whole seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def pace_text(event: "Progress", plan: "Planned | None") -> str:
    """Return ``410/1200 frames, 45.2 fps, 1.88x real time, 0:17 left``."""
    parts = [f"{event.frames_done}/{event.frames_total} frames"]
    parts.append(speed_text(event.fps, *((plan.frames, plan.duration_s) if plan is not None else (0, None))))
    if event.eta_s is not None:
        parts.append(f"{clock_text(event.eta_s)} left")
    return ", ".join(parts)


def speed_text(fps: float, frames: int, duration_s: Fraction | None) -> str:
    """Return ``45.2 fps, 1.88x real time``, or only ``45.2 fps`` if the film's length is unknown."""
    text = f"{fps:.1f} fps"
    return f"{text}, {fps * float(duration_s / frames):.2f}x real time" if frames and duration_s else text


def planned_text(event: "Planned") -> str:
    """Return the plan in one line."""
    warm = "" if event.warm_fleet is None else f" of the warm fleet (process {event.warm_fleet})"
    return (
        f"{clock_text(float(event.duration_s))} of video, {counted(event.frames, 'frame')} to {event.codec} "
        f"({event.encoder}) in {counted(event.segments, 'segment')} on {counted(event.workers, 'worker')}{warm}"
    )


def stage_text(event: "StageStarted") -> str:
    """Return the description of a stage for the user, such as "starting workers"."""
    return _STAGES.get(event.stage, event.stage)


def restored_text(event: "JournalOpened") -> str:
    """Return one line about the earlier run from which this run continues."""
    restored = f"{counted(event.restored, 'segment')} finished by an earlier run"
    return f"continuing: {restored}, {event.redone} to be done again"


def segment_text(event: "SegmentFinished") -> str:
    """Return one line that describes a finished segment."""
    size = bytes_text(event.payload_bytes)
    return f"segment {event.segment} finished: {counted(event.frames, 'frame')}, {size} in {event.wall_s:.1f} s"


def proof_lines(report: "Report", report_path: str | None, shown: frozenset[str] = frozenset()) -> list[str]:
    """Return the proof and the paths of the files.

    ``report_path`` is the path of the report, if one was written. Warnings whose message is in ``shown`` are only
    counted.
    """
    proof = report.proof
    rows = [
        ("output", f"{report.output} ({_output_text(report)})"),
        ("frames", _frames_text(report)),
        ("times", _times_text(report)),
        ("seams", f"{proof.seams_equal} of {proof.seams} agree picture by picture" if proof.seams else ""),
        ("SHA-256", proof.output_sha256),
        ("continued", _resumed_text(report)),
        ("engines", _engines_text(report)),
        ("speed", _speed_of_report(report)),
        ("quality", "" if report.quality is None else _quality_text(report.quality)),
        ("tracks", _tracks_text(report)),
        *_rows("changes", [choice.message for choice in report.choices]),
        ("loudness", "; ".join(_loudness_text(each) for each in report.loudness)),
        *_warning_rows(report.warnings, shown),
    ]
    rows.append(("report", report_path or ""))
    return labelled(((label, one_line(text)) for label, text in rows), LABEL_WIDTH)


def _loudness_text(loudness: "LoudnessReport") -> str:
    name = f"track {loudness.source_index}"
    if loudness.source_lufs is None or loudness.lufs is None:
        return f"{name} is too quiet to measure"
    return f"{name} {loudness.lufs:.1f} LUFS ({loudness.source_lufs:.1f} in the source, {loudness.gain_db:+.1f} dB)"


def _quality_text(quality: "TargetReport") -> str:
    reached = "nothing" if quality.reached is None else f"{quality.reached:.4g}"
    best, worst = quality.crfs
    return f"{reached} reached, {quality.asked} asked; CRF {best:g} to {worst:g}, {quality.encodes} encodes"


def _frames_text(report: "Report") -> str:
    proof = report.proof
    due = proof.frames_in if proof.frames_due is None else proof.frames_due
    same = due == proof.frames_out == proof.output_frames
    held = "every frame appears once" if report.frame_rate is None else f"all {report.frame_rate} frames of each second"
    counts = f"{proof.frames_in} in, {proof.frames_out} out, {proof.output_frames} read back"
    return f"{counts}: {held if same else 'DIFFERENT'}"


def _times_text(report: "Report") -> str:
    proof, due = report.proof, "equal to the source's"
    if report.frame_rate is not None:
        due = f"a multiple of 1 / ({report.frame_rate}) s after the first"
    elif report.start_s is not None and _seconds(report.start_s):
        due = f"the source's, counted from its first picture at or after {_decimal(report.start_s)} s"
    held = f"each {due}" if proof.times_equal else "DIFFERENT"
    return f"{_decimal(proof.first_pts_s)} s to {_decimal(proof.last_pts_s)} s, {held}"


def _output_text(report: "Report") -> str:
    picture = f"{report.width}x{report.height} {report.pix_fmt}"
    text = f"{bytes_text(report.output_bytes)}, {report.codec} in {report.container}, {picture}"
    duration_s = _seconds(report.duration_s)
    return f"{text}, {float(report.output_bytes * 8 / duration_s / 1000):.0f} kbit/s" if duration_s else text


def _engines_text(report: "Report") -> str:
    """Return which devices decoded and encoded, or why no GPU was used; "" if no GPU was considered."""
    on_device = sum(segment.decoded_by == "nvdec" for segment in report.segments)
    encoder = report.encoder_kind.partition(" ")[0]
    if not on_device and not encoder.endswith("_nvenc"):
        return f"no GPU: {report.gpu_refusal}" if report.gpu_refusal else ""
    return f"NVDEC decoded {on_device} of {counted(len(report.segments), 'segment')}, {encoder} encoded"


def _resumed_text(report: "Report") -> str:
    """Return how much of the job an earlier run had done; "" if there was no earlier run."""
    if report.resumed is None:
        return ""
    if report.resumed.published:
        return "an earlier run had published the output; its leftover files were removed"
    return f"{counted(report.resumed.restored, 'segment')} of an earlier run, {report.resumed.redone} done again"


def _speed_of_report(report: "Report") -> str:
    total_s = report.timings_s.get("total")
    speed = speed_text(report.fps, report.frames, _seconds(report.duration_s))
    text = f"{speed} on {counted(report.workers, 'worker')}, {counted(len(report.segments), 'segment')}"
    return text if total_s is None else f"{text}; {total_s:.1f} s in all"


def _seconds(text: str) -> Fraction | None:
    """Return the seconds that a fraction or decimal in a report means; None for any other value."""
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        return None


def _decimal(text: str) -> str:
    """Return an exact time of a report, rounded to the microsecond: ``29.958333`` for ``719/24``."""
    seconds = _seconds(text)
    return text if seconds is None else f"{float(seconds):.6f}".rstrip("0").rstrip(".")


def _tracks_text(report: "Report") -> str:
    burnt = None if report.burnt is None else report.burnt.source_index
    actions = [(each.kind, "burnt in" if each.source_index == burnt else each.action) for each in report.tracks]
    counts = Counter(f"{kind} {action}" for kind, action in actions)
    return ", ".join(key if count == 1 else f"{count} {key}" for key, count in counts.items())


def _warning_rows(warnings: "tuple[Warning_, ...]", shown: frozenset[str]) -> Iterator[tuple[str, str]]:
    new = [warning for warning in warnings if warning.message not in shown]
    count = str(len(warnings)) if new else f"{len(warnings)}, shown above"
    yield "warnings", count if warnings else "none"
    yield from _rows("", [f"{warning.message} [{warning.code}]" for warning in new])


def _rows(label: str, texts: list[str]) -> Iterator[tuple[str, str]]:
    """Yield rows for the first ``texts``, with the label in the first row, and then the number of further texts."""
    for number, text in enumerate(texts[:_ROWS_SHOWN]):
        yield "" if number else label, text
    if len(texts) > _ROWS_SHOWN:
        yield "", f"and {len(texts) - _ROWS_SHOWN} more: --report lists them all"


def labelled(rows: Iterable[tuple[str, str]], width: int) -> list[str]:
    """Return a line for each label with its text; labels without text are left out."""
    return [f"{label:<{width}}{text}" for label, text in rows if text]


def column_lines(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return a line for each row, with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]

"""Ray jobs, as text for people and for programs."""

import time
from typing import TYPE_CHECKING, Any

from ..errors import one_line
from .text import clock_text

if TYPE_CHECKING:
    from ..cluster.submission.job_server import RayJob


def job_rows(jobs: "list[RayJob]", now_utc_s: float | None = None) -> list[str]:
    """Return a row for each."""
    if not jobs:
        return ["no job of codecfleet's"]
    now_utc_s = time.time() if now_utc_s is None else now_utc_s
    rows = [("state", "for", "job", "command"), *(_row(job, now_utc_s) for job in jobs)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _row(job: "RayJob", now_utc_s: float) -> tuple[str, ...]:
    ran = "-"
    if job.started_utc_s is not None:
        ran = clock_text(max(0.0, (job.ended_utc_s or now_utc_s) - job.started_utc_s))
    return (job.phase.value.lower(), ran, job.job_id, one_line(job.command))


def job_json(job: "RayJob") -> dict[str, Any]:
    """Return it as plain JSON values."""
    return {
        "job": job.job_id,
        "state": job.phase.value.lower(),
        "command": job.command,
        "message": job.message,
        "exit_code": job.exit_code,
        "started_utc_s": job.started_utc_s,
        "ended_utc_s": job.ended_utc_s,
    }

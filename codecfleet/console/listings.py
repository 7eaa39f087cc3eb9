"""The lists that commands print: of jobs, unfinished work, presets, and settings."""

import json
import shlex
import time
from typing import TYPE_CHECKING, Any

from ..errors import one_line
from .text import bytes_text, clock_text, column_lines, labelled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..cluster.queue.tenants import Tenant
    from ..cluster.queue.values import QueuedJob, UsageRow
    from ..cluster.submission.job_server import RayJob
    from ..jobs.journal.found_work import FoundWork
    from ..jobs.request.config import Config
    from ..jobs.request.presets import NamedPreset


def work_rows(found: "list[FoundWork]") -> list[str]:
    """Return a row for each unfinished job."""
    rows = [("state", "segments", "size", "written", "output", "work"), *map(_work_row, found)]
    return column_lines(rows) if found else ["no unfinished work"]


def work_lines(work: "FoundWork") -> list[str]:
    """Return everything known about one unfinished job."""
    facts = work.to_json()
    state, segments, size, written, *_ = _work_row(work)
    rows = [
        ("work", work.work),
        ("state", state),
        ("source", facts["source"]),
        ("output", facts["output"]),
        ("encoder", facts["encoder_kind"]),
        ("segments", f"{segments} done, {facts['segments_in_flight']} in progress or interrupted"),
        ("size", size),
        ("written", written),
        ("last owner", f"process {facts['pid']} on {facts['host']}" if facts["pid"] else ""),
        ("damage", facts["damage"]),
    ]
    return labelled(rows, 12)


def _work_row(work: "FoundWork") -> tuple[str, ...]:
    facts: dict[str, Any] = work.to_json()
    segments = f"{facts['segments_done']}/{facts['segments']}" if facts["segments"] is not None else "-"
    written = "-" if work.age_s is None else f"{clock_text(max(0.0, work.age_s))} ago"
    return (work.state.value, segments, bytes_text(work.size_bytes), written, facts["output"] or "-", work.work)


def job_rows(jobs: "list[RayJob]", now_utc_s: float | None = None) -> list[str]:
    """Return a row for each Ray job."""
    now_utc_s = time.time() if now_utc_s is None else now_utc_s
    rows = [("state", "for", "job", "command"), *(_job_row(job, now_utc_s) for job in jobs)]
    return column_lines(rows) if jobs else ["no codecfleet jobs"]


def _job_row(job: "RayJob", now_utc_s: float) -> tuple[str, ...]:
    ran = "-"
    if job.started_utc_s is not None:
        ran = clock_text(max(0.0, (job.ended_utc_s or now_utc_s) - job.started_utc_s))
    return (job.phase.value.lower(), ran, job.job_id, one_line(job.command))


def job_json(job: "RayJob") -> dict[str, Any]:
    """Return a Ray job as JSON values: its command, state, message, exit code and times."""
    return {
        "job": job.job_id,
        "state": job.phase.value.lower(),
        "command": job.command,
        "message": job.message,
        "exit_code": job.exit_code,
        "started_utc_s": job.started_utc_s,
        "ended_utc_s": job.ended_utc_s,
    }


def printed_answer(job_id: str, text: str) -> tuple[list[str], dict[str, Any]]:
    """Return the output of a job, as lines and as JSON values."""
    return text.splitlines(), {"schema": 1, "job": job_id, "log": text}


def queue_answer(
    jobs: "Sequence[QueuedJob]", *, is_one: bool = False, now_utc_s: float | None = None
) -> tuple[list[str], dict[str, Any]]:
    """Return text and JSON values about the jobs of a queue; about a single job, everything that is known."""
    now_utc_s = time.time() if now_utc_s is None else now_utc_s
    names = "state", "for", "attempts", "priority", "tenant", "cost", "job", "command"
    rows = [names, *(_queue_row(job, now_utc_s) for job in jobs)]
    lines = _queue_lines(jobs[0]) if is_one else column_lines(rows) if jobs else ["no jobs"]
    return lines, {"schema": 1, "jobs": [job.to_json() for job in jobs]}


def _queue_row(job: "QueuedJob", now_utc_s: float) -> tuple[str, ...]:
    began_s = job.submitted_s if job.began_s is None else job.began_s
    lasted_s = (now_utc_s if job.ended_s is None else job.ended_s) - began_s
    counts = str(job.attempt), str(job.priority)
    return (
        _state(job),
        clock_text(max(0.0, lasted_s)),
        *counts,
        job.tenant,
        _cost(job.cost),
        job.job_id,
        _command(job),
    )


def _queue_lines(job: "QueuedJob") -> list[str]:
    rows = [
        ("job", job.job_id),
        ("state", _state(job)),
        ("command", _command(job)),
        ("folder", job.command.folder),
        ("tenant", job.tenant),
        ("priority", str(job.priority)),
        ("submitted", _utc(job.submitted_s)),
        ("due", _utc(job.due_s)),
        ("began", _utc(job.began_s)),
        ("ended", _utc(job.ended_s)),
        ("attempts", f"{job.attempt}, {job.failures} failed, {job.losses} lost with their driver"),
        ("driver", job.driver),
        ("used", ", ".join(_used(job)) if any((job.core_s, job.gpu_s, job.written_bytes)) else ""),
        ("cost", _cost(job.cost)),
        ("exit code", "" if job.exit_code is None else str(job.exit_code)),
        ("error", " ".join(filter(None, (job.error and f"{job.error}: {job.message}.", job.next_step)))),
    ]
    return labelled([(name, one_line(value)) for name, value in rows], 12)


def tenants_answer(tenants: "Sequence[Tenant]") -> tuple[list[str], dict[str, Any]]:
    """Return text and JSON values about the tenants of a queue."""
    facts = [
        {
            "tenant": each.name,
            "token": each.token,
            "queued": each.queued,
            "running": each.use.running,
            "used_s": each.use.used_s,
            **each.use.used._asdict(),
            "exceeded": each.quota.exceeded(each.use.used),
            **each.quota.model_dump(),
        }
        for each in tenants
    ]
    limits = "share", "queued_max", "running_max", "priority_max"
    shown = "tenant", "token", "queued", "running", "used_s", "exceeded", *limits
    rows = [shown, *(tuple(_figure(each[name]) or "-" for name in shown) for each in facts)]
    return column_lines(rows) if facts else ["no tenants"], {"schema": 1, "tenants": facts}


def usage_answer(found: "Sequence[UsageRow]") -> tuple[list[str], dict[str, Any]]:
    """Return text and JSON values about the use of a queue's drivers by tenants or jobs."""
    names = "tenant", "attempts", "for", "cores", "GPUs", "written", "cost", "job"
    rows = [
        (each.tenant, str(each.attempts), clock_text(each.run_s), *_used(each), _cost(each.cost), each.job_id)
        for each in found
    ]
    facts = [each._asdict() for each in found]
    return column_lines([names, *rows]) if found else ["no attempts have ended"], {"schema": 1, "usage": facts}


def _used(used: "QueuedJob | UsageRow") -> tuple[str, str, str]:
    return f"{used.core_s:.1f} core s", f"{used.gpu_s:.1f} GPU s", bytes_text(used.written_bytes)


def _figure(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else one_line(str(value))


def _cost(cost: float) -> str:
    return f"{cost:.4f}" if cost else "-"


def _state(job: "QueuedJob") -> str:
    return "cancelling" if job.is_cancelling else job.state.value


def _command(job: "QueuedJob") -> str:
    return one_line(shlex.join(job.command.arguments))


def _utc(at_s: float | None) -> str:
    return "" if at_s is None else time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at_s))


def config_lines(config: "Config") -> list[str]:
    """Return the configuration in the syntax of its file, with a comment about the origin of each value."""
    document = config.to_json()
    rows = [(_assigned(key), _origin(key)) for key in document["keys"]]
    width = max(len(assigned) for assigned, _ in rows)
    path = "none: this user has no home folder" if document["path"] is None else document["path"]
    there = "" if document["is_there"] or document["path"] is None else " (not there)"
    return [f"# {path}{there}", *(f"{assigned:<{width}}  # {origin}" for assigned, origin in rows)]


def _assigned(key: dict[str, Any]) -> str:
    if key["value"] is None:
        return f"# {key['key']}"
    return f"{key['key']} = {json.dumps(key['value'], ensure_ascii=False)}"


def _origin(key: dict[str, Any]) -> str:
    return key["place"] or ("default" if key["value"] is not None else f"default: {key['default']}")


def preset_rows(presets: "Sequence[NamedPreset]") -> list[str]:
    """Return a row for each preset; presets of the user are marked."""
    return column_lines(
        [("preset", "codec", "for"), *((each.name, each.codec or "-", _purpose(each)) for each in presets)]
    )


def _purpose(preset: "NamedPreset") -> str:
    if not preset.is_own:
        return preset.summary
    hides = ", replaces the built-in one" * preset.hides
    return f"{preset.summary} (yours: {preset.path}{hides})".lstrip()

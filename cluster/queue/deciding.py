"""Decides what happens to a job of a queue: pure functions of the job, the event and the store's time."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from ...actors.tracing import PARENT
from ...errors import QueueFull, Retry, TenantRefused, UsageError, WorkError
from .tenants import QueuePolicy, TenantQuota
from .values import EDGES, QueuedCommand, QueuedJob, QueueState, RunEnd, TenantUse, TokenHolder, Usage

FAILURES_MAX: Final = 3
"""A job is parked after this many failures."""
LOSSES_MAX: Final = 8
"""A job is parked after this many of its drivers were lost, because the job may have ended them."""
WAIT_S: Final = 30.0
"""How long a job waits after a failure; after the first, another driver may try it at once."""
CLAIM_S: Final = 1.0
"""Each attempt adds this many seconds and its duration to its tenant's use, so that even an instant attempt counts."""
_LOST: Final = "its driver's lease ended"


def admit(waiting: int, tenant: str, queued_max: int, option: str) -> None:
    """Raise QueueFull if a tenant with ``waiting`` queued and running jobs may submit no more.

    ``option`` is the command-line option that names this queue; the error's next step contains it.
    """
    if waiting >= queued_max:
        message = f"the queue is full: {tenant} has {waiting} jobs in it, {queued_max} at most"
        raise QueueFull(message, f"Submit again when some have ended, or cancel some: `codecfleet jobs list{option}`.")


def same(job: QueuedJob, command: QueuedCommand, tenant: str, option: str) -> QueuedJob:
    """Return a job that was submitted again. Raises UsageError: the id belongs to another command or tenant."""
    if (_untraced(job.command), job.tenant) != (_untraced(command), tenant):
        step = f"`codecfleet jobs show {job.job_id}{option}` shows it."
        raise UsageError(f"there is a job {job.job_id} with another command or of another tenant", step)
    return job


def _untraced(command: QueuedCommand) -> QueuedCommand:
    """Return a command without the id of its trace span, which differs at each submission."""
    return replace(command, variables={name: value for name, value in command.variables.items() if name != PARENT})


def identified(declared: str, token: str | None, holder: TokenHolder | None, *, is_open: bool) -> str:
    """Return the tenant who submits: the token's holder or, in a queue without tokens, the ``declared`` tenant.

    ``declared`` is "" if the command names no tenant; ``is_open`` says that the queue needs no token. Raises
    TenantRefused: the token is missing, unknown or revoked, or belongs to another tenant.
    """
    owner = "Ask the queue's owner for a token"
    if is_open:
        return declared
    if token is None:
        step = f"{owner}, and name its file in the setting queue_token (CODECFLEET_QUEUE_TOKEN)."
        raise TenantRefused("this queue takes jobs only from tenants with a token", step)
    if holder is None:
        raise TenantRefused("the queue does not know this token", f"{owner}, or name the queue that it is for.")
    if holder.is_revoked:
        message = f"the token of {holder.tenant} was revoked"
        raise TenantRefused(message, f"{owner}. Jobs that were submitted with the revoked token go on.")
    if declared not in ("", holder.tenant):
        raise TenantRefused(f"the token belongs to {holder.tenant}, not to {declared}", "Leave --tenant out.")
    return holder.tenant


def allow(priority: int, tenant: str, quota: TenantQuota) -> None:
    """Raise TenantRefused if a tenant may not give a job this priority."""
    if priority > quota.priority_max:
        message = f"{tenant} may give jobs a priority of {quota.priority_max:,} at most, not {priority:,}"
        raise TenantRefused(message, "Give a lower priority, or ask the queue's owner for a higher limit.")


def chosen(
    waiting: Sequence[QueuedJob], uses: Mapping[str, TenantUse], policy: QueuePolicy, most: int
) -> list[QueuedJob]:
    """Return at most ``most`` jobs, in the order in which drivers should run them.

    The highest priority comes first, then the tenant that has used least in proportion to its share, then the job that
    is due first, then the oldest. So among jobs of equal priority, a tenant that has used nothing waits for at most one
    job of each other tenant that has used nothing.
    """
    own: dict[str, list[QueuedJob]] = {}  # each tenant's jobs, the next one at the end of the list
    for job in sorted(waiting, key=_own_order, reverse=True):
        own.setdefault(job.tenant, []).append(job)
    quotas = {tenant: policy.quota(tenant) for tenant in own}
    uses = {tenant: uses.get(tenant, TenantUse()) for tenant in own}
    own = {tenant: jobs for tenant, jobs in own.items() if not quotas[tenant].exceeded(uses[tenant].used)}
    found: list[QueuedJob] = []
    while len(found) < most:
        ready = [
            (-jobs[-1].priority, uses[tenant].used_s / quotas[tenant].share, _own_order(jobs[-1]), tenant)
            for tenant, jobs in own.items()
            if jobs and uses[tenant].running < quotas[tenant].running_max
        ]
        if not ready:
            break
        *_, tenant = min(ready)
        found.append(own[tenant].pop())
        use = uses[tenant]
        uses[tenant] = use._replace(running=use.running + 1, used_s=use.used_s + CLAIM_S)
    return found


def _own_order(job: QueuedJob) -> tuple[int, float, int]:
    return -job.priority, math.inf if job.due_s is None else job.due_s, job.number


def claimed(job: QueuedJob, driver: str, now_s: float, lease_s: float) -> QueuedJob:
    """Return a job that a driver has claimed."""
    job = _to(job, QueueState.RUNNING)
    return replace(
        job, attempt=job.attempt + 1, driver=driver, lease_ends_s=now_s + lease_s, began_s=now_s, ended_s=None
    )


def expired(job: QueuedJob, now_s: float) -> QueuedJob:
    """Return a running job whose lease has ended: queued again, parked after too many losses, or cancelled."""
    losses = job.losses + 1
    if job.is_cancelling:
        return _over(replace(job, losses=losses), QueueState.CANCELLED, now_s)
    job = replace(job, losses=losses, error=WorkError.__name__, message=_LOST, next_step="")
    if losses < LOSSES_MAX:
        return _to(job, QueueState.QUEUED)
    message = f"its driver's lease ended {losses} times"
    step = "The job may be what ends drivers: look at their logs before you retry it."
    return _over(replace(job, message=message, next_step=step), QueueState.PARKED, now_s)


def ended(job: QueuedJob, end: RunEnd, now_s: float) -> QueuedJob:
    """Return a running job whose attempt has ended: done, failed, parked, cancelled, or queued again."""
    if end.exit_code is None:
        return _over(job, QueueState.CANCELLED, now_s) if job.is_cancelling else _to(job, QueueState.QUEUED)
    job = replace(job, exit_code=end.exit_code, error=end.error, message=end.message, next_step=end.next_step)
    if end.exit_code == 0:
        return _over(job, QueueState.DONE, now_s)
    if job.is_cancelling:
        return _over(job, QueueState.CANCELLED, now_s)
    job = replace(job, waits_until_s=now_s + WAIT_S)
    if end.exit_code < WorkError.exit_code:
        if end.retry is Retry.NEVER:
            return _over(job, QueueState.FAILED, now_s)
        return _to(job, QueueState.QUEUED)  # for example, another program still writes the job's output
    job = replace(job, failures=job.failures + 1)
    return _to(job, QueueState.QUEUED) if job.failures < FAILURES_MAX else _over(job, QueueState.PARKED, now_s)


def charged(job: QueuedJob, used: Usage, cost: float) -> QueuedJob:
    """Return a job with the use and cost of one more attempt."""
    return replace(
        job,
        core_s=job.core_s + used.core_s,
        gpu_s=job.gpu_s + used.gpu_s,
        written_bytes=job.written_bytes + used.written_bytes,
        cost=job.cost + cost,
    )


def cancelled(job: QueuedJob, now_s: float) -> QueuedJob:
    """Return a cancelled job. A running job is only marked, for its driver to stop it; an ended job stays as it is."""
    if job.state is QueueState.RUNNING:
        return replace(job, is_cancelling=True)
    return job if job.state.is_over else _over(job, QueueState.CANCELLED, now_s)


def retried(job: QueuedJob) -> QueuedJob:
    """Return a job that is queued again, with no failures or losses. Raises UsageError: the job cannot be retried."""
    if QueueState.QUEUED not in EDGES[job.state] or not job.state.is_over:
        step = "Only a job that failed, was parked or was cancelled can be retried."
        raise UsageError(f"job {job.job_id} is {job.state.value}", step)
    again = _to(job, QueueState.QUEUED)
    return replace(again, failures=0, losses=0, waits_until_s=0.0, ended_s=None, is_cancelling=False)


def _over(job: QueuedJob, state: QueueState, now_s: float) -> QueuedJob:
    return replace(_to(job, state), ended_s=now_s, is_cancelling=False)


def _to(job: QueuedJob, state: QueueState) -> QueuedJob:
    if state not in EDGES[job.state]:
        raise ValueError(f"a job cannot go from {job.state} to {state}")
    return replace(job, state=state)

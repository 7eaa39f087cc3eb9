"""The commands ``tenants`` and ``usage``: who may use a queue, and what each tenant has used."""

import asyncio
from typing import Annotated, Final

import typer

from ...errors import UsageError
from ...jobs.request.values import parse_choice, parse_path, parse_time
from ..params import JSON, valued
from ..question import Question
from ..services import Answer, Commands, Services
from .submit import QUEUE, JobsPlace

_NAMED: Final = {"policy": "FILE", "token": "NAME", "revoke": "NAME"}
"""The argument that each action needs; ``list`` needs none."""


def _tenants(
    action: Annotated[
        str,
        typer.Argument(
            metavar="list|policy|token|revoke",
            help="list the tenants; give the queue a policy; make or revoke a tenant's token.",
            show_default=False,
        ),
    ],
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE|NAME",
            help="For policy: the policy's file (see docs/queue.md). For token and revoke: the tenant.",
            show_default=False,
        ),
    ] = None,
    *,
    queue: str | None = QUEUE,
    as_json: bool = JSON,
) -> Question:
    chosen = parse_choice("ACTION", action, choices=("list", *_NAMED))
    needs = _NAMED.get(chosen)
    if (name is None) != (needs is None):
        message = f"tenants {chosen} {f'needs {needs}' if needs else 'takes no name'}"
        raise UsageError(message, "See codecfleet tenants --help.")
    about = "" if name is None or needs is None else parse_path(needs, name)
    place = JobsPlace.of(queue, None, asks_cluster=False).queue
    return Question(
        ask=lambda services, _progress: asyncio.run(_asked(services, chosen, about, place)), as_json=as_json
    )


async def _asked(services: Services, action: str, name: str, place: str | None) -> Answer:
    from ...console.listings import tenants_answer

    async with services.open_queue(place, makes=action in ("policy", "token")) as queue:
        if action == "token":
            token = await queue.make_token(name)
            return Answer([token], {"schema": 1, "tenant": name, "token": token})
        if action == "policy":
            await queue.set_policy(name)
        elif action == "revoke":
            await queue.revoke_token(name)
        return Answer(*tenants_answer(await queue.tenants()))


def _usage(
    *,
    by: str | None = valued("--by", "tenant|job", "Show one row per tenant, or one per job. Default: tenant."),
    since: str | None = valued(
        "--since", "TIME", "Only attempts that ended in the last TIME: 90s, 24:00:00. Default: all."
    ),
    queue: str | None = QUEUE,
    as_json: bool = JSON,
) -> Question:
    chosen = parse_choice("--by", by or "tenant", choices=("tenant", "job"))
    since_s = None if since is None else float(parse_time("--since", since))
    place = JobsPlace.of(queue, None, asks_cluster=False).queue
    return Question(
        ask=lambda services, _progress: asyncio.run(_summed(services, place, since_s, by_job=chosen == "job")),
        as_json=as_json,
    )


async def _summed(services: Services, place: str | None, since_s: float | None, *, by_job: bool) -> Answer:
    from ...console.listings import usage_answer

    async with services.open_queue(place, makes=False) as queue:
        return Answer(*usage_answer(await queue.usage(by_job=by_job, since_s=since_s)))


COMMANDS: Final[Commands] = {
    "tenants": (
        _tenants,
        ["tenants list", "tenants policy queue.toml", "(umask 077; codecfleet tenants token films > films.token)"],
    ),
    "usage": (_usage, ["usage", "usage --by job --since 24:00:00 --json"]),
}

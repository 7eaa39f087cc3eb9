"""What the commands call: the seam between the command line and the product.

Imports happen in the calls, so that ``--help`` is quick and only ``transcode`` loads Ray. Tests pass their own
``Services``.
"""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TextIO, TypeAlias

from .calls import fleet_calls, job_calls
from .calls.answers import Answer, BatchLike, FleetLike, Machines, NodeLike, NodeRequest

if TYPE_CHECKING:
    from ..cluster.fleet.status_messages import SupervisorSide
    from ..cluster.node.listed import ListedNode
    from ..cluster.operate.desk import AskDesk
    from ..cluster.operate.watch import Seen
    from ..cluster.placement.model import Demand
    from ..cluster.probes.node import NodeReport, SilentNode
    from ..cluster.submission.job_server import JobServer
    from ..cluster.supervisor.status import Status
    from ..jobs.batch.preview import Intended, Preview
    from ..jobs.request.spec import BatchSpec, TranscodeSpec
    from ..jobs.stills.spec import StillsSpec
    from .files import VerifyRequest
    from .plan import PlanOn, Surveyed


def _plan(spec: "TranscodeSpec", on: "PlanOn") -> Answer:
    from ..jobs.plan.plan import plan_transcode
    from .plan import place_on

    plan = plan_transcode(spec)
    placed = place_on(plan, on, _survey)
    plan = replace(plan, expected=placed.expected)
    elsewhere = any(each is not None for each in (on.fleet, on.autoscale, on.address))
    lines = placed.lines() if elsewhere else [placed.summary()]
    return Answer([*plan.lines(), *lines], {**plan.to_json(), "placement": placed.to_json()})


def _survey(address: str, demand: "Demand") -> "Surveyed":
    import asyncio

    from ..cluster.operate.desk import ReadGrowth, Survey, desk_of
    from ..errors import CodecfleetError
    from .plan import Surveyed

    async def look() -> Surveyed:
        async with desk_of(address) as ask:
            found = await ask(Survey())
            try:
                return Surveyed(found, await ask(ReadGrowth(demand)))
            except CodecfleetError as error:
                return Surveyed(found, f"which nodes would be asked for is not known: {error.message}")

    return asyncio.run(look())


def _check(arguments: Sequence[str]) -> "CommandRequest | int":
    from .app import parse

    return parse(arguments)


def _verify(pair: "VerifyRequest", progress: Callable[[int], None]) -> Answer:
    from ..jobs.verify.job import verify

    verdict = verify(
        pair.source,
        pair.output,
        video_track=pair.video_track,
        audio_tracks=pair.audio_tracks,
        start_s=pair.start_s,
        end_s=pair.end_s,
        report=pair.report_path,
        progress=progress,
    )
    return Answer(list(verdict.lines()), verdict.model_dump(mode="json"), verdict.exact)


def _leave_unconfined(_request: object, _mode: str) -> None:
    """Leave a process as it is which runs more than one command, or is not ours."""


@dataclass(frozen=True, slots=True)
class Services:
    """The calls, by default the real ones."""

    open_fleet: Callable[[str | None, int | None], AbstractAsyncContextManager[FleetLike]] = job_calls.open_fleet
    open_batch: "Callable[[BatchSpec, str | None], AbstractAsyncContextManager[BatchLike]]" = job_calls.open_batch
    """Opens a fleet at an address and begins a batch on it."""
    preview_batch: "Callable[[BatchSpec, str | None, Callable[[Intended], object]], Preview]" = job_calls.preview_batch
    """Shows what a batch would do: spec, address, what is called for each file."""
    batch_page: "Callable[[BatchSpec], str]" = job_calls.batch_page
    """Returns the page of a batch's last run."""
    probe: Callable[[str], Answer] = job_calls.probe
    plan: "Callable[[TranscodeSpec, PlanOn], Answer]" = _plan
    verify: "Callable[[VerifyRequest, Callable[[int], None]], Answer]" = _verify
    """Compares two files; calls its second argument with the number of frames compared so far."""
    stills: "Callable[[StillsSpec, str | None, Callable[[int], None]], Answer]" = job_calls.stills
    """Takes stills on the cluster at an address, None for the environment's; the last argument is as for ``verify``."""
    unfinished_spec: "Callable[[str], TranscodeSpec]" = job_calls.unfinished_spec
    """Returns the request of the job whose work lies at a location."""
    jobs: Callable[[str, str], Answer] = job_calls.jobs
    """Lists, shows or removes unfinished work: action, place."""
    ray_jobs: Callable[[str, str, str | None], Answer] = fleet_calls.ray_jobs
    """Lists, shows or stops Ray jobs: action, the job's name, the job server's address."""
    job_server: "Callable[[str | None], JobServer]" = fleet_calls.job_server
    """Reaches the job server at an address."""
    check: "Callable[[Sequence[str]], CommandRequest | int]" = _check
    """Parses a command line of ours; an exit code where nothing is left to do."""
    reports: "Callable[[Machines], Sequence[NodeReport | SilentNode]]" = fleet_calls.reports
    list_nodes: "Callable[[str], Sequence[tuple[NodeReport | SilentNode, ListedNode]]]" = fleet_calls.list_nodes
    """Returns the nodes of the cluster at an address, as probed and as Ray knows them."""
    status: "Callable[[str | None], Status | None]" = fleet_calls.status
    """Returns the status of the cluster at an address, None for the environment's or the warm fleet."""
    keep_events: Callable[[str | None, str], Answer] = fleet_calls.keep_events
    """Writes what a cluster's supervisor decided lately: address, file."""
    watch: "Callable[[str | None, Callable[[Seen], None], float], Awaitable[None]]" = fleet_calls.watch
    """Shows a fleet's status repeatedly: address, show, seconds between."""
    open_desk: "Callable[[str | None], AbstractAsyncContextManager[AskDesk[SupervisorSide]]]" = fleet_calls.open_desk
    """Opens the connection over which a fleet's status and history are asked for: address, as for ``status``."""
    order: Callable[[str | None, str, str], Answer] = fleet_calls.order
    """Asks a cluster's supervisor to cordon, drain or uncordon a node: address, order, node."""
    up: Callable[[int | None, int], Answer] = fleet_calls.up
    """Brings the warm fleet up: slots, minutes without a program after which it ends."""
    down: Callable[[], Answer] = fleet_calls.down
    prepare_node: Callable[[NodeRequest], NodeLike] = fleet_calls.prepare_node
    """Checks that this machine may start as a node, and finds out what it offers."""
    start_node: Callable[[NodeRequest], Answer] = fleet_calls.start_node
    """Starts this machine as a node, in the background."""
    stop_nodes: Callable[[], Answer] = fleet_calls.stop_nodes
    node_env: Callable[[NodeRequest], Answer] = fleet_calls.node_env
    """Returns what a ``ray start`` of others is to have in its environment."""

    confine: Callable[[Any, str], object] = _leave_unconfined
    """Confines this process to the files of a command; the second argument is the setting ``sandbox``."""
    exit_now: Callable[[int], None] = os._exit
    """Ends the process without Python's clean-up."""


class CommandRequest(Protocol):
    """A parsed and checked command line."""

    def run(self, services: Services, stdout: TextIO, stderr: TextIO) -> int:
        """Run it, and return the exit code.

        Raises:
            ReaderGone: stdout was closed.
        """
        ...


Commands: TypeAlias = Mapping[str, tuple[Callable[..., CommandRequest], Sequence[str]]]
"""By a command's name: the function that makes its request, and examples for its help."""

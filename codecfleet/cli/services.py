"""What the commands call: the seam between the command line and the product.

Imports happen in the calls, so that ``--help`` is quick and only ``transcode`` loads Ray. Tests pass their own
``Services``.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO, TypeAlias

if TYPE_CHECKING:
    from ..cluster.node.listed import ListedNode
    from ..cluster.node.offer import Offer
    from ..cluster.node.orders import PreparedNode
    from ..cluster.operate.desk import Ask
    from ..cluster.operate.watch import Seen
    from ..cluster.placement.model import Demand, Inventory
    from ..cluster.probes.node import NodeReport, SilentNode
    from ..cluster.submission.job_server import JobServer
    from ..cluster.supervisor.status import Status
    from ..jobs.batch.preview import Intended, Preview
    from ..jobs.batch.results import BatchProgress, BatchResult
    from ..jobs.report.events import Event
    from ..jobs.report.report import Report
    from ..jobs.request.spec import BatchSpec, TranscodeSpec
    from ..jobs.stills.spec import StillsSpec
    from .files import VerifyRequest
    from .plan import PlanOn, Surveyed


class JobLike(Protocol):
    """A running job."""

    def events(self) -> "AsyncIterator[Event]":
        """Yield the job's events until ``Done`` or its failure."""
        ...

    def __await__(self) -> "Generator[Any, None, Report]": ...

    async def cancel(self, *, keep: bool = False) -> None:
        """Stop the job; when it returns, its files are gone, or with ``keep`` all but what it goes on from."""
        ...


class BatchLike(Protocol):
    """A running batch."""

    def __aiter__(self) -> "AsyncIterator[BatchResult]": ...

    @property
    def progress(self) -> "BatchProgress":
        """Where it stands."""
        ...

    async def cancel(self) -> None:
        """Stop it; another run goes on from what is finished."""
        ...


class FleetLike(Protocol):
    """A fleet."""

    async def transcode(self, spec: "TranscodeSpec") -> JobLike:
        """Start a job."""
        ...


class NodeLike(Protocol):
    """A node that is ready to start."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What people are told of it, a line each."""
        ...

    def run(self, on_start: Callable[[], object]) -> None:
        """Run it in this process until a signal ends it."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """A command's answer, for people and for programs."""

    lines: list[str]
    document: dict[str, Any]
    exact: bool = True
    """False when ``verify`` found a difference, or ``doctor`` something to fix: exit code 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """The machines of a cluster or a simulated fleet, or this one.

    ``fresh`` ignores earlier codec trials; without ``software`` this machine's software codecs need not be tried.
    """

    address: str | None = None
    fleet: str | None = None
    fresh: bool = False
    software: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRequest:
    """A node that is to start, as asked for: ``cluster.node.ray_start.NodeOptions`` says what each means.

    ``cpus`` None means all that this process may use.
    """

    address: str = ""
    ip: str = ""
    port: int = 6379
    dashboard_host: str = "127.0.0.1"
    dashboard_port: int = 8265
    temp_dir: str = ""
    drain_s: int = 60
    is_open: bool = False
    rest: tuple[str, ...] = ()
    cpus: int | None = None
    zone: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


def _open_fleet(address: str | None, workers: int | None) -> AbstractAsyncContextManager[FleetLike]:
    from ..jobs.fleet import Fleet

    return Fleet(address=address, workers=workers)


@asynccontextmanager
async def _open_batch(spec: "BatchSpec", address: str | None) -> "AsyncIterator[BatchLike]":
    from ..jobs.fleet import Fleet

    async with Fleet(address=address, workers=spec.workers) as fleet:
        yield fleet.batch(spec)


def _preview_batch(spec: "BatchSpec", address: str | None, show: "Callable[[Intended], object]") -> "Preview":
    import asyncio

    from ..jobs.fleet import Fleet

    async def look() -> "Preview":
        async with Fleet(address=address, workers=spec.workers) as fleet:
            return await fleet.preview_batch(spec, show)

    return asyncio.run(look())


def _batch_page(spec: "BatchSpec") -> str:
    from ..console.page import batch_page
    from ..jobs.batch.figures import read_figures
    from ..jobs.batch.run import database_path

    return batch_page(read_figures(database_path(spec.resolved())))


def _probe(source: str) -> Answer:
    from ..jobs.probe.job import probe

    found = probe(source)
    return Answer(list(found.lines()), found.model_dump(mode="json"))


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

    from ..cluster.operate.desk import desk_of
    from ..errors import CodecfleetError
    from .plan import Surveyed

    async def look() -> Surveyed:
        async with desk_of(address) as ask:
            found: Inventory = await ask("survey")
            try:
                return Surveyed(found, await ask("growth", demand))
            except CodecfleetError as error:
                return Surveyed(found, f"which nodes would be asked for is not known: {error.message}")

    return asyncio.run(look())


def _unfinished_spec(work: str) -> "TranscodeSpec":
    from ..jobs.journal.found_work import unfinished_spec

    return unfinished_spec(work)


def _jobs(action: str, place: str) -> Answer:
    from ..console.work_text import work_lines, work_rows
    from ..jobs.journal.found_work import find_work, remove_work, work_at

    if action == "show":
        work = work_at(place)
        return Answer(work_lines(work), {"schema": 1, "jobs": [work.to_json()]})
    if action == "clean":
        removed, kept = remove_work(place)
        lines = [f"removed {each}" for each in removed] + [f"in use: {each}" for each in kept]
        return Answer(lines or ["nothing to remove"], {"schema": 1, "removed": removed, "in_use": kept})
    found = find_work(place)
    return Answer(work_rows(found), {"schema": 1, "jobs": [each.to_json() for each in found]})


def _ray_jobs(action: str, job_id: str, address: str | None) -> Answer:
    from ..console.ray_job_text import job_json, job_rows

    server = _job_server(address)
    if action == "logs":
        text = server.printed(job_id)
        return Answer(text.splitlines(), {"schema": 1, "job": job_id, "log": text})
    if action == "stop":
        was_running = server.stop(job_id)
        line = f"job {job_id} {'is being cancelled' if was_running else 'was over'}"
        return Answer([line], {"schema": 1, "job": job_id, "was_running": was_running})
    jobs = server.jobs()
    return Answer(job_rows(jobs), {"schema": 1, "jobs": [job_json(each) for each in jobs]})


def _job_server(address: str | None) -> "JobServer":
    from ..cluster.submission.job_server import RayJobServer, job_server_address

    return RayJobServer(job_server_address(address))


def _check(arguments: Sequence[str]) -> "Request | int":
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


def _stills(spec: "StillsSpec", address: str | None, progress: Callable[[int], None]) -> Answer:
    import asyncio

    from ..jobs.fleet import run_stills

    report = asyncio.run(run_stills(spec, address, progress))
    return Answer(report.lines(), report.to_json())


def _reports(machines: Machines) -> "Sequence[NodeReport | SilentNode]":
    import asyncio

    if machines.address is not None:
        from ..cluster.operate.desk import ask_cluster

        probed: Sequence[NodeReport | SilentNode] = asyncio.run(ask_cluster(machines.address, "probe", machines.fresh))
        return probed
    if machines.fleet is not None:
        from ..cluster.simulated.fleet_file import load_fleet
        from ..testing.fleet.simulated_report import simulated_report

        fleet = load_fleet(Path(machines.fleet))
        return [simulated_report(node, fleet.name) for node in fleet.nodes]
    from ..cluster.probes.node import probe_node

    return [probe_node(fresh=machines.fresh, software=machines.software)]


def _list_nodes(address: str) -> "Sequence[tuple[NodeReport | SilentNode, ListedNode]]":
    import asyncio

    from ..cluster.operate.desk import ask_cluster

    found: Sequence[tuple[NodeReport | SilentNode, ListedNode]] = asyncio.run(ask_cluster(address, "nodes"))
    return found


def _status(address: str | None) -> "Status | None":
    import asyncio

    from ..cluster.operate.watch import fleet_status

    return asyncio.run(fleet_status(address))


async def _watch(address: str | None, show: "Callable[[Seen], None]", every_s: float) -> None:
    from ..cluster.operate.watch import watch_status

    await watch_status(address, show, every_s)


def _open_desk(address: str | None) -> "AbstractAsyncContextManager[Ask]":
    from ..cluster.operate.desk import fleet_desk

    return fleet_desk(address)


def _order(address: str | None, order: str, node: str) -> Answer:
    import asyncio

    from ..cluster.operate.desk import ask_cluster
    from ..cluster.operate.supervisor import require_address
    from ..cluster.supervisor.state import Order

    asyncio.run(ask_cluster(require_address(address), "order", Order(order), node))
    return Answer([f"{order}: {node}"], {"schema": 1, "node": node, "order": order})


def _up(slots: int | None, idle_minutes: int) -> Answer:
    from ..cluster.warm.orders import bring_up

    process, is_new, greeting = bring_up(slots, 60.0 * idle_minutes)
    ends = f"it ends after {greeting.idle_s / 60:g} minutes without a program, or with `codecfleet down`"
    line = f"the warm fleet {'is up' if is_new else 'was up before'}: process {process}, {greeting.slots} slots; {ends}"
    fields = {"process": process, "is_new": is_new, "slots": greeting.slots, "idle_minutes": greeting.idle_s / 60}
    return Answer([line], {"schema": 1, **fields})


def _down() -> Answer:
    from ..cluster.warm.orders import take_down

    processes = take_down()
    lines = [f"the warm fleet is down: process {process}" for process in processes]
    return Answer(lines or ["no warm fleet was up"], {"schema": 1, "processes": processes})


def _prepare_node(asked: NodeRequest) -> "PreparedNode":
    from ..cluster.node.orders import prepare_node
    from ..cluster.node.ray_start import NodeOptions

    options = NodeOptions(
        address=asked.address,
        ip=asked.ip,
        port=asked.port,
        dashboard_host=asked.dashboard_host,
        dashboard_port=asked.dashboard_port,
        temp_dir=asked.temp_dir,
        drain_s=asked.drain_s,
        is_open=asked.is_open,
        rest=asked.rest,
    )
    return prepare_node(lambda: _offer(asked), options)


def _offer(asked: NodeRequest) -> "Offer":
    from ..cluster.node.orders import machines_offer

    return machines_offer(cpus=asked.cpus, labels=asked.labels, zone=asked.zone)


def _start_node(asked: NodeRequest) -> Answer:
    from ..cluster.node.orders import bring_node_up

    node = _prepare_node(asked)
    process = bring_node_up(node)
    lines = [*node.notes, f"the node is up: process {process} keeps it; `codecfleet node stop` ends it"]
    return Answer(lines, {"schema": 1, "process": process, "notes": list(node.notes)})


def _stop_nodes() -> Answer:
    from ..cluster.node.orders import take_nodes_down

    processes = take_nodes_down()
    lines = [f"the node is down: process {process}" for process in processes]
    return Answer(lines or ["no node was up"], {"schema": 1, "processes": processes})


def _node_env(asked: NodeRequest) -> Answer:
    from ..cluster.node.ray_start import export_lines, exports

    variables = exports(_offer(asked), os.environ)
    return Answer(export_lines(variables), {"schema": 1, "variables": variables})


def _leave_unconfined(_request: object, _mode: str) -> None:
    """Leave a process as it is which runs more than one command, or is not ours."""


@dataclass(frozen=True, slots=True)
class Services:
    """The calls, by default the real ones."""

    open_fleet: Callable[[str | None, int | None], AbstractAsyncContextManager[FleetLike]] = _open_fleet
    open_batch: "Callable[[BatchSpec, str | None], AbstractAsyncContextManager[BatchLike]]" = _open_batch
    """Opens a fleet at an address and begins a batch on it."""
    preview_batch: "Callable[[BatchSpec, str | None, Callable[[Intended], object]], Preview]" = _preview_batch
    """Shows what a batch would do: spec, address, what is called for each file."""
    batch_page: "Callable[[BatchSpec], str]" = _batch_page
    """Returns the page of a batch's last run."""
    probe: Callable[[str], Answer] = _probe
    plan: "Callable[[TranscodeSpec, PlanOn], Answer]" = _plan
    verify: "Callable[[VerifyRequest, Callable[[int], None]], Answer]" = _verify
    """Compares two files; calls its second argument with the number of frames compared so far."""
    stills: "Callable[[StillsSpec, str | None, Callable[[int], None]], Answer]" = _stills
    """Takes stills on the cluster at an address, None for the environment's; the last argument is as for ``verify``."""
    unfinished_spec: "Callable[[str], TranscodeSpec]" = _unfinished_spec
    """Returns the request of the job whose work lies at a location."""
    jobs: Callable[[str, str], Answer] = _jobs
    """Lists, shows or removes unfinished work: action, place."""
    ray_jobs: Callable[[str, str, str | None], Answer] = _ray_jobs
    """Lists, shows or stops Ray jobs: action, the job's name, the job server's address."""
    job_server: "Callable[[str | None], JobServer]" = _job_server
    """Reaches the job server at an address."""
    check: "Callable[[Sequence[str]], Request | int]" = _check
    """Parses a command line of ours; an exit code where nothing is left to do."""
    reports: "Callable[[Machines], Sequence[NodeReport | SilentNode]]" = _reports
    list_nodes: "Callable[[str], Sequence[tuple[NodeReport | SilentNode, ListedNode]]]" = _list_nodes
    """Returns the nodes of the cluster at an address, as probed and as Ray knows them."""
    status: "Callable[[str | None], Status | None]" = _status
    """Returns the status of the cluster at an address, None for the environment's or the warm fleet."""
    watch: "Callable[[str | None, Callable[[Seen], None], float], Awaitable[None]]" = _watch
    """Shows a fleet's status repeatedly: address, show, seconds between."""
    open_desk: "Callable[[str | None], AbstractAsyncContextManager[Ask]]" = _open_desk
    """Opens the connection over which a fleet's status and history are asked for: address, as for ``status``."""
    order: Callable[[str | None, str, str], Answer] = _order
    """Asks a cluster's supervisor to cordon, drain or uncordon a node: address, order, node."""
    up: Callable[[int | None, int], Answer] = _up
    """Brings the warm fleet up: slots, minutes without a program after which it ends."""
    down: Callable[[], Answer] = _down
    prepare_node: Callable[[NodeRequest], NodeLike] = _prepare_node
    """Checks that this machine may start as a node, and finds out what it offers."""
    start_node: Callable[[NodeRequest], Answer] = _start_node
    """Starts this machine as a node, in the background."""
    stop_nodes: Callable[[], Answer] = _stop_nodes
    node_env: Callable[[NodeRequest], Answer] = _node_env
    """Returns what a ``ray start`` of others is to have in its environment."""

    confine: Callable[[Any, str], object] = _leave_unconfined
    """Confines this process to the files of a command; the second argument is the setting ``sandbox``."""
    exit_now: Callable[[int], None] = os._exit
    """Ends the process without Python's clean-up."""


class Request(Protocol):
    """A parsed and checked command line."""

    def run(self, services: Services, stdout: TextIO, stderr: TextIO) -> int:
        """Run it, and return the exit code.

        Raises:
            ReaderGone: stdout was closed.
        """
        ...


Commands: TypeAlias = Mapping[str, tuple[Callable[..., Request], Sequence[str]]]
"""By a command's name: the function that makes its request, and examples for its help."""

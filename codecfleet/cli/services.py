"""The calls behind the commands, which are the interface between the command line and the product.

Each call imports the modules that it needs, so that ``--help`` is quick and few commands load Ray.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO, TypeAlias

from .driver_report import has_driver, tell_driver
from .interrupts import run_here

if TYPE_CHECKING:
    from ..cluster.fleet.messages import SupervisorSide
    from ..cluster.node.listed import ListedNode
    from ..cluster.node.offer import Offer
    from ..cluster.node.orders import PreparedNode
    from ..cluster.node.ray_start import NodeOptions
    from ..cluster.operate.desk import AskDesk, Seen
    from ..cluster.probes.node import NodeReport, SilentNode
    from ..cluster.queue.queue import Queue
    from ..cluster.submission.job_server import JobServer
    from ..cluster.supervisor.status import Status
    from ..jobs.batch.batch import Batch
    from ..jobs.batch.preview import Intended, Preview
    from ..jobs.fleet import Fleet
    from ..jobs.infer.job import InferReport
    from ..jobs.infer.spec import InferSpec
    from ..jobs.ladder.report import LadderReport
    from ..jobs.ladder.spec import LadderSpec
    from ..jobs.report.events import Event
    from ..jobs.request.spec import BatchSpec, TranscodeSpec
    from ..jobs.stills.job import StillsReport
    from ..jobs.stills.spec import StillsSpec
    from .files import VerifyRequest
    from .plan import PlanOn

Progress: TypeAlias = Callable[[int], None]
"""Called with the number of frames done."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A command's answer, as text and as JSON."""

    lines: list[str]
    document: dict[str, Any]
    exact: bool = True  #: False, with exit code 1, if ``verify`` found a difference or ``doctor`` found a fault to fix


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """The machines to ask: those of a cluster, those of a simulated fleet, or only this machine."""

    address: str | None = None
    fleet: str | None = None
    fresh: bool = False  #: whether earlier codec trials are ignored
    software: bool = True  #: whether this machine's software codecs are tried


@dataclass(frozen=True, slots=True, kw_only=True)
class Offering:
    """The options of a node that are not determined by its probes."""

    cpus: int | None = None  #: None for all CPUs that this process may use
    zone: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    def survey(self) -> "Offer":
        """Probe this machine, and return its offer."""
        from ..cluster.node.orders import machines_offer

        return machines_offer(cpus=self.cpus, labels=self.labels, zone=self.zone)


class Services:
    """The real calls. A test replaces some by keyword: ``Services(probe=lambda source: Answer([], {}))``."""

    def __init__(self, **replaced: Callable[..., Any]) -> None:
        for name, call in replaced.items():
            if not hasattr(self, name):
                raise TypeError(f"there is no service {name}")
            setattr(self, name, call)

    def exit_now(self, code: int) -> None:
        """End the process without Python's clean-up."""
        os._exit(code)

    def confine(self, request: Any, mode: str) -> None:  # noqa: ANN401 - a CommandRequest, or an object of a test
        """Do nothing, since this process may run several commands. ``main`` confines a process that runs only one."""

    def check(self, arguments: Sequence[str]) -> "CommandRequest | int":
        """Parse a command line; return an exit code if nothing is left to do."""
        from .app import parse

        return parse(arguments)

    def open_fleet(self, address: str | None, workers: int | None) -> "AbstractAsyncContextManager[Fleet]":
        """Open a fleet at an address, with this many workers."""
        from ..jobs.fleet import Fleet

        return Fleet(address=address, workers=workers)

    @asynccontextmanager
    async def open_batch(self, spec: "BatchSpec", address: str | None) -> "AsyncIterator[Batch]":
        """Open a fleet at an address, and begin a batch on it."""
        async with self.open_fleet(address, spec.workers) as fleet:
            yield fleet.batch(spec)

    def preview_batch(self, spec: "BatchSpec", address: str | None, show: "Callable[[Intended], object]") -> "Preview":
        """Return the plan of a batch (``--dry-run``); show each file as it is examined."""
        import asyncio

        async def look() -> "Preview":
            async with self.open_fleet(address, spec.workers) as fleet:
                return await fleet.preview_batch(spec, show)

        return asyncio.run(look())

    def batch_page(self, spec: "BatchSpec") -> str:
        """Return the page of a batch's last run."""
        from ..console.page import batch_page
        from ..jobs.batch.figures import read_figures
        from ..jobs.batch.files import database_path

        return batch_page(read_figures(database_path(spec.resolved())))

    def probe(self, source: str) -> Answer:
        """Answer the command ``probe`` about a file."""
        from ..jobs.probe.job import probe

        found = probe(source)
        return Answer(list(found.lines()), found.model_dump(mode="json"))

    def plan(self, spec: "TranscodeSpec", on: "PlanOn") -> Answer:
        """Answer the command ``plan``: plan a job, and place the plan."""
        from .plan import plan_answer

        return plan_answer(spec, on)

    def verify(self, pair: "VerifyRequest", progress: Progress) -> Answer:
        """Answer the command ``verify``: compare an output with its input."""
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

    def stills(self, spec: "StillsSpec", address: str | None, progress: Progress) -> Answer:
        """Take stills on the cluster at the address or in the environment, or else on this machine."""
        from ..jobs.one_job import run_stills

        report = run_here(run_stills(spec, address, progress, keeps_record=has_driver()))
        return _tell_published(report)

    def ladder(self, spec: "LadderSpec", address: str | None, tell: "Callable[[Event], None]") -> Answer:
        """Make a ladder on the cluster at the address or in the environment, or else on this machine."""
        from ..jobs.one_job import run_ladder

        report = run_here(run_ladder(spec, address, tell, keeps_record=has_driver()))
        return _tell_published(report)

    def plan_ladder(self, spec: "LadderSpec", address: str | None) -> Answer:
        """Plan a ladder, and place the plan (``--dry-run``)."""
        from .plan import ladder_answer

        return ladder_answer(spec, address)

    def infer(self, spec: "InferSpec", address: str | None, progress: Progress) -> Answer:
        """Run a network over a film, on the cluster at the address or in the environment, or else on a private Ray."""
        from ..cluster.fleet.default import default_pool
        from ..jobs.infer.job import count_dlas, infer

        where = address or os.environ.get("RAY_ADDRESS") or "local"
        # Without a DLA, this raises an error before Ray is started.
        dlas = count_dlas(spec.devices, spec.mode) if where == "local" else 0

        async def run() -> Answer:
            pool = default_pool(where, slots=None, dlas=dlas)
            try:
                report = await infer(spec, pool, progress=progress, keeps_record=has_driver())
            finally:
                await pool.aclose()
            return _tell_published(report)

        return run_here(run())

    def unfinished_spec(self, work: str) -> "TranscodeSpec":
        """Return the request of the job whose work is at a location."""
        from ..jobs.journal.found_work import unfinished_spec

        return unfinished_spec(work)

    def work(self, action: str, place: str) -> Answer:
        """List or remove unfinished work. If a job's work location is named, show the whole job."""
        from ..console.listings import work_lines, work_rows
        from ..jobs.journal.found_work import find_work, names_work, remove_work

        if action == "clean":
            removed, kept = remove_work(place)
            lines = [f"removed {each}" for each in removed] + [f"in use, or another user's: {each}" for each in kept]
            return Answer(lines or ["nothing to remove"], {"schema": 1, "removed": removed, "in_use": kept})
        found = find_work(place)
        lines = work_lines(found[0]) if names_work(place) and found else work_rows(found)
        return Answer(lines, {"schema": 1, "jobs": [each.to_json() for each in found]})

    def open_queue(self, place: str | None, *, makes: bool) -> "Queue":
        """Open a queue; ``makes`` is whether to create a file that is missing."""
        from ..cluster.queue.queue import Queue

        return Queue(place, makes=makes)

    def queue_jobs(self, action: str, job_id: str, priority: int | None, place: str | None) -> Answer:
        """Answer the command ``jobs`` about a queue."""
        import asyncio

        from ..console.listings import printed_answer, queue_answer

        async def ask() -> Answer:
            async with self.open_queue(place, makes=False) as queue:
                if action == "list":
                    return Answer(*queue_answer(await queue.list()))
                if action == "logs":
                    return Answer(*printed_answer(job_id, (await queue.output(job_id)).text))
                if priority is not None:
                    job = await queue.prioritize(job_id, priority)
                else:
                    job = await {"show": queue.get, "cancel": queue.cancel, "retry": queue.retry}[action](job_id)
                return Answer(*queue_answer([job], is_one=True))

        return asyncio.run(ask())

    def job_server(self, address: str) -> "JobServer":
        """Connect to the job server at an address."""
        from ..cluster.submission.job_server import JobServer

        return JobServer(address)

    def ray_jobs(self, action: str, job_id: str, address: str) -> Answer:
        """Answer the command ``jobs`` about the Ray jobs on the job server at an address."""
        from ..console.listings import job_json, job_rows, printed_answer

        server = self.job_server(address)
        if action == "logs":
            return Answer(*printed_answer(job_id, server.printed(job_id)))
        if action == "cancel":
            was_running = server.stop(job_id)
            line = f"job {job_id} {'is being cancelled' if was_running else 'was over'}"
            return Answer([line], {"schema": 1, "job": job_id, "was_running": was_running})
        jobs = [server.job(job_id)] if action == "show" else server.jobs()
        return Answer(job_rows(jobs), {"schema": 1, "jobs": [job_json(each) for each in jobs]})

    def reports(self, machines: Machines) -> "Sequence[NodeReport | SilentNode]":
        """Probe machines; simulated machines answer as real machines would."""
        import asyncio

        if machines.address is not None:
            from ..cluster.operate.desk import ask_cluster
            from ..cluster.operate.probe import probe_cluster

            return asyncio.run(ask_cluster(machines.address, probe_cluster, fresh=machines.fresh))
        if machines.fleet is not None:
            from ..cluster.simulated.fleet_file import load_fleet
            from ..testing.fleet.simulated_report import simulated_report

            fleet = load_fleet(Path(machines.fleet))
            return [simulated_report(node, fleet.name) for node in fleet.nodes]
        from ..cluster.probes.node import probe_node

        return [probe_node(fresh=machines.fresh, software=machines.software)]

    def list_nodes(self, address: str) -> "Sequence[tuple[NodeReport | SilentNode, ListedNode]]":
        """Return the nodes of the cluster at an address, with their probe reports and Ray's entries."""
        import asyncio

        from ..cluster.operate.desk import ask_cluster
        from ..cluster.operate.probe import list_cluster

        return asyncio.run(ask_cluster(address, list_cluster))

    def status(self, address: str | None) -> "Status | None":
        """Return the status of the cluster at the address or in the environment, or else of the warm fleet."""
        import asyncio

        from ..cluster.operate.desk import fleet_status

        return asyncio.run(fleet_status(address))

    def watch(self, address: str | None, show: "Callable[[Seen], None]", every_s: float) -> Awaitable[None]:
        """Show the status of a fleet repeatedly; the address is as for ``status``."""
        from ..cluster.operate.desk import watch_status

        return watch_status(address, show, every_s)

    def open_desk(self, address: str | None) -> "AbstractAsyncContextManager[AskDesk[SupervisorSide]]":
        """Open a connection to the status and history of a fleet; the address is as for ``status``."""
        from ..cluster.operate.desk import fleet_desk

        return fleet_desk(address)

    def keep_events(self, address: str | None, file: str) -> Answer:
        """Write the recent events of a cluster's supervisor to a file."""
        import asyncio

        from ..cluster.fleet_variables import EVENTS
        from ..cluster.operate.desk import ask_cluster
        from ..cluster.operate.supervisor import read_events, require_address
        from ..errors import UsageError

        found = asyncio.run(ask_cluster(require_address(address), read_events))
        if not found:
            message = "the cluster has no supervisor, or its supervisor keeps no events"
            raise UsageError(message, f"Set {EVENTS} to a folder on all nodes before the first job.")
        try:
            Path(file).write_bytes(found)
        except OSError as error:
            raise UsageError(f"{file} cannot be written: {error.strerror}", "Name another file.") from error
        return Answer([f"the newest events are in {file}"], {"schema": 1, "file": file, "bytes": len(found)})

    def order(self, address: str | None, order: str, node: str) -> Answer:
        """Ask a cluster's supervisor to cordon, drain or uncordon a node."""
        import asyncio

        from ..cluster.operate.desk import ask_cluster
        from ..cluster.operate.supervisor import order_node, require_address
        from ..cluster.supervisor.state import Order

        asyncio.run(ask_cluster(require_address(address), order_node, Order(order), node))
        return Answer([f"{order}: {node}"], {"schema": 1, "node": node, "order": order})

    def up(self, slots: int | None, idle_minutes: int) -> Answer:
        """Start the warm fleet unless it runs; it ends after ``idle_minutes`` without a connected program."""
        from ..cluster.fleet.warm import bring_up

        process, is_new, greeting = bring_up(slots, 60.0 * idle_minutes)
        minutes, state = greeting.idle_s / 60, "is up" if is_new else "was up before"
        ends = f"it ends after {minutes:g} minutes without a program, or with `codecfleet down`"
        line = f"the warm fleet {state}: process {process}, {greeting.slots} slots; {ends}"
        fields = {"process": process, "is_new": is_new, "slots": greeting.slots, "idle_minutes": minutes}
        return Answer([line], {"schema": 1, **fields})

    def down(self) -> Answer:
        """End every warm fleet of this user on this machine."""
        from ..cluster.fleet.warm import take_down

        return _ended("warm fleet", take_down())

    def prepare_node(self, options: "NodeOptions", offered: Offering) -> "PreparedNode":
        """Check that this machine may start as a node, and probe what it can offer."""
        from ..cluster.node.orders import prepare_node

        return prepare_node(offered.survey, options)

    def start_node(self, options: "NodeOptions", offered: Offering) -> Answer:
        """Start this machine as a node, in the background."""
        from ..cluster.node.orders import bring_node_up

        node = self.prepare_node(options, offered)
        process = bring_node_up(node)
        lines = [*node.notes, f"the node is up (process {process}); `codecfleet node stop` ends it"]
        return Answer(lines, {"schema": 1, "process": process, "notes": list(node.notes)})

    def stop_nodes(self) -> Answer:
        """Stop this user's nodes on this machine."""
        from ..cluster.node.orders import take_nodes_down

        return _ended("node", take_nodes_down())

    def node_env(self, offered: Offering) -> Answer:
        """Return the environment for a ``ray start`` that the user runs."""
        from ..cluster.node.ray_start import export_lines, exports

        variables = exports(offered.survey(), os.environ)
        return Answer(export_lines(variables), {"schema": 1, "variables": variables})


def _tell_published(report: "StillsReport | LadderReport | InferReport") -> Answer:
    from ..jobs.join.publish import work_folder

    tell_driver(record=str(work_folder(report.output)))
    return Answer(report.lines(), report.to_json())


def _ended(what: str, processes: Sequence[int]) -> Answer:
    lines = [f"the {what} was stopped: process {process}" for process in processes]
    return Answer(lines or [f"no {what} was up"], {"schema": 1, "processes": processes})


class CommandRequest(Protocol):
    """A parsed and checked command line."""

    def run(self, services: Services, stdout: TextIO, stderr: TextIO) -> int:
        """Run the command and return the exit code.

        Raises CodecfleetError: the command failed; ReaderGone: stdout was closed.
        """
        ...


Commands: TypeAlias = Mapping[str, tuple[Callable[..., CommandRequest], Sequence[str]]]
"""For each command, the function that makes its request, and examples for the help."""

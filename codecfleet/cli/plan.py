"""The command ``plan``, which shows the plan of a job and where its segments would run."""

from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from ..errors import UsageError
from ..jobs.request.parts import RUN
from ..jobs.request.spec import TranscodeSpec
from .params import JSON, address_of, named, with_spec_options
from .question import Question
from .sandbox import FileUse
from .services import Answer, Commands

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..cluster.placement.model import Demand, Inventory, PlacementPreview, Policy
    from ..jobs.ladder.spec import LadderSpec
    from ..jobs.plan.placing import PlacedPlan


_UNTRIED: Final = "the GPU's capabilities come from a table of models; codecfleet doctor tests them"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOn:
    """The machines on which a plan is placed.

    At most one of the first three fields is set. If none is set, the plan is placed on this machine.
    """

    fleet: str | None = None  #: the name or the file of a simulated fleet
    autoscale: str | None = None  #: the autoscaling file whose groups would supply the nodes for the plan
    address: str | None = None  #: the address of a cluster
    policy: str | None = None  #: the file of the placement policy


@dataclass(frozen=True, slots=True)
class Surveyed:
    """A cluster's nodes, and the nodes that it would add for a plan."""

    inventory: "Inventory"
    growth: str = ""  #: which nodes would be requested and why, or that this is unknown; "" without autoscaling


def plan_answer(spec: TranscodeSpec, on: PlanOn) -> Answer:
    """Plan a job, and place the plan. Raises the errors of ``place_on``."""
    from ..jobs.plan.placing import demand_of
    from ..jobs.plan.plan import plan_transcode

    plan = plan_transcode(spec)
    placed = place_on(demand_of(plan), on, _survey)
    plan = replace(plan, expected=placed.expected)
    is_elsewhere = any(each is not None for each in (on.fleet, on.autoscale, on.address))
    lines = placed.lines() if is_elsewhere else [placed.summary()]
    return Answer([*plan.lines(), *lines], {**plan.to_json(), "placement": placed.to_json()})


def ladder_answer(spec: "LadderSpec", address: str | None) -> Answer:
    """Plan a ladder, and place it. Raises the errors of ``place_on``."""
    import asyncio

    from ..cluster.placement.assign import place
    from ..cluster.placement.model import preview_of
    from ..cluster.placement.rates import start_rates
    from ..jobs.join.publish import work_folder
    from ..jobs.join.spool import RENDITIONS
    from ..jobs.ladder.demands import demand_of_all, place_ladder
    from ..jobs.ladder.plan import plan_read, read_before, read_ladder
    from ..jobs.ladder.planned import PlannedLadder
    from ..jobs.plan.placing import demand_of
    from ..jobs.request.config import load_config

    spec = spec.resolved()
    read = read_ladder(spec, work_folder(spec.output) / RENDITIONS, load_config().sent.specs.get(spec.preset))
    ladder = plan_read(read if spec.per_title is None else read_before(read))
    demands = [demand_of(plan, name) for name, plan in ladder.plans.items()]
    whole = demand_of_all("plan", demands) or demands[0]
    placed = place_on(whole, PlanOn(address=address), _survey)

    async def preview(demand: "Demand") -> "PlacementPreview":
        on, rates = placed.inventory, start_rates()
        return preview_of(demand, (), on, lambda jobs, nodes: place(jobs, nodes, rates, placed.policy), idle=on)

    planned = PlannedLadder(ladder, asyncio.run(place_ladder(preview, "plan", demands)), placed)
    return Answer(planned.lines(), planned.to_json())


def _survey(address: str, demand: "Demand") -> Surveyed:
    import asyncio
    from functools import partial

    from ..cluster.operate.desk import DeskCall, desk_of
    from ..cluster.operate.probe import survey_cluster
    from ..cluster.operate.supervisor import read_growth
    from ..errors import CodecfleetError

    async def look() -> Surveyed:
        async with desk_of(address) as ask:
            found = await ask(DeskCall(survey_cluster))
            try:
                return Surveyed(found, await ask(DeskCall(partial(read_growth, demand))))
            except CodecfleetError as error:
                return Surveyed(found, f"it is unknown which nodes would be requested: {error.message}")

    return asyncio.run(look())


def place_on(demand: "Demand", on: PlanOn, survey: "Callable[[str, Demand], Surveyed]") -> "PlacedPlan":
    """Place a plan's demand; ``survey`` returns the nodes of a cluster, and the nodes to add for a demand.

    Raises UsageError: the fleet or the policy file is invalid; FleetUnavailable: the cluster does not answer.
    """
    from ..cluster.placement.model import Policy, load_policy

    policy = Policy() if on.policy is None else load_policy(on.policy)
    if on.fleet is not None:
        from ..cluster.placement.build import inventory_of_fleet
        from ..cluster.simulated.fleet_file import load_fleet

        fleet = load_fleet(on.fleet)
        where = f"the simulated fleet {fleet.name} (figures: {fleet.source})"
        return _placed(demand, inventory_of_fleet(fleet), policy, where)
    if on.autoscale is not None:
        return _placed_on_new_nodes(demand, on.autoscale, policy)
    if on.address is not None:
        found = survey(on.address, demand)
        return _placed(demand, found.inventory, policy, f"the cluster at {on.address}", found.growth)
    here = _this_machine()
    has_gpu = any(node.gpus for node in here.nodes)
    return _placed(demand, here, policy, "this machine", _UNTRIED if has_gpu else "")


def _placed_on_new_nodes(demand: "Demand", file: str, policy: "Policy") -> "PlacedPlan":
    from ..cluster.autoscale.config import load_autoscale, nodes_of
    from ..cluster.autoscale.speeds import Speeds, choose
    from ..cluster.autoscale.values import Decision
    from ..cluster.placement.assign import place
    from ..cluster.placement.model import Inventory
    from ..cluster.placement.rates import start_rates

    config, rates = load_autoscale(file), start_rates()
    speeds = Speeds(config, lambda demands, inventory: place(demands, inventory, rates, policy))
    choice = choose(config, speeds, demand, (), nodes=(), last=None, now_s=0.0)
    sizes = [(group, choice.decision.size(group.name)) for group in config.groups]
    nodes = tuple(node for group, size in sizes for node in nodes_of(group, size.wanted))
    where = f"the nodes that {file} would start for the job"
    return _placed(demand, Inventory(nodes), policy, where, choice.growth(Decision()))


def _this_machine() -> "Inventory":
    from ..cluster import machine
    from ..cluster.placement.model import Inventory, processor_of
    from ..cluster.probes.nvml import can_load_nvml
    from ..cluster.worker_names import NodeId

    node = processor_of(NodeId("this machine"), "this machine", machine.cores(), machine.memory_bytes())
    if not can_load_nvml():
        return Inventory((node,))
    from ..cluster.survey.known_gpus import known_gpus

    return Inventory((replace(node, devices=(*known_gpus(node.node).devices, *node.devices)),))


def _placed(demand: "Demand", inventory: "Inventory", policy: "Policy", where: str, note: str = "") -> "PlacedPlan":
    from ..cluster.placement.model import shared_by_policy
    from ..cluster.placement.rates import start_rates
    from ..jobs.plan.placing import place_plan

    shared = shared_by_policy(inventory, policy)
    return place_plan(demand, shared, start_rates(), policy, where=where, note=note)


def _plan(
    spec: TranscodeSpec,
    *,
    fleet: str | None = named(
        "--fleet",
        "FILE.toml",
        "Show where the job would run on a simulated fleet, given by a file or a built-in name: docs/placement.md.",
        RUN,
    ),
    address: str | None = address_of(
        "Show where the job would run on this Ray cluster (host:port, or auto), whose nodes are probed.", RUN
    ),
    autoscale: str | None = named(
        "--autoscale",
        "FILE.toml",
        "Show which nodes of this autoscaling file the job would start, and why: docs/autoscaling.md.",
        RUN,
    ),
    policy: str | None = named(
        "--policy", "FILE.toml", "Use this placement policy: docs/placement.md. Default: configs/policy.toml.", RUN
    ),
    as_json: bool = JSON,
) -> Question:
    given = {"--fleet": fleet, "--address": address, "--autoscale": autoscale}
    if len(both := [name for name, value in given.items() if value is not None]) > 1:
        raise UsageError(f"{both[0]} and {both[1]} exclude each other", "Leave one of them out.")
    on = PlanOn(fleet=fleet, autoscale=autoscale, address=address, policy=policy)
    read = (spec.source, spec.overlay, spec.subtitle_font, policy, fleet, autoscale)
    files = FileUse(reads=tuple(each for each in read if each is not None), starts_workers=True, address=address)
    return Question(ask=lambda services, _progress: services.plan(spec, on), as_json=as_json, files=files)


def _default_output(source: str) -> str:
    return f"{PurePosixPath(source).stem or 'output'}-codecfleet.mp4"


COMMANDS: Final[Commands] = {
    "plan": (
        with_spec_options(_plan, default_output=_default_output),
        ["plan film.mkv film.mp4 --segment-seconds 5", "plan film.mkv film.mp4 --codec hevc --fleet h200-l40s"],
    )
}

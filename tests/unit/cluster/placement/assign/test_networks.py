"""Which DLAs get jobs that run networks; transcodes are not affected."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.placement.assign.assignment import place
from codecfleet.cluster.placement.assign.networks import SESSIONS_PER_DLA, place_networks
from codecfleet.cluster.placement.model.demand import Demand, plain_demand
from codecfleet.cluster.placement.model.inventory import DeviceState, Inventory, Node, dlas_of, processor_of
from codecfleet.cluster.placement.model.placement import Placement
from codecfleet.cluster.placement.model.policy import Policy, PreemptibleUse
from codecfleet.cluster.placement.rates import start_rates
from codecfleet.cluster.probes.report.device_kinds import Route
from codecfleet.cluster.supervisor.state.state import Planner


def orin(name: str, dlas: int, **changes: object) -> Node:
    """Return a machine with DLAs."""
    plain = processor_of(name, name, 8)
    return replace(plain, dlas=dlas_of(name, dlas), **changes)  # type: ignore[arg-type]


def wanted(job: str, segments: int = 100, **changes: object) -> Demand:
    """Return the demand of an inference job."""
    network = replace(plain_demand(job, segments), renditions=(), dlas=())
    return replace(network, **changes)  # type: ignore[arg-type]


def placed(demands: list[Demand], *nodes: Node, policy: Policy | None = None) -> Placement:
    """Place them."""
    return place_networks(demands, Inventory(nodes), policy or Policy())


def sessions(placement: Placement) -> dict[str, dict[str, int]]:
    """Return {job: {DLA: sessions}}."""
    found: dict[str, dict[str, int]] = {}
    for lane in placement.lanes:
        found.setdefault(lane.job, {})[lane.device] = lane.sessions
    return found


def test_a_single_job_gets_every_dla() -> None:
    """A single job gets two segments at a time on each DLA of every machine."""
    found = placed([wanted("j")], orin("a", 2), orin("b", 1), orin("c", 0))
    assert sessions(found) == {"j": {"a/dla#0": 2, "a/dla#1": 2, "b/dla#0": 2}}
    assert {lane.route for lane in found.lanes} == {Route.DLA}
    assert found.refusals == ()


def test_few_segments_are_spread() -> None:
    """A DLA gets a second segment only when each DLA has one."""
    assert sessions(placed([wanted("j", 3)], orin("a", 2))) == {"j": {"a/dla#0": 2, "a/dla#1": 1}}
    assert sessions(placed([wanted("j", workers_max=1)], orin("a", 2))) == {"j": {"a/dla#0": 1}}


def test_jobs_share_by_weight_and_priority_comes_first() -> None:
    """Jobs get DLAs by weight, but a job of higher priority is served first."""
    two = placed([wanted("j", weight=Fraction(3)), wanted("k")], orin("a", 2))
    assert {job: sum(given.values()) for job, given in sessions(two).items()} == {"j": 3, "k": 1}
    first = placed([wanted("j"), wanted("k", priority=1)], orin("a", 2))
    assert set(sessions(first)) == {"k"}
    assert [refusal.reason for refusal in first.refusals] == ["all DLAs are busy with other work"]


def test_a_job_may_ask_for_some_dlas() -> None:
    """A job may require DLAs by number, on any machine; if none has this number, the refusal says so."""
    numbered = placed([wanted("j", dlas=(1,))], orin("a", 2), orin("b", 1))
    assert sessions(numbered) == {"j": {"a/dla#1": 2}}
    missing = placed([wanted("j", dlas=(2, 3))], orin("a", 2))
    assert [refusal.reason for refusal in missing.refusals] == ["no machine has DLA 2 or 3: DLAs are counted from 0"]
    assert [refusal.reason for refusal in placed([wanted("j")]).refusals] == ["no machine has a DLA"]
    assert [refusal.reason for refusal in placed([wanted("j", 0)], orin("a", 1)).refusals] == ["nothing is left to do"]


def test_closed_machines_and_dlas_get_nothing() -> None:
    """Drained machines and quarantined DLAs get no work, and preemptible nodes come last."""
    broken = orin("a", 2)
    sick = replace(broken.dlas[0], state=DeviceState.QUARANTINED, state_reason="it hangs")
    machine = replace(broken, dlas=(sick, broken.dlas[1]))
    assert sessions(placed([wanted("j")], machine)) == {"j": {"a/dla#1": 2}}
    alone = placed([wanted("j", dlas=(0,))], machine)
    assert alone.refusals[0].reason == "no DLA can run the network: DLA 0 is quarantined because it hangs"
    drained = orin("b", 1, state=DeviceState.DRAINING, state_reason="a user asked")
    assert sessions(placed([wanted("j")], drained)) == {}
    spot = orin("a", 1, preemptible=True)
    assert sessions(placed([wanted("j", 2)], spot, orin("b", 1))) == {"j": {"b/dla#0": 2}}
    assert sessions(placed([wanted("j")], spot, policy=Policy(preemptible=PreemptibleUse.NEVER))) == {}


@given(
    nodes=st.lists(st.integers(0, 3), max_size=4),
    jobs=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(0, 1)), max_size=5),
)
def test_no_dla_is_overloaded_or_idle_while_a_job_waits(nodes: list[int], jobs: list[tuple[int, int, int]]) -> None:
    """Sessions never exceed the limit of a DLA or a job, and free sessions go to jobs that want more."""
    machines = [orin(f"n{number}", count) for number, count in enumerate(nodes)]
    demands = [
        wanted(f"j{number}", pieces, weight=Fraction(weight), priority=priority)
        for number, (pieces, weight, priority) in enumerate(jobs)
    ]
    found = placed(demands, *machines)
    assert found == placed(demands[::-1], *machines[::-1])
    by_dla = Counter[str]()
    for lane in found.lanes:
        by_dla[lane.device] += lane.sessions
    room = SESSIONS_PER_DLA * sum(nodes)
    assert all(count <= SESSIONS_PER_DLA for count in by_dla.values())
    assert by_dla.total() == min(room, sum(pieces for pieces, _, _ in jobs))
    assert {refusal.job for refusal in found.refusals} == {d.job for d in demands} - {lane.job for lane in found.lanes}


def test_networks_never_move_a_transcode() -> None:
    """Transcodes are placed in the same way with and without DLAs and their jobs."""
    bare, rich = Inventory((orin("a", 0),)), Inventory((orin("a", 2),))
    transcodes = [plain_demand("t", 5), plain_demand("u", 3)]
    alone = place(transcodes, bare, start_rates(), Policy())
    together = Planner(Policy()).place([*transcodes, wanted("j"), wanted("k")], rich)
    assert [lane for lane in together.lanes if lane.route is not Route.DLA] == list(alone.lanes)
    assert [refusal for refusal in together.refusals if refusal.job in "tu"] == list(alone.refusals)
    assert {lane.job for lane in together.lanes if lane.route is Route.DLA} == {"j", "k"}

"""Previews: whether a demand can ever run, which encoder it would get, and why no GPU would help."""

from collections.abc import Sequence
from dataclasses import replace

from codecfleet.cluster.placement.assign.assignment import place
from codecfleet.cluster.placement.model.demand import Demand, EncoderChoice, EncoderKind
from codecfleet.cluster.placement.model.inventory import DeviceState, Inventory
from codecfleet.cluster.placement.model.placement import Placement
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.placement.model.preview import PlacementPreview, preview_of
from codecfleet.cluster.placement.rates import start_rates
from codecfleet.cluster.probes.report.engines import MediaCodec

from ..worlds import demand, gpu, inventory, node, rendition

T4 = EncoderKind("nvenc", "turing", "580")
BUSY = Inventory((node("n", "T4", cores=0),))
"""A machine of which nothing of the processor is free."""


class Placer:
    """Places jobs as a supervisor does, and counts the calls."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, demands: Sequence[Demand], machines: Inventory) -> Placement:
        """Place."""
        self.times += 1
        return place(demands, machines, start_rates(), Policy())


def ask(
    wanted: Demand, machines: Inventory, *others: Demand, idle: Inventory | None = None, times: int = 1
) -> PlacementPreview:
    """Return the preview of a demand, for which the planner must be called ``times`` times."""
    placer = Placer()
    preview = preview_of(wanted, others, machines, placer, idle=idle)
    assert placer.times == times
    return preview


def software(job: str = "job", **changes: object) -> Demand:
    """Return a job whose tracks software encodes."""
    return demand(job, encoder=EncoderChoice.SOFTWARE, **changes)


def test_the_gpu_that_finishes_soonest_would_encode() -> None:
    """The preview names the encoder kind of the GPU's NVENC, and no refusal."""
    machines = inventory(node("n", "T4", cores=4))
    assert ask(demand(), machines, idle=machines) == PlacementPreview(encoder_kind=T4, takes_gpu=True)


def test_an_open_encoder_is_chosen_beside_current_jobs() -> None:
    """If there are enough cores, a small NVENC is left to other jobs that wait for it."""
    machines = inventory(node("n", "T4", cores=64))
    asked = demand(segments=200)
    assert ask(asked, machines).encoder_kind == T4
    others = [demand(f"a{number}", segments=200, encoder=EncoderChoice.NVENC) for number in range(8)]
    assert ask(asked, machines, *others).encoder_kind is None


def test_a_bound_demand_is_placed_alone() -> None:
    """Whether a GPU helps a software job does not depend on current users of the GPU."""
    machines = inventory(node("n", "T4", cores=4))
    wanted, other = software(needs_gpu=True), software("a", segments=100, priority=1)
    assert place([wanted, other], machines, start_rates(), Policy()).lanes[-1].job == "a"
    assert ask(wanted, machines, other) == ask(wanted, machines) == PlacementPreview(takes_gpu=True)
    bound = demand(renditions=(rendition(kind=T4),), encoder=EncoderChoice.NVENC)
    assert ask(bound, inventory(node("n", "T4")), demand("a")) == PlacementPreview(encoder_kind=T4, takes_gpu=True)


def test_a_useless_gpu_has_a_reason() -> None:
    """The reason is about the GPU, not about processors; without a GPU, there is none."""
    wanted = software(software_decode="the pictures are interlaced")
    assert ask(wanted, inventory(node("n", "T4"))).gpu_refusal == "the pictures are interlaced"
    assert ask(wanted, inventory(node("n"), node("m", state=DeviceState.CORDONED))) == PlacementPreview()
    open_still = demand(renditions=(rendition(MediaCodec.AV1),), software_decode="the captions")
    assert ask(open_still, inventory(node("n", "T4")), replace(wanted, job="a")).gpu_refusal == "the captions"
    broken = gpu("T4", "n", state=DeviceState.QUARANTINED, state_reason="it fell off the bus")
    machine = node("n")
    machines = inventory(replace(machine, devices=(*machine.devices, broken)))
    assert ask(software(), machines).gpu_refusal == "it is quarantined because it fell off the bus"


def test_work_beyond_idle_machines_is_impossible() -> None:
    """A demand that fits nowhere now is placed once more, on the same machines without work."""
    wanted, machines = software(needs_gpu=True), inventory(node("n"))
    refused = ask(wanted, machines, idle=machines, times=2)
    assert refused == PlacementPreview(never="no machine has a GPU")


def test_a_job_that_only_waits_is_not_refused() -> None:
    """A job that fits only on busy machines is not refused, because it can run later."""
    assert ask(software(), BUSY, idle=inventory(node("n", "T4")), times=2).never == ""


def test_nothing_is_impossible_if_machines_may_join() -> None:
    """If further machines may join, nothing is impossible."""
    assert ask(software(needs_gpu=True), inventory(node("n")), idle=None).never == ""


def test_a_job_that_requires_nvenc_waits_for_one() -> None:
    """Even if other jobs have all cores, a job that requires NVENC learns that there is one."""
    asked, machines = demand(encoder=EncoderChoice.NVENC), inventory(node("n", "T4", cores=4))
    nvenc = PlacementPreview(encoder_kind=T4, takes_gpu=True)
    assert ask(asked, machines, software("a", segments=100, priority=1), times=2) == nvenc
    assert ask(asked, BUSY, idle=machines, times=2) == nvenc
    taken = ask(asked, BUSY, times=2)
    assert (taken.encoder_kind, taken.gpu_refusal) == (None, "the cores of its host are taken")

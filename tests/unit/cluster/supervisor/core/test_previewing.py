"""What a preview says of machines that are not fully known."""

from dataclasses import replace

import pytest

from codecfleet.cluster.placement.model.demand import Demand, plain_demand
from codecfleet.cluster.supervisor.state.events import Probed

from ..core_worlds import World, gpu_node, node, nvenc

SILENT = "NVML did not list this machine's GPUs: no answer within 10 s"


@pytest.mark.parametrize("demand", [replace(plain_demand("j", 4), needs_gpu=True), nvenc("j", 4).demand])
def test_gpus_that_were_not_listed_are_the_reason(demand: Demand) -> None:
    """A job that needs one is told what is wrong, not that there is none."""
    world = World(replace(node("a"), unlisted=SILENT))
    assert world.core.preview(demand, nodes_may_join=False).never == SILENT


def test_a_job_that_software_does_is_told_too() -> None:
    """It is refused nothing."""
    found = World(replace(node("a"), unlisted=SILENT)).core.preview(plain_demand("j", 4), nodes_may_join=False)
    assert (found.never, found.gpu_refusal) == ("", SILENT)


def test_a_probe_lists_them_as_well() -> None:
    """Then nothing is in doubt."""
    ray, probed = gpu_node("a", "GPU-1")
    world = World(replace(ray, unlisted=SILENT))
    world.feed(Probed(probed))
    assert world.core.preview(nvenc("j", 4).demand, nodes_may_join=False).never == ""


def test_a_job_that_leaves_gpus_alone_has_a_reason_of_its_own() -> None:
    """Whatever NVML lists, it would not use it."""
    still = replace(plain_demand("j", 4), software_decode="it is short")
    found = World(replace(node("a"), unlisted=SILENT)).core.preview(still, nodes_may_join=False)
    assert found.gpu_refusal == "it is short"

"""On a machine with several GPUs, each worker of a fleet has the GPU that placement chose for it."""

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.cluster.fleet_variables import EVENTS
from codecfleet.cluster.probes.gpus.visible_device import open_nvml, shown_gpus
from tests.chosen_gpus import BY_CODECFLEET, BY_RAY, REPOSITORY, assert_chosen, workers_gpus
from tests.integration.ray_cluster import ray_cluster

pytestmark = [pytest.mark.ray, pytest.mark.timeout(110)]


@pytest.fixture
def uuids(cuda: Cuda) -> list[str]:
    """The UUIDs of the machine's GPUs, in the order of NVML; ``cuda`` skips without a real GPU."""
    del cuda
    nvml = open_nvml()
    found = [] if nvml is None else [gpu.uuid for gpu in shown_gpus(nvml, {}).gpus]
    if len(found) < 2:
        pytest.skip("the machine has only one GPU")
    return found


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}


@pytest.mark.parametrize("visible", ["all", "reversed numbers", "reversed uuids"])
def test_each_worker_has_the_gpu_that_placement_chose(visible: str, uuids: list[str], tmp_path: Path) -> None:
    """Placement, the worker and CUDA in the worker's process name the same GPU, in whichever order GPUs are listed."""
    numbers = ",".join(map(str, reversed(range(len(uuids)))))
    shown = {"reversed numbers": numbers, "reversed uuids": ",".join(reversed(uuids))}.get(visible)
    variables = {} if shown is None else {"CUDA_VISIBLE_DEVICES": shown}
    found = workers_gpus(tmp_path, {**_environment(), **variables}, len(uuids))
    assert_chosen(found, {uuid: uuid for uuid in uuids})


@pytest.mark.parametrize("starters", ["codecfleet", "ray", "both"])
def test_each_worker_of_a_cluster_has_the_chosen_gpu(
    starters: str, uuids: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So do workers of nodes that codecfleet or Ray starts; of two nodes that count the same GPUs, one uses each."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with ray_cluster(env={EVENTS: str(tmp_path), "PYTHONPATH": str(REPOSITORY)}) as cluster, ExitStack() as nodes:
        if starters != "ray":
            nodes.enter_context(cluster.started_node("--", env={"STARTED_BY": "codecfleet"}, start=BY_CODECFLEET))
        if starters != "codecfleet":
            variables = {"CUDA_VISIBLE_DEVICES": ",".join(reversed(uuids))}
            nodes.enter_context(cluster.started_node("--num-gpus", str(len(uuids)), env=variables, start=BY_RAY))
        assert_chosen(workers_gpus(tmp_path, cluster.env, len(uuids)), {uuid: uuid for uuid in uuids})

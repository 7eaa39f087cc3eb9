"""On a machine with several GPUs, each worker of a fleet has the GPU that placement chose for it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.cluster.fleet_variables import EVENTS
from codecfleet.cluster.probes.gpus.visible_device import CUDA_VARIABLE, open_nvml, shown_gpus
from tests.chosen_gpus import BY_CODECFLEET, BY_RAY, REPOSITORY, SHARER, assert_chosen, ways, workers_gpus
from tests.integration.ray_cluster import RayCluster, ray_cluster

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def uuids(cuda: Cuda) -> list[str]:
    """The UUIDs of the machine's GPUs, in the order of NVML; ``cuda`` skips without a real GPU."""
    del cuda
    nvml = open_nvml()
    found = [] if nvml is None else [gpu.uuid for gpu in shown_gpus(nvml, {}).gpus]
    if len(found) < 2:
        pytest.skip("the machine has only one GPU")
    return found


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with what the cluster's supervisor decides."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def cluster(uuids: list[str], events: Path) -> Iterator[RayCluster]:
    """A cluster whose head does no work, to which tests add nodes."""
    del uuids
    variables = {EVENTS: str(events), "PYTHONPATH": str(REPOSITORY)}
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(CUDA_VARIABLE, raising=False)
        with ray_cluster(env=variables) as running:
            yield running


@pytest.mark.parametrize("visible", ["all", "reversed numbers", "reversed uuids"])
def test_each_worker_has_the_gpu_that_placement_chose(visible: str, uuids: list[str], tmp_path: Path) -> None:
    """Placement, the worker and CUDA in the worker's process name the same GPU, in whichever order GPUs are listed."""
    numbers = ",".join(map(str, reversed(range(len(uuids)))))
    shown = {"reversed numbers": numbers, "reversed uuids": ",".join(reversed(uuids))}.get(visible)
    environment = {name: value for name, value in os.environ.items() if name != CUDA_VARIABLE}
    variables = {} if shown is None else {CUDA_VARIABLE: shown}
    found = workers_gpus(tmp_path, {**environment, **variables}, len(uuids))
    assert_chosen(found, {uuid: uuid for uuid in uuids})


@pytest.mark.parametrize("way", [*ways([], 0)])
def test_each_worker_of_a_cluster_has_the_chosen_gpu(
    way: str, uuids: list[str], cluster: RayCluster, events: Path
) -> None:
    """However its node was started."""
    started = ways(uuids, len(uuids))[way]
    # The variable tells the node's processes from those of the head.
    variables = {"STARTED_BY": "a test", **started.variables}
    with cluster.started_node(*started.options, env=variables, start=started.start):
        if started.is_shared:
            cluster.python(SHARER, "0")
        assert_chosen(workers_gpus(events, cluster.env, len(uuids)), {uuid: uuid for uuid in uuids})


def test_two_nodes_of_one_machine_share_no_gpu(uuids: list[str], cluster: RayCluster, events: Path) -> None:
    """Both nodes count the same GPUs; only one of them has a worker on each."""
    with (
        cluster.started_node("--", env={"STARTED_BY": "codecfleet"}, start=BY_CODECFLEET),
        cluster.started_node(env={"STARTED_BY": "ray"}, start=BY_RAY),
    ):
        assert_chosen(workers_gpus(events, cluster.env, len(uuids)), {uuid: uuid for uuid in uuids})

"""Each worker has the GPU or slice that placement chose for it, on simulated machines with a real Ray.

``tests/unit/cluster/supervisor/state/test_chosen_devices.py`` tries more machines, without Ray.
"""

import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from codecfleet.cluster.fleet_variables import EVENTS
from tests.chosen_gpus import BY_CODECFLEET, BY_RAY, REPOSITORY, SHARER, assert_chosen, ways, workers_gpus
from tests.integration.ray_cluster import RayCluster, ray_cluster

from .scenario import Action, Fault
from .simulated_driver import needs
from .test_slices import ON_NVENC, PARTS, clip, machine, processes, report_of, simulated

__all__ = ["clip"]  # a fixture
pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(300), needs("PyNvVideoCodec")]


class Gpus(NamedTuple):
    """The GPUs and slices of a machine of ``parts.toml`` that get work."""

    uuids: dict[str, str]  #: what CUDA calls each, by its name on the machine
    whole: int  #: how many GPUs the machine has


def gpus_of(kind: str) -> Gpus:
    """Return the GPUs of a machine. A vGPU, whose UUID changes, is called by its bus id."""
    devices = [device for device in machine(PARTS, kind).devices if not device.uuid.endswith("/cpu")]
    parts = [part.uuid for device in devices for part in device.slices]
    guests = {device.pci_bus_id: device.uuid for device in devices if device.kind.is_guest}
    wholes = [device.uuid for device in devices if not device.slices and not device.kind.is_guest]
    return Gpus({name: name for name in [*parts, *wholes]} | guests, len(devices))


KINDS: Final = {kind: gpus_of(kind) for kind in ("whole", "slices", "guests", "mixed")}


ROWS: Final = [
    pytest.param(kind, way, marks=pytest.mark.ci) if (kind, way) == ("mixed", "ray with a number") else (kind, way)
    for kind, way in product(KINDS, ways([], 0))
]


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with what the cluster's supervisor decides."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def cluster(events: Path) -> Iterator[RayCluster]:
    """A cluster whose head does no work, to which tests add nodes."""
    with ray_cluster(env={EVENTS: str(events), "PYTHONPATH": str(REPOSITORY)}) as running:
        yield running


@pytest.mark.parametrize(("kind", "way"), ROWS)
def test_a_worker_of_a_cluster_has_the_chosen_gpu(
    kind: str, way: str, cluster: RayCluster, events: Path, tmp_path: Path
) -> None:
    """Placement, worker and CUDA name the same GPU, however the node was started, and no two workers share one."""
    gpus = KINDS[kind]
    started = ways([*gpus.uuids.values()], gpus.whole)[way]
    variables = {**simulated(kind, tmp_path / "simulation"), **started.variables}
    with cluster.started_node(*started.options, env=variables, start=started.start):
        if started.is_shared:
            cluster.python(SHARER, tmp_path.name)
        assert_chosen(workers_gpus(events, cluster.env, len(gpus.uuids)), gpus.uuids)


def test_two_nodes_of_one_machine_share_no_gpu(cluster: RayCluster, events: Path, tmp_path: Path) -> None:
    """Both nodes count the same GPUs; each GPU has one worker, and the supervisor knows who has the others."""
    gpus, variables = KINDS["whole"], simulated("whole", tmp_path / "simulation")
    with (
        cluster.started_node("--", env=variables, start=BY_CODECFLEET),
        cluster.started_node(env=variables, start=BY_RAY),
    ):
        assert_chosen(workers_gpus(events, cluster.env, len(gpus.uuids)), gpus.uuids)


def test_a_node_that_lost_its_first_gpu_uses_the_others(cluster: RayCluster, events: Path, tmp_path: Path) -> None:
    """The node starts, and the workers of the other GPUs have the GPUs that placement chose."""
    lost = [Fault(function="nvmlDeviceGetUUID", action=Action.LOSE, call=1)]
    others = dict([*KINDS["whole"].uuids.items()][1:])
    with cluster.started_node("--", env=simulated("whole", tmp_path / "simulation", lost), start=BY_CODECFLEET):
        assert_chosen(workers_gpus(events, cluster.env, len(others)), others)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_reversed", [False, True], ids=["plain", "reversed"])
def test_a_worker_of_a_private_ray_has_the_chosen_gpu(kind: str, is_reversed: bool, tmp_path: Path) -> None:  # noqa: FBT001 - pytest's
    """Placement, worker and CUDA name the same GPU, in whichever order GPUs are listed."""
    gpus = KINDS[kind]
    shown = {"CUDA_VISIBLE_DEVICES": ",".join(sorted(gpus.uuids.values(), reverse=True))} if is_reversed else {}
    environment = {**os.environ, **simulated(kind, tmp_path / "simulation"), **shown}
    assert_chosen(workers_gpus(tmp_path / "events", environment, len(gpus.uuids)), gpus.uuids)


def test_a_worker_to_which_ray_gives_another_gpu_leaves(clip: Path, tmp_path: Path) -> None:
    """Ray gives a cut A100 first, which has no NVENC; the next worker has NVENC, and the first one ends at once."""
    folder, output = tmp_path / "simulation", tmp_path / "out.mp4"
    with ray_cluster() as cluster, cluster.started_node(env=simulated("cut", folder), start=BY_RAY):
        report = report_of(cluster.run("transcode", str(clip), str(output), *ON_NVENC))
        status = cluster.status_once(lambda found: not _on(found, "A100"), 10)
    assert report["encoder_kind"].startswith("h264_nvenc")
    assert processes(folder, "nvenc")
    assert _on(status, "RTX PRO 6000")
    assert any("but placement chose" in line for _, line in status["log"])


def _on(status: dict[str, Any], model: str) -> list[str]:
    """Return the live workers on GPUs and slices of a model."""
    names = {device["device"]: device["name"] for device in status["devices"]}
    live = (each for each in status["workers"] if each["state"] != "empty")
    return [each["worker"] for each in live if model in names.get(each["device"], "")]

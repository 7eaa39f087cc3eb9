"""Each worker has the GPU or slice that placement chose for it, on simulated machines with a real Ray."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.chosen_gpus import workers_gpus
from tests.integration.ray_cluster import ray_cluster

from .scenario import Scenario, machine
from .simulated_driver import needs, simulated_environment
from .test_slices import ON_NVENC, PARTS, clip, devices, processes, report_of, simulated

__all__ = ["clip"]  # a fixture
pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(300), needs("PyNvVideoCodec")]


@pytest.mark.parametrize(("name", "visible"), [("four", ""), ("four", "3,1,2,0"), ("slices", ""), ("guest", "")])
def test_a_worker_of_a_private_ray_takes_the_chosen_gpu(name: str, visible: str, tmp_path: Path) -> None:
    """Placement and worker name the same device, and no two workers share one."""
    scenario = Scenario(machine=machine("l4-x4") if name == "four" else machine(PARTS, name))
    shown = {"CUDA_VISIBLE_DEVICES": visible} if visible else {}
    simulation = tmp_path / "simulation"
    simulation.mkdir()
    env = {**os.environ, **simulated_environment(scenario, simulation, shared_state=True), **shown}
    found = workers_gpus(tmp_path, env)
    assert [each.reported for each in found] == [each.chosen.rpartition("/")[2] for each in found]
    assert [len(each.seen) for each in found] == [1] * len(found)
    assert len({each.seen for each in found}) == len({each.chosen for each in found}) == len(found)
    if name == "slices":
        assert {each.chosen for each in found} <= devices(name)


def test_a_worker_to_which_ray_gives_another_gpu_leaves(clip: Path, tmp_path: Path) -> None:
    """Ray gives a cut A100 first, which has no NVENC; the next worker has NVENC, and the first one ends at once."""
    folder, output = tmp_path / "simulation", tmp_path / "out.mp4"
    with ray_cluster() as cluster, cluster.started_node("--num-cpus", "2", env=simulated("cut", folder)):
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

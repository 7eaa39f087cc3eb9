"""On a machine with several GPUs, each worker of a fleet has the GPU that placement chose for it."""

import os
from pathlib import Path

import pytest

from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.cluster.probes.gpus.visible_device import open_nvml, shown_gpus
from tests.chosen_gpus import workers_gpus

pytestmark = [pytest.mark.ray, pytest.mark.timeout(110)]


def _uuids() -> list[str]:
    """Return the UUIDs of the machine's GPUs, in the order of NVML."""
    nvml = open_nvml()
    return [] if nvml is None else [gpu.uuid for gpu in shown_gpus(nvml, {}).gpus]


@pytest.mark.parametrize("visible", ["all", "reversed numbers", "reversed uuids"])
def test_each_worker_has_the_gpu_that_placement_chose(visible: str, cuda: Cuda, tmp_path: Path) -> None:
    """Placement, the worker and CUDA in the worker's process name the same GPU, in whichever order GPUs are listed."""
    del cuda  # the fixture skips without a real GPU
    uuids = _uuids()
    if len(uuids) < 2:
        pytest.skip("the machine has only one GPU")
    numbers = ",".join(map(str, reversed(range(len(uuids)))))
    shown = {"reversed numbers": numbers, "reversed uuids": ",".join(reversed(uuids))}.get(visible)
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    found = workers_gpus(tmp_path, environment if shown is None else {**environment, "CUDA_VISIBLE_DEVICES": shown})
    assert [(each.reported, each.seen) for each in found] == [
        (each.chosen, (each.chosen.removeprefix("GPU-"),)) for each in found
    ]
    assert sorted(each.chosen for each in found) == sorted(uuids)

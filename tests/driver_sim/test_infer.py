"""``codecfleet infer`` on a simulated machine with three DLAs, each with a worker process of a private Ray."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from codecfleet.actors.dla.engine.tensors import DataType as DlaType
from codecfleet.actors.dla.inference.pictures import PictureScaler, PixelRule
from codecfleet.testing.clips import Clip, constant_times, make_clip
from codecfleet.testing.nvidia.fake_cudla import fake_tensor

from ..integration.ray_cluster import ray_cluster
from .loadable import DataType, Loadable, Operation, Tensor
from .scenario import Action, Fault
from .simulated_driver import simulated_environment
from .test_dla import DLAS, scenario

pytestmark = [pytest.mark.ray]

DATA_MISMATCH = 0x40000007
FRAMES = 120
NETWORK = Loadable(
    Operation.BOX_MEAN,
    (Tensor("x", (2, 3, 36, 64), DataType.HALF),),
    (Tensor("cells", (2, 3, 9, 16)),),
    scale=3.0,
    bias=1.0,
)
RULE = PixelRule(mean=(10.0, 20.0, 30.0), scale=(0.25,))
OPTIONS = ("--mean", "10,20,30", "--scale", "0.25", "--segment-seconds", "0.5", "--json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inferred:
    """The result of a run of the command: its report, its output file, and the number of calls of each function."""

    report: dict[str, Any]
    tensors: dict[str, NDArray[Any]]
    calls: Counter[str]


SLOW = Fault(function="cudlaSubmitTask", action=Action.SLOW, value=200)
"""Every DLA is slow, so that a process which starts late on a busy machine still finds work."""


def infer(film: Path, folder: Path, *faults: Fault, options: Sequence[str] = ()) -> Inferred:
    """Run the command on a machine with three DLAs, whose processes all see the same faults."""
    loadable, output = folder / "net.dla", folder / "tensors.npz"
    loadable.write_bytes(NETWORK.to_bytes())
    simulated = simulated_environment(scenario(*faults), folder, shared_state=True)
    command = [sys.executable, "-m", "codecfleet", "infer", str(film), "--loadable", str(loadable)]
    done = subprocess.run(
        [*command, "--output", str(output), *OPTIONS, *options, "--second-runs", "0"],
        env={**os.environ, **simulated},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with np.load(output, allow_pickle=False) as archive:
        tensors = {name: archive[name] for name in archive.files}
    trace = (folder / "trace").read_text(encoding="utf-8").splitlines()
    calls = Counter(line.split(" ", 1)[0] for line in trace if " call=" in line)
    return Inferred(report=json.loads(done.stdout), tensors=tensors, calls=calls)


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A film of 120 pictures in ten segments."""
    clip = Clip(times=constant_times(FRAMES), width=320, height=176, options=(("x264-params", "keyint=12:scenecut=0"),))
    return make_clip(tmp_path_factory.mktemp("films") / "film.mp4", clip)


@pytest.fixture(scope="module")
def expected(film: Path) -> tuple[list[int], NDArray[np.float32]]:
    """Every frame's time, and the values that a sequential run would give."""
    source = fake_tensor("x", (2, 3, 36, 64), DlaType.HALF)
    scaler = PictureScaler(source)
    with av.open(str(film)) as container:
        frames = sorted(container.decode(video=0), key=lambda frame: frame.pts or 0)
    numbers = []
    for frame in frames:
        picture = RULE.applied(scaler.scaled(frame)[None], np.dtype(np.float16))
        numbers.append(NETWORK.expected([np.repeat(picture, 2, axis=0)])[0][0])
    return [frame.pts or 0 for frame in frames], np.stack(numbers)


def check(found: Inferred, expected: tuple[list[int], NDArray[np.float32]]) -> None:
    """Check that the file holds every frame's tensor, in order, at its time."""
    times, numbers = expected
    assert found.tensors["pts_ticks"].tolist() == times
    np.testing.assert_array_equal(found.tensors["cells"], numbers)
    assert found.report["frames"] == len(times)


def dlas_of(found: Inferred) -> dict[int, int]:
    """Return how many segments each DLA processed."""
    return {int(name.rpartition("/")[2]): count for name, count in found.report["segments_by_device"].items()}


def again(found: Inferred) -> str:
    """Return the report's lines about runs that failed."""
    return next(warning for warning in found.report["warnings"] if "failed and were retried" in warning)


@pytest.mark.slow
def test_three_dlas_do_a_job_without_a_warning(
    film: Path, tmp_path: Path, expected: tuple[list[int], NDArray[np.float32]]
) -> None:
    """Each DLA loads the network at most once for each of its two lanes."""
    found = infer(film, tmp_path, SLOW)
    check(found, expected)
    assert found.report["warnings"] == []
    assert set(dlas_of(found)) == {0, 1, 2}
    assert found.calls["cudlaModuleLoadFromMemory"] <= 2 * DLAS


@pytest.mark.slow
@pytest.mark.ci
def test_a_dla_that_breaks_costs_the_job_nothing(
    film: Path, tmp_path: Path, expected: tuple[list[int], NDArray[np.float32]]
) -> None:
    """All three DLAs work; a DLA that fails every task from its tenth on gets no more work, and the others continue."""
    broken = Fault(function="cudlaTask.dla1", action=Action.STATUS, value=DATA_MISMATCH, call=10, onwards=True)
    found = infer(film, tmp_path, broken, SLOW)
    check(found, expected)
    assert all(found.calls[f"cudlaTask.dla{number}"] for number in range(DLAS))
    assert set(dlas_of(found)) >= {0, 2}
    assert again(found)


@pytest.mark.slow
def test_a_process_that_dies_costs_the_job_nothing(
    film: Path, tmp_path: Path, expected: tuple[list[int], NDArray[np.float32]]
) -> None:
    """Work that the DLA of a killed process had begun is repeated."""
    found = infer(film, tmp_path, Fault(function="cudlaTask", action=Action.EXIT, value=9, call=20))
    check(found, expected)
    assert "died at work" in again(found)


@pytest.mark.slow
@pytest.mark.parametrize("function", ["cudlaTask.dla2", "cuStreamSynchronize"], ids=["engine", "driver"])
def test_a_dla_that_hangs_is_given_up(
    film: Path, tmp_path: Path, expected: tuple[list[int], NDArray[np.float32]], function: str
) -> None:
    """The process of a hanging DLA ends, whether cuDLA notices the hang or not, and its segment runs elsewhere."""
    hang = Fault(function=function, action=Action.HANG, call=8)
    found = infer(film, tmp_path, hang, SLOW, options=["--task-seconds", "0.5"])
    check(found, expected)
    assert again(found)


CLUSTER = """
import asyncio, json, sys, time
from dataclasses import replace
from fractions import Fraction
from codecfleet.actors.dla.inference.pictures import PixelRule
from codecfleet.cluster.ray.embedded import connect
from codecfleet.cluster.placement.model.inventory import dlas_of
from codecfleet.cluster.supervisor.state.settings import SupervisorSettings
from codecfleet.cluster.supervisor.core.core import Core
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.jobs.infer.job import infer
from codecfleet.jobs.infer.spec import InferSpec

source, loadable, output = sys.argv[1:]
options = {"mean": (10.0, 20.0, 30.0), "scale": (0.25,)}
spec = InferSpec(source=source, loadable=loadable, output=output, **options, segment_s=Fraction(1), second_runs=0)

async def main():
    connection = await connect()
    from codecfleet.cluster.fleet.leases.ground import Ground
    from codecfleet.cluster.fleet.leases.leased_pool import LeasedPool
    from codecfleet.cluster.supervisor.backends.ray_backend import RayBackend, live_nodes
    from codecfleet.cluster.supervisor.runner.runner import SupervisorRunner

    class WithDlas(RayBackend):
        async def probe(self, node, *, again):
            (ray,) = [each for each in live_nodes() if each.node == node]
            return replace(ray.unprobed(), dlas=dlas_of(node, 1 if ray.cores else 0))

    settings = SupervisorSettings()
    core = Core(settings, Policy(), 1, time.monotonic())
    runner = SupervisorRunner(WithDlas(60.0), core, settings)
    async with LeasedPool(Ground(supervisor=runner).reach) as pool:
        report = await infer(spec, pool)
        workers = [each["worker"] for each in runner.status().to_json()["workers"] if each["state"] == "ready"]
    await connection.close()
    print(json.dumps({"workers": workers, **report.to_json()}))

asyncio.run(main())
"""


@pytest.mark.slow
def test_the_dlas_of_a_cluster_share_the_work(
    film: Path, tmp_path: Path, expected: tuple[list[int], NDArray[np.float32]]
) -> None:
    """Each node has a worker in a reservation of Ray; the loadable is sent to the nodes, and nothing is left behind."""
    (tmp_path / "net.dla").write_bytes(NETWORK.to_bytes())
    output = tmp_path / "tensors.npz"
    simulated = simulated_environment(scenario(), tmp_path, shared_state=True)
    with ray_cluster(2, 2, env={**simulated, "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1"}) as cluster:
        told = cluster.python(CLUSTER, str(film), str(tmp_path / "net.dla"), str(output), timeout_s=100)
        left = cluster.python(
            "import ray; ray.init(log_to_driver=False, logging_level='CRITICAL')\n"
            "from ray.util.placement_group import placement_group_table\n"
            "print([group for group in placement_group_table().values() if group['state'] != 'REMOVED'])"
        )
    report = json.loads(told)
    with np.load(output, allow_pickle=False) as archive:
        tensors = {name: archive[name] for name in archive.files}
    check(Inferred(report=report, tensors=tensors, calls=Counter()), expected)
    assert [worker.rpartition("/")[2] for worker in report["workers"]] == ["dla#0", "dla#0"]
    assert report["warnings"] == []
    assert left.strip() == "[]"


@pytest.mark.slow
def test_a_cluster_without_a_dla_says_so(film: Path, tmp_path: Path) -> None:
    """The command prints one line and exits with code 4 after it has probed the nodes."""
    (tmp_path / "net.dla").write_bytes(b"any")
    options = ["--loadable", str(tmp_path / "net.dla"), "--output", str(tmp_path / "out.npz")]
    with ray_cluster(1) as cluster:
        done = cluster.run("infer", str(film), *options)
    assert done.returncode == 4, done.stderr
    assert done.stderr.count("\n") == 1
    assert "no machine has a DLA" in done.stderr

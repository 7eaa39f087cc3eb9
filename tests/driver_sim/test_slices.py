"""The whole product on slices and on a vGPU, however Ray was started.

The slices are those of an RTX PRO 6000 Blackwell: of the GPUs that can be cut, only RTX PRO Blackwell and Thor have
NVENC in their slices (Multi-Instance GPU User Guide, supported profiles).
"""

import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from codecfleet.testing.clips import Clip, constant_times, make_clip
from tests.integration.ray_cluster import RayCluster, ray_cluster

from .scenario import Action, Fault, Scenario, machine
from .simulated_driver import needs, simulated_environment
from .test_transcode import SEAM_PICTURES

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(300),
    needs("PyNvVideoCodec"),
]

PARTS = Path(__file__).with_name("parts.toml")
SIZE = "320x176"
FRAMES = 240
PICTURE_US = 40_000
"""How long NVDEC takes for a picture: slow enough that one slice does not do all before others have started."""
OPTIONS = ("--codec", "h264", "--preset", "1", "--segment-seconds", "1", "--overwrite", "--json")
ON_NVENC = (*OPTIONS, "--encoder", "nvenc", "--second-runs", "0")


def devices(name: str) -> set[str]:
    """Return the UUIDs of the devices that get work on a machine of ``parts.toml``."""
    gpus = [device for device in machine(PARTS, name).devices if not device.uuid.endswith("/cpu")]
    return {part.uuid for gpu in gpus for part in (gpu.slices or (gpu,))}


def simulated(name: str, folder: Path, faults: Sequence[Fault] = ()) -> dict[str, str]:
    """Return the variables with which programs see a machine of ``parts.toml``."""
    folder.mkdir()
    scenario = Scenario(machine=machine(PARTS, name), faults=tuple(faults), decode_picture_us=PICTURE_US)
    return simulated_environment(scenario, folder, shared_state=True)


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clip of 10 s that is cut into 10 segments."""
    made = Clip(times=constant_times(FRAMES), width=320, height=176, options=(("x264-params", "keyint=24:scenecut=0"),))
    return make_clip(tmp_path_factory.mktemp("clips") / "clip.mp4", made)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """Provide a cluster whose head does no work, to which tests add nodes."""
    with ray_cluster() as running:
        yield running


def codecfleet(*arguments: str, env: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    """Run the command line."""
    command = [sys.executable, "-m", "codecfleet", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)


def report_of(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    """Return the report of a job that succeeded."""
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])["report"]
    return found


def processes(folder: Path, engine: str) -> dict[str, set[str]]:
    """Return the processes that had sessions for the clip, by the UUID of their device."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for line in (folder / "trace").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"session engine={engine} ") and line.endswith(f"size={SIZE}"):
            said = dict(pair.split("=") for pair in line.split()[1:])
            found[said["uuid"]].add(said["pid"])
    return dict(found)


def assert_done_on(name: str, folder: Path, report: dict[str, Any]) -> None:
    """Check that each device decoded and encoded in one process, without a fallback."""
    assert report["encoder_kind"].startswith("h264_nvenc")
    assert {segment["decoded_by"] for segment in report["segments"]} == {"nvdec"}
    assert report["warnings"] == []
    assert report["frames"] == FRAMES
    encoders = processes(folder, "nvenc")
    assert encoders == processes(folder, "nvdec")
    assert set(encoders) <= devices(name)
    assert [len(found) for found in encoders.values()] == [1] * len(encoders)
    assert len(set.union(*encoders.values())) == len(encoders)


def assert_exact(clip: Path, output: Path) -> None:
    """Check with ``codecfleet verify`` that the output has every frame once, at its time."""
    checked = codecfleet("verify", str(clip), str(output), env=os.environ)
    assert checked.returncode == 0, checked.stdout
    assert f"complete: {FRAMES} frames" in checked.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("slices", marks=pytest.mark.ci), "guest"])
def test_a_private_ray_works_on_slices_and_on_a_guest(name: str, clip: Path, tmp_path: Path) -> None:
    """Several slices and a vGPU work, each in its own worker process; the film is exact, and never leaves a GPU."""
    env = {**os.environ, **simulated(name, tmp_path / "simulation")}
    output = tmp_path / "out.mp4"
    report = report_of(codecfleet("transcode", str(clip), str(output), *ON_NVENC, env=env))
    assert_done_on(name, tmp_path / "simulation", report)
    assert len(processes(tmp_path / "simulation", "nvenc")) >= min(2, len(devices(name)))
    trace = (tmp_path / "simulation" / "trace").read_text(encoding="utf-8")
    called = Counter(line.split(maxsplit=1)[0] for line in trace.splitlines())
    seams = len(report["segments"]) - 1
    assert called["cuMemcpyDtoHAsync"] == (2 * seams + 1) * SEAM_PICTURES
    assert called["cuMemcpyHtoDAsync"] == 0
    assert_exact(clip, output)


WAYS = {
    "plain": ("slices", (), {}),
    "number": ("slices", ("--num-gpus", "3"), {}),
    "uuids": ("slices", ("--num-gpus", "3"), {"CUDA_VISIBLE_DEVICES": ",".join(sorted(devices("slices")))}),
    "guest": ("guest", (), {}),
}
"""Ways to start a node of Ray, by name: the machine, the options of ``ray start``, and variables."""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.slow
def test_a_cluster_uses_every_slice_and_a_guest(way: str, cluster: RayCluster, clip: Path, tmp_path: Path) -> None:
    """However a node is started, each slice has one worker, no device is quarantined, and the film is exact."""
    name, options, variables = WAYS[way]
    folder, output = tmp_path / "simulation", tmp_path / "out.mp4"
    with cluster.started_node("--num-cpus", "2", *options, env={**simulated(name, folder), **variables}):
        report = report_of(cluster.run("transcode", str(clip), str(output), *ON_NVENC))
        status = cluster.status()
    assert_done_on(name, folder, report)
    assert status["quarantine"] == []
    workers = [worker["worker"] for worker in status["workers"] if "/gpu#" in worker["worker"]]
    assert len(workers) == len(set(workers)) == len(devices(name))
    assert_exact(clip, output)


@pytest.mark.slow
def test_a_guest_whose_nvenc_cannot_open_is_encoded_in_software(
    cluster: RayCluster, clip: Path, tmp_path: Path
) -> None:
    """If no session opens on an NVENC, software encodes, more slowly but exactly."""
    refused = Fault(function="NvEncOpenEncodeSessionEx", action=Action.STATUS, value=2)
    output = tmp_path / "out.mp4"
    with cluster.started_node("--num-cpus", "2", env=simulated("guest", tmp_path / "simulation", [refused])):
        report = report_of(cluster.run("transcode", str(clip), str(output), *OPTIONS, "--encoder", "auto"))
    assert report["encoder_kind"].startswith("libx264")
    assert_exact(clip, output)

"""``ray job submit``, as users do it: a checkout as working directory, and a project of theirs beside our wheel."""

import json
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request, urlopen

import av
import pytest

from tests.ray_head import UP_S, free_ports, ray_head

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(180)]

PORTS = ("metrics-export-port", "ray-client-server-port", "dashboard-agent-listen-port", "dashboard-agent-grpc-port")
JOB_S = 120
MARK = "ANSWER "

# Where codecfleet comes from, in the job's driver and in a worker, and whether a `jobs` beside it is still the user's.
WHERE = f"""
import importlib, json, os
import ray

def where():
    import codecfleet, codecfleet.jobs
    return os.path.realpath(codecfleet.__file__)

def owner():
    try:
        return importlib.import_module("jobs").OWNER
    except AttributeError:
        return None

ray.init(log_to_driver=False)
answer = {{"cwd": os.path.realpath(os.getcwd()), "owner": owner(), "driver": where()}}
answer["worker"] = ray.get(ray.remote(where).remote())
print("{MARK}" + json.dumps(answer))
"""

TRANSCODE = f"""
import json, os
import codecfleet
options = {{"preset": 1, "scale": (320, 180), "end_s": 2, "segment_s": 1}}
codecfleet.transcode(os.environ["FILM"], os.environ["OUTPUT"], **options)
print("{MARK}" + json.dumps({{"file": os.path.realpath(codecfleet.__file__), "cwd": os.path.realpath(os.getcwd())}}))
"""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A one-machine Ray that jobs can be submitted to."""

    address: str
    """Of the job server, as ``ray job submit --address`` takes it."""
    environment: dict[str, str]

    def submit(self, working_dir: Path, script: str, variables: dict[str, str] | None = None) -> dict[str, str | None]:
        """Run ``script`` as a job in a copy of ``working_dir`` and return the answer it prints."""
        runtime_env = json.dumps({"env_vars": variables or {}})
        command = [
            *(_script("ray"), "job", "submit", "--address", self.address, "--working-dir", str(working_dir)),
            *("--runtime-env-json", runtime_env, "--", sys.executable, "-c", script),
        ]
        done = subprocess.run(
            command, env=self.environment, cwd=working_dir, capture_output=True, text=True, timeout=JOB_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        (line,) = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
        answer: dict[str, str | None] = json.loads(line.removeprefix(MARK))
        return answer


def _script(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A Ray of our own on loopback, with private ports."""
    place = ("--node-ip-address=127.0.0.1", "--dashboard-host=127.0.0.1", "--num-cpus=2", "--num-gpus=0")
    ports = (f"--{name}={port}" for name, port in zip(PORTS, free_ports(len(PORTS)), strict=True))
    token = secrets.token_hex(32)
    env = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    with ray_head(*place, *ports, env=env) as head:
        address = f"http://127.0.0.1:{head.dashboard}"
        jobs = Request(f"{address}/api/jobs/", headers={"Authorization": f"Bearer {token}"})  # noqa: S310 - loopback
        until_s = time.monotonic() + UP_S
        while not _answers(jobs):
            assert time.monotonic() < until_s, "the job server does not answer"
            time.sleep(0.2)
        yield Cluster(address, head.env)


def _answers(request: Request) -> bool:
    try:
        with urlopen(request, timeout=5) as answer:  # noqa: S310 - loopback
            return bool(answer.read())
    except OSError:
        return False


def test_checkout_as_working_dir_is_the_code_that_runs(cluster: Cluster, repository: Path) -> None:
    """With ``--working-dir .``, driver and workers import a copy of the checkout, even if codecfleet is installed."""
    answer = cluster.submit(repository, WHERE)
    copy = f"{answer['cwd']}/codecfleet/__init__.py"
    assert answer["cwd"] != str(repository)
    assert (answer["driver"], answer["worker"]) == (copy, copy)


def test_project_with_its_own_jobs_runs_beside_ours(cluster: Cluster, project_with_jobs: Path, installed: Path) -> None:
    """A job of a project that has its own ``jobs`` package finds both: the project's by its name, ours as installed."""
    answer = cluster.submit(project_with_jobs, WHERE, {"PYTHONPATH": str(installed)})
    ours = str((installed / "codecfleet" / "__init__.py").resolve())
    assert (answer["owner"], answer["driver"], answer["worker"]) == ("the user", ours, ours)


def test_job_transcodes_on_the_cluster_it_runs_in(
    cluster: Cluster, repository: Path, film: Path, tmp_path: Path
) -> None:
    """A job that consists of a checkout transcodes every frame on the cluster's workers."""
    output = tmp_path / "film.mp4"
    answer = cluster.submit(repository, TRANSCODE, {"FILM": str(film), "OUTPUT": str(output)})
    assert answer["file"] == f"{answer['cwd']}/codecfleet/__init__.py"
    with av.open(output) as container:
        sizes = [(frame.width, frame.height) for frame in container.decode(video=0)]
    assert sizes == [(320, 180)] * 48


def _codecfleet(cluster: Cluster, *arguments: object, cwd: Path) -> "subprocess.Popen[str]":
    """Start our program as on another machine, which knows only the cluster's address and token."""
    command = [sys.executable, "-m", "codecfleet", *map(str, arguments)]
    environment = cluster.environment | {"RAY_API_SERVER_ADDRESS": cluster.address}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, cwd=cwd, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.ci
def test_a_submitted_command_outlives_its_client(cluster: Cluster, film: Path, tmp_path: Path) -> None:
    """The code is sent along; after a SIGKILL of the client the job goes on, and another client sees its whole log."""
    shutil.copy(film, tmp_path / "film.mp4")
    own = ("submit", "--python", sys.executable)
    job = ("transcode", "film.mp4", "out.mp4", "--preset", "1", "--scale", "180p", "--segment-seconds", "2")
    with _codecfleet(cluster, *own, *job, cwd=tmp_path) as client:
        assert client.stderr is not None
        name = client.stderr.readline().split()[2].rstrip(".")
        client.kill()
    with _codecfleet(cluster, "jobs", "logs", name, "--follow", cwd=tmp_path) as second:
        out, err = second.communicate(timeout=JOB_S)
    assert second.returncode == 0, err
    assert "240 in, 240 out" in out
    assert "240 frames to h264" in err
    assert cluster.environment["RAY_AUTH_TOKEN"] not in out + err
    with _codecfleet(cluster, *own, *job, cwd=tmp_path) as again:
        out, err = again.communicate(timeout=JOB_S)
    assert (again.returncode, out) == (4, "")
    assert err.splitlines()[-1].startswith("codecfleet: error: ")
    with _codecfleet(cluster, "jobs", "list", "--address", cluster.address, "--json", cwd=tmp_path) as lister:
        found = json.loads(lister.communicate(timeout=JOB_S)[0])["jobs"]
    assert {"succeeded", "failed"} <= {each["state"] for each in found}
    assert not any("logs" in each["message"] for each in found)


def test_rays_own_command_runs_ours(cluster: Cluster, film: Path, tmp_path: Path) -> None:
    """`ray job submit -- codecfleet ...` runs the installed program, and our command shows its log."""
    ours = [_script("codecfleet"), "probe", str(film)]
    command = [_script("ray"), "job", "submit", "--address", cluster.address, "--submission-id", "theirs", "--", *ours]
    done = subprocess.run(
        command, env=cluster.environment, cwd=tmp_path, capture_output=True, text=True, timeout=JOB_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with _codecfleet(cluster, "jobs", "logs", "theirs", "--follow", cwd=tmp_path) as follower:
        out, _ = follower.communicate(timeout=JOB_S)
    assert (follower.returncode, "1920x1080" in out) == (0, True)

"""``ray job submit``, as users do it: a checkout as working directory, and a project of theirs beside our wheel."""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import av
import psutil
import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(180)]

READY_S = 60
STOP_S = 10
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

POLL = f"""
import os, sys, time, urllib.request
request = urllib.request.Request(sys.argv[1] + "/api/jobs/")
request.add_header("Authorization", "Bearer " + os.environ["RAY_AUTH_TOKEN"])
end = time.monotonic() + {READY_S}
while time.monotonic() < end:
    try:
        urllib.request.urlopen(request, timeout=5).read()
        sys.exit(0)
    except OSError:
        time.sleep(0.2)
sys.exit("no job server")
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


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _environment(folder: Path) -> dict[str, str]:
    """Return an environment in which this Ray meets no other: its own home, folder and token, and loopback only."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_") and name != "PYTHONPATH"}
    return kept | {
        "HOME": str(folder),
        "RAY_TMPDIR": str(folder),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A Ray of our own on private ports, ended process by process: ``ray stop`` would end every Ray on the machine."""
    folder = Path(tempfile.mkdtemp(prefix="cf", dir="/tmp"))  # short: Unix sockets in it have at most 107 characters
    gcs, dashboard, agent, agent_grpc, metrics, client = _free_ports(6)
    command = [
        *(_script("ray"), "start", "--head", "--block", "--disable-usage-stats", "--num-cpus=2", "--num-gpus=0"),
        *("--node-ip-address=127.0.0.1", f"--port={gcs}", f"--metrics-export-port={metrics}"),
        *("--include-dashboard=true", "--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}"),
        *(f"--dashboard-agent-listen-port={agent}", f"--dashboard-agent-grpc-port={agent_grpc}"),
        *(f"--ray-client-server-port={client}", f"--object-store-memory={100 * 2**20}"),
    ]
    environment = _environment(folder)
    log = folder / "ray-start.log"
    with log.open("wb") as output:
        head = subprocess.Popen(
            command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        address = f"http://127.0.0.1:{dashboard}"
        _wait_for_jobs(address, head, environment, log)
        yield Cluster(address, environment)
    finally:
        _end(head, folder)


def _wait_for_jobs(address: str, head: subprocess.Popen[bytes], environment: dict[str, str], log: Path) -> None:
    """Return once the job server answers."""
    done = subprocess.run([sys.executable, "-c", POLL, address], env=environment, check=False)
    assert (done.returncode, head.poll()) == (0, None), log.read_text()


def _end(head: subprocess.Popen[bytes], folder: Path) -> None:
    """End the head and all that came from it, then remove its folder."""
    family = [process for process in psutil.process_iter(["environ"]) if _belongs(process, folder)]
    head.kill()  # first, so that it starts nothing again
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    head.wait()
    psutil.wait_procs(family, timeout=STOP_S)
    shutil.rmtree(folder, ignore_errors=True)


def _belongs(process: psutil.Process, folder: Path) -> bool:
    environ = process.info["environ"] or {}
    return bool(environ.get("RAY_TMPDIR") == str(folder))


def test_checkout_as_working_dir_is_the_code_that_runs(cluster: Cluster, repository: Path) -> None:
    """``--working-dir .`` takes the checkout with it: driver and workers import that copy, whatever is installed."""
    answer = cluster.submit(repository, WHERE)
    copy = f"{answer['cwd']}/codecfleet/__init__.py"
    assert answer["cwd"] != str(repository)
    assert (answer["driver"], answer["worker"]) == (copy, copy)


def test_project_with_its_own_jobs_runs_beside_ours(cluster: Cluster, project_with_jobs: Path, installed: Path) -> None:
    """Submitted from a project that has a ``jobs`` package, both are found: theirs by its name, ours as installed."""
    answer = cluster.submit(project_with_jobs, WHERE, {"PYTHONPATH": str(installed)})
    ours = str((installed / "codecfleet" / "__init__.py").resolve())
    assert (answer["owner"], answer["driver"], answer["worker"]) == ("the user", ours, ours)


def test_job_transcodes_on_the_cluster_it_runs_in(
    cluster: Cluster, repository: Path, film: Path, tmp_path: Path
) -> None:
    """A job that comes as a checkout alone transcodes on the cluster's own workers, every frame of it."""
    output = tmp_path / "film.mp4"
    answer = cluster.submit(repository, TRANSCODE, {"FILM": str(film), "OUTPUT": str(output)})
    assert answer["file"] == f"{answer['cwd']}/codecfleet/__init__.py"
    with av.open(output) as container:
        sizes = [(frame.width, frame.height) for frame in container.decode(video=0)]
    assert sizes == [(320, 180)] * 48


def _codecfleet(cluster: Cluster, *arguments: object, cwd: Path) -> "subprocess.Popen[str]":
    """Start our program as on a machine beside the cluster, which knows its address and token alone."""
    command = [sys.executable, "-m", "codecfleet", *map(str, arguments)]
    environment = cluster.environment | {"RAY_API_SERVER_ADDRESS": cluster.address}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, cwd=cwd, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.ci
def test_a_submitted_command_outlives_its_client(cluster: Cluster, film: Path, tmp_path: Path) -> None:
    """The code is sent along; after a SIGKILL of the client the job goes on, and another sees it all, and its end."""
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
    with _codecfleet(cluster, "jobs", "ray", "--address", cluster.address, "--json", cwd=tmp_path) as lister:
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

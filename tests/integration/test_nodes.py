"""A cluster of two nodes that `codecfleet node` starts on this machine: token, work and end."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from codecfleet.cluster.node.keeping import STOP_S
from tests.ray_head import free_ports

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]

PROGRAM = (sys.executable, "-m", "codecfleet")
SMALL = ("--", "--object-store-memory", "100000000", "--min-worker-port", "0", "--max-worker-port", "0")
LIMIT_S = 240
RAY_CLIENT_PORT = 10001
SEGMENTS = ("--segment-seconds", "1", "--preset", "ultrafast")


@dataclass
class Machine:
    """This machine with its own home and folders; its nodes are killed at the end."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)
    port: int = 0
    prefix: tuple[str, ...] = ()  # runs a command in the machine's own network

    @property
    def env(self) -> dict[str, str]:
        """The user's environment."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        own = {"HOME": str(self.folder), "XDG_RUNTIME_DIR": str(self.folder), "PYTHONPATH": os.pathsep.join(sys.path)}
        return {**inherited, **own, **self.variables}

    @property
    def address(self) -> str:
        """The head's."""
        return f"127.0.0.1:{self.port}"

    def run(self, *arguments: object, env: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end."""
        command = [*self.prefix, *PROGRAM, *map(str, arguments)]
        around = {**self.env, **(env or {})}
        return subprocess.run(command, env=around, capture_output=True, text=True, timeout=LIMIT_S, check=False)

    def start(self, *arguments: object) -> "subprocess.Popen[str]":
        """Start a command."""
        pipe, command = subprocess.PIPE, [*self.prefix, *PROGRAM, *map(str, arguments)]
        return subprocess.Popen(command, env=self.env, stdout=pipe, stderr=pipe, text=True)

    def begin(self) -> dict[str, Any]:
        """Start a head; return its output."""
        self.port, dashboard = free_ports(2)
        place = ("--temp-dir", self.folder / "h", "--cpus", 1, "--zone", "rack-1", "--json")
        ports = ("--port", self.port, "--dashboard-port", dashboard)
        began = self.run("node", "start", "--head", *ports, *place, *SMALL)
        assert began.returncode == 0, began.stderr
        said: dict[str, Any] = json.loads(began.stdout)
        return said

    def join(self) -> "subprocess.Popen[str]":
        """Start a node in the foreground, and wait until it is up."""
        place = ("--temp-dir", self.folder / "w", "--cpus", 1, "--label", "team=video", "--drain-seconds", 120)
        node = self.start("node", "start", "--address", self.address, "--block", *place, *SMALL)
        assert node.stderr is not None
        said = [node.stderr.readline(), node.stderr.readline()]
        assert said[1] == "codecfleet: the node is up\n", (said, node.stderr.read())
        return node

    def processes(self) -> list[psutil.Process]:
        """Return all processes that run with its home."""
        return [each for each in psutil.process_iter() if self._is_ours(each)]

    def listening(self) -> set[int]:
        """Return the ports on which its processes listen."""
        found: set[int] = set()
        for each in self.processes():
            with suppress(psutil.Error):
                found |= {place.laddr.port for place in each.net_connections() if place.status == psutil.CONN_LISTEN}
        return found

    def _is_ours(self, process: psutil.Process) -> bool:
        with suppress(psutil.Error):
            return process.environ().get("HOME") == str(self.folder) and process.status() != psutil.STATUS_ZOMBIE
        return False


@contextmanager
def machine(**variables: str) -> Iterator[Machine]:
    """Yield a machine, and check that nothing is left at the end."""
    folder = Path(tempfile.mkdtemp(prefix="cfn-", dir="/tmp"))  # A short path, because Ray's sockets are in it.
    found = Machine(folder, variables)
    try:
        yield found
    finally:
        for process in found.processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        shutil.rmtree(folder, ignore_errors=True)


def test_two_nodes_from_nothing_to_nothing(film: Path) -> None:
    """Only the token's owner gets in, a node that ends during a job costs nothing, and nothing is left."""
    with machine() as here:
        alone = here.run("transcode", film, here.folder / "alone.mp4", *SEGMENTS)
        assert alone.returncode == 0, alone.stderr
        refused = here.run("node", "start", "--address", "127.0.0.1:1")
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
        here.begin()
        token = here.folder / ".ray" / "auth_token"
        assert token.stat().st_mode & 0o777 == 0o600
        _strangers_stay_out(here, film)
        node = here.join()
        _nodes_are_listed(here)
        _a_job_outlives_its_node(here, film, node)
        assert here.port in here.listening()
        assert RAY_CLIENT_PORT not in here.listening()
        _the_token_is_kept_secret(here, token.read_text())
        stopped = here.run("node", "stop", "--json")
        assert len(json.loads(stopped.stdout)["processes"]) == 1
        assert here.processes() == []


def _strangers_stay_out(here: Machine, film: Path) -> None:
    for secret in ({"HOME": "/nowhere"}, {"RAY_AUTH_TOKEN": "another"}, {"HOME": "/nowhere", "RAY_AUTH_MODE": "token"}):
        for command in (("nodes",), ("transcode", film, here.folder / "no.mp4")):
            out = here.run(*command, "--address", here.address, env=secret)
            assert out.returncode == 5
            last = out.stderr.splitlines()[-1]
            assert "did not let us in: the token is missing or wrong" in last
            assert len(last) < 250


def _nodes_are_listed(here: Machine) -> None:
    answered = here.run("node", "list", "--address", here.address, "--json")
    assert answered.returncode == 0, answered.stderr
    nodes = {node["ray"]["is_head"]: node["ray"] for node in json.loads(answered.stdout)["nodes"]}
    assert nodes[True]["labels"]["ray.io/availability-zone"] == "rack-1"
    assert nodes[False]["labels"]["team"] == "video"
    assert {node["labels"]["codecfleet/kind"] for node in nodes.values()} <= {"cpu", "nvdec", "nvenc"}
    assert [node["resources"]["CPU"] for node in nodes.values()] == [1, 1]
    assert {node["state"] for node in nodes.values()} == {"open"}


def _a_job_outlives_its_node(here: Machine, film: Path, node: "subprocess.Popen[str]") -> None:
    out = here.folder / "o.mp4"
    with here.start("transcode", film, out, "--address", here.address, "--json", *SEGMENTS) as job:
        assert job.stdout is not None
        events = (json.loads(line) for line in job.stdout)
        first = next(event for event in events if event["event"] == "segment_finished")
        assert first
        node.send_signal(signal.SIGTERM)
        _, said = node.communicate(timeout=LIMIT_S)
        assert (node.returncode, said) == (0, "codecfleet: the node is down\n")
        last = list(events)[-1]
        assert last["event"] == "done", job.stderr and job.stderr.read()
    assert out.read_bytes() == (here.folder / "alone.mp4").read_bytes()
    verified = here.run("verify", film, out)
    assert verified.returncode == 0, verified.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="a network of its own needs root")
@pytest.mark.parametrize("left_s", [60, 12], ids=["segments finish", "segments move"])
def test_a_job_outlives_a_spot_instance(film: Path, left_s: int) -> None:
    """A notice of EC2 drains the node in time; the job's bytes are the same, and no attempt counts."""
    slow = ("--segment-seconds", "1", "--scale", "1920x1080", "--preset", "slow" if left_s < 30 else "ultrafast")
    with machine() as here, _on_ec2(here) as cloud:
        alone = here.run("transcode", film, here.folder / "alone.mp4", *slow)
        assert alone.returncode == 0, alone.stderr
        here.begin()
        node = here.join()
        out = here.folder / "o.mp4"
        with here.start("transcode", film, out, "--address", here.address, "--json", *slow) as job:
            assert job.stdout is not None
            events = (json.loads(line) for line in job.stdout)
            assert any(event["event"] == "segment_finished" for event in events)
            assert cloud.stdin is not None
            cloud.stdin.write(f"announce {left_s}\n")
            cloud.stdin.flush()
            began_s = time.monotonic()
            _, said = node.communicate(timeout=LIMIT_S)
            assert (node.returncode, said) == (0, "codecfleet: the node is down\n")
            assert time.monotonic() - began_s < left_s + STOP_S
            last = list(events)[-1]
            assert last["event"] == "done", job.stderr and job.stderr.read()
        assert out.read_bytes() == (here.folder / "alone.mp4").read_bytes()
        failures = [failure for each in last["report"]["segments"] for failure in each["failures"]]
        assert [failure for failure in failures if failure["fault"] != "moved"] == []


@contextmanager
def _on_ec2(here: Machine) -> "Iterator[subprocess.Popen[str]]":
    """Give a machine a network in which EC2's metadata server answers; orders to the server go to its stdin."""
    lines = (
        "ip link set lo up",
        "ip addr add 169.254.169.254/32 dev lo",
        "ip link add eth0 type bridge",
        "ip addr add 10.9.0.1/24 dev eth0",
        "ip link set eth0 up",
        "ip route add default via 10.9.0.254",
        f"exec {sys.executable} -m tests.metadata_server 169.254.169.254 80",
    )
    command = ["unshare", "--net", "sh", "-e", "-c", "\n".join(lines)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=here.env, stdin=pipe, stdout=pipe, text=True) as cloud:
        assert cloud.stdout is not None
        assert cloud.stdout.readline() == "up\n"
        here.prefix = ("nsenter", "--net", f"--target={cloud.pid}")
        try:
            yield cloud
        finally:
            cloud.kill()


def _the_token_is_kept_secret(here: Machine, token: str) -> None:
    for process in here.processes():
        with suppress(psutil.Error):
            assert not any(token in word for word in process.cmdline())
    for log in (here.folder / "h" / "session_latest" / "logs").glob("*"):
        assert not log.is_file() or token.encode() not in log.read_bytes(), log.name


@pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl")
def test_a_cluster_with_tls_runs_a_job(film: Path) -> None:
    """With Ray's TLS variables, nodes and driver use TLS, and a driver without a certificate is refused."""
    with machine() as here:
        here.variables |= _certificates(here.folder)
        here.begin()
        node = here.join()
        done = here.run("transcode", film, here.folder / "o.mp4", "--address", here.address, "--end", "2", *SEGMENTS)
        assert done.returncode == 0, done.stderr
        plain = here.run("nodes", "--address", here.address, env={"RAY_USE_TLS": "0"})
        assert plain.returncode == 5
        node.send_signal(signal.SIGTERM)
        node.communicate(timeout=LIMIT_S)
        assert node.returncode == 0


def _certificates(folder: Path) -> dict[str, str]:
    """Make an authority, and one certificate for all addresses of this machine."""
    addresses = {each.address for found in psutil.net_if_addrs().values() for each in found if each.family == 2}
    names = ",".join(["DNS:localhost", *(f"IP:{address}" for address in sorted(addresses))])
    (folder / "names").write_text(f"subjectAltName={names}")
    for line in (
        "req -x509 -newkey rsa:2048 -nodes -days 2 -keyout ca.key -out ca.crt -subj /CN=authority",
        "req -newkey rsa:2048 -nodes -keyout node.key -out node.csr -subj /CN=node",
        "x509 -req -in node.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -out node.crt -extfile names",
    ):
        subprocess.run(["openssl", *line.split()], cwd=folder, check=True, capture_output=True)
    files = {"SERVER_CERT": "node.crt", "SERVER_KEY": "node.key", "CA_CERT": "ca.crt"}
    return {"RAY_USE_TLS": "1", **{f"RAY_TLS_{name}": str(folder / file) for name, file in files.items()}}

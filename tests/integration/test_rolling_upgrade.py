"""A cluster at work is upgraded, one node after the other and the supervisor last: nothing is lost or done again."""

import json
import os
import signal
import subprocess
from contextlib import ExitStack, closing
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any

import pytest

from codecfleet.cluster.releases import OLDEST, PROTOCOL

from .ray_cluster import BIN, RayCluster, ray_cluster

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(1800)]

NEWER = "0.1.1"
PATIENCE_S = 600
FILMS = 36
SPEAKS = """
import ray
ray.init(log_to_driver=False, logging_level="CRITICAL")
print(*ray.get(ray.get_actor("codecfleet-supervisor", "codecfleet").release.remote()))
"""
OPTIONS = (
    "--codec",
    "h264",
    "--preset",
    "3",
    "--scale",
    "960x540",
    "--segment-seconds",
    "1",
    "--json",
    "--second-runs",
    "0",
)
ALIVE = """
import ray
ray.init(log_to_driver=False, logging_level="CRITICAL")
print(*(node["NodeID"] for node in ray.nodes() if node["Alive"]))
"""
FIELD = '    of_the_next_release: str = "said"\n'
"""What messages of the newer release have beside those of ours."""


def installed(repository: Path, folder: Path, *, newer: bool) -> Path:
    """Return a folder with a copy of the package; the newer one speaks the next protocol, and says more."""
    copytree(repository / "codecfleet", folder / "codecfleet", ignore=ignore_patterns("__pycache__"))
    if newer:
        _replace(folder / "codecfleet/cluster/releases.py", "PROTOCOL: Final = ", "PROTOCOL: Final = 1 + ")
        for name, before in (
            ("supervisor/state/messages.py", '    unrecoverable: str = ""\n'),
            ("worker/heartbeat.py", '    pyav: str = ""\n'),
        ):
            _replace(folder / "codecfleet/cluster" / name, before, before + FIELD)
        facts = folder / f"codecfleet-{NEWER}.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: codecfleet\nVersion: {NEWER}\n", encoding="utf-8"
        )
    return folder


def _replace(path: Path, before: str, after: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(before) == 1, f"{path} has other lines now"
    path.write_text(text.replace(before, after), encoding="utf-8")


def point(link: Path, folder: Path) -> None:
    """Have a link lead to a folder, as an upgrade puts new code in the place of old."""
    fresh = link.with_suffix(".fresh")
    fresh.symlink_to(folder)
    fresh.replace(link)


def up(status: dict[str, Any]) -> list[str]:
    """Return the stations whose workers are up."""
    return [each["worker"] for each in status["workers"] if each["state"] == "ready"]


def start_batch(films: Path, output: Path, env: dict[str, str]) -> "subprocess.Popen[str]":
    """Start a batch; not in the checkout, which workers would take their code from."""
    command = [BIN / "codecfleet", "batch", str(films), "--output", str(output), *OPTIONS]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=films, env=env, stdout=pipe, stderr=pipe, text=True)


def outcome(batch: "subprocess.Popen[str]") -> list[dict[str, Any]]:
    """Return what a batch says of each file in the end."""
    told, error = batch.communicate(timeout=PATIENCE_S)
    assert batch.returncode == 0, error
    events = [json.loads(line) for line in told.splitlines()]
    return [event for event in events if event["event"].startswith("file_")]


class Nodes:
    """Nodes of one CPU, by name: each with code of its own."""

    def __init__(self, cluster: RayCluster) -> None:
        self._cluster = cluster
        self._running: dict[str, ExitStack] = {}
        self.ids: dict[str, str] = {}

    def start(self, name: str, code: Path) -> None:
        """Start one, and find out its Ray id."""
        known = set(self._cluster.python(ALIVE).split())
        env = {"PYTHONPATH": str(code), "NODE_OF_THE_TEST": name}
        self._running[name] = ExitStack()
        self._running[name].enter_context(self._cluster.started_node("--num-cpus", "1", env=env))
        (self.ids[name],) = set(self._cluster.python(ALIVE).split()) - known

    def upgrade(self, name: str, code: Path) -> None:
        """Drain one, wait until it has no worker, end it, and start it with other code."""
        node = self.ids[name]
        drained = self._cluster.run("drain", node)
        assert drained.returncode == 0, drained.stderr
        self._cluster.status_once(
            lambda status: not any(station.startswith(node) for station in up(status)), PATIENCE_S
        )
        self._running[name].close()
        self.start(name, code)

    def close(self) -> None:
        """End all."""
        for each in self._running.values():
            each.close()


def test_an_upgrade_under_load_loses_nothing(repository: Path, film: Path, tmp_path: Path) -> None:
    """Two nodes are drained, upgraded and started again in turn, then the supervisor; outputs are a quiet run's."""
    films, one = tmp_path / "films", tmp_path / "one"
    for folder, count in ((films, FILMS), (one, 1)):
        folder.mkdir()
        for number in range(count):
            (folder / f"{number}.mp4").symlink_to(film)
    older, newer = (installed(repository, tmp_path / name, newer=name == "newer") for name in ("older", "newer"))
    (quiet,) = outcome(start_batch(one, tmp_path / "quiet", {**os.environ, "PYTHONPATH": str(older)}))
    head = tmp_path / "head"
    head.symlink_to(older)
    with ray_cluster(env={"PYTHONPATH": str(head)}) as cluster, closing(Nodes(cluster)) as nodes:
        for name in "ab":
            nodes.start(name, older)
        batch = start_batch(films, tmp_path / "loud", {**cluster.env, "PYTHONPATH": str(older)})
        cluster.status_once(lambda status: len(up(status)) == len("ab"), PATIENCE_S)
        for name in "ab":
            nodes.upgrade(name, newer)
            cluster.status_once(lambda status: len(up(status)) == len("ab"), PATIENCE_S)
        point(head, newer)
        before = cluster.status_once(lambda status: bool(up(status)), PATIENCE_S)
        os.kill(before["pid"], signal.SIGKILL)
        after = cluster.status_once(
            lambda status: status["pid"] != before["pid"] and len(up(status)) == len("ab"), PATIENCE_S
        )
        assert cluster.python(SPEAKS).split() == [str(PROTOCOL + 1), str(OLDEST), NEWER]
        assert batch.poll() is None, "the batch was over too soon for an upgrade under load"
        assert sum("was adopted" in line for _, line in after["log"]) == len("ab")
        assert not any("died" in line for _, line in (*before["log"], *after["log"])), "work would have been done again"
        files = outcome(batch)
    assert [file["event"] for file in files] == ["file_done"] * FILMS
    assert {file["output_sha256"] for file in files} == {quiet["output_sha256"]}
    assert {file["tries"] for file in files} == {1}

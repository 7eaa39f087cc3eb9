"""A cluster has one version of codecfleet: other clients and nodes are refused in one line."""

import os
import subprocess
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest

from codecfleet.cluster.version import VERSION
from codecfleet.errors import VersionRefused

from .ray_cluster import BIN, RayCluster, ray_cluster

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]

OTHER = "9.9.9"
PATIENCE_S = 240


def installed(repository: Path, folder: Path) -> Path:
    """Return a folder with a copy of the package under another version."""
    copytree(repository / "codecfleet", folder / "codecfleet", ignore=ignore_patterns("__pycache__"))
    facts = folder / f"codecfleet-{OTHER}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: codecfleet\nVersion: {OTHER}\n", encoding="utf-8")
    return folder


def transcode(cluster: RayCluster, film: Path, output: Path, path: str) -> "subprocess.Popen[str]":
    """Start a job of the version at ``path``, outside the checkout, whose code workers would take."""
    command = [BIN / "codecfleet", "transcode", str(film), str(output), "--codec", "h264", "--preset", "1"]
    env = {**cluster.env, "PYTHONPATH": path}
    return subprocess.Popen(command, cwd=output.parent, env=env, stdout=-1, stderr=-1, text=True)


def test_client_and_node_of_another_version_are_refused(repository: Path, film: Path, tmp_path: Path) -> None:
    """The node's workers do not start and the status says why; the client gets one line with a remedy."""
    other = installed(repository, tmp_path / "other")
    ours = os.environ.get("PYTHONPATH", "")
    with ray_cluster() as cluster, cluster.started_node("--num-cpus", "1", env={"PYTHONPATH": str(other)}):
        job = transcode(cluster, film, tmp_path / "ours.mp4", ours)
        try:
            reason = f"its node has codecfleet {OTHER}, and the supervisor is codecfleet {VERSION}"
            cluster.status_once(lambda status: any(reason in each["reason"] for each in status["workers"]), PATIENCE_S)
            refused = transcode(cluster, film, tmp_path / "other.mp4", str(other))
            _, said = refused.communicate(timeout=PATIENCE_S)
        finally:
            job.terminate()
            job.communicate(timeout=PATIENCE_S)
    assert refused.returncode == VersionRefused.exit_code
    line = said.strip().splitlines()[-1]
    assert f"this client is codecfleet {OTHER}, and the cluster's supervisor is codecfleet {VERSION}" in line
    assert line.endswith("or replace the cluster: `codecfleet docs nodes`.")

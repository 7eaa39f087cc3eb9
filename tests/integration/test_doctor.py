"""``codecfleet doctor`` on the machine that runs this test, through the program."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from codecfleet.cluster.probes.node.probe import probe_node
from codecfleet.cluster.probes.node.report import NodeReport, from_json, pack, unpack

HAS_DRIVER = Path("/proc/driver/nvidia/version").exists()
without_gpu = pytest.mark.skipif(HAS_DRIVER, reason="this machine has an NVIDIA driver")


def doctor(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the program with a separate cache, in a folder with a trap for imports."""
    (folder / "av.py").write_text("raise SystemExit('imported from the current folder')\n")
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    command = [sys.executable, "-P", "-m", "codecfleet", "doctor", *options]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=90, check=False)


def report_of(document: dict[str, Any]) -> NodeReport:
    """Return the only machine's report."""
    (node,) = document["nodes"]
    return from_json(node["report"])


@without_gpu
def test_a_machine_without_a_gpu_is_healthy_and_says_what_it_will_use(tmp_path: Path) -> None:
    """Without a GPU the exit code is 0, the software engines are named, and stderr is empty."""
    done = doctor(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    words = " ".join(done.stdout.split())  # lines are folded
    assert "software encoders will be used: libx264, libx265, libsvtav1, libvpx-vp9" in words
    assert done.stdout.splitlines()[-1] == "healthy: nothing to fix"
    assert max(len(line) for line in done.stdout.splitlines()) <= 100


def test_the_document_holds_a_report_that_comes_back(tmp_path: Path) -> None:
    """The JSON document can be parsed, and its report matches the kernel's facts."""
    done = doctor(tmp_path, "--json", "--fresh")
    document = json.loads(done.stdout)
    report = report_of(document)
    assert unpack(pack(report)) == report
    assert report.host.name == os.uname().nodename
    assert 0 < report.host.cores <= len(os.sched_getaffinity(0))
    assert (report.simulated, report.probe_problems) == ("", ())
    assert document["healthy"] is (done.returncode == 0)


@without_gpu
def test_no_time_at_all_still_gives_a_report() -> None:
    """Probes that are cut off are named, and those that cannot be awaited are left out."""
    report = probe_node(limit_s=0.01)
    assert "no answer within" in " ".join(problem.reason for problem in report.probe_problems)
    assert report.host.cores > 0
    assert unpack(pack(report)) == report

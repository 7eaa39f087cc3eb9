"""The services for bare metal, as systemd reads them."""

import shutil
import subprocess
from pathlib import Path

import pytest

UNITS = ("codecfleet-head.service", "codecfleet-worker.service")


def settings(*files: Path) -> dict[str, list[str]]:
    """Return what units set in [Service], each setting with all its values."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in "\n".join(file.read_text(encoding="utf-8") for file in files).splitlines():
        if line.startswith("["):
            section = line
        elif section == "[Service]" and line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


@pytest.fixture(params=UNITS)
def service(request: pytest.FixtureRequest, deploy: Path) -> dict[str, list[str]]:
    """The settings of a unit, with those of the shared drop-in."""
    folder = deploy / "systemd"
    return settings(folder / request.param, folder / "codecfleet-.service.d" / "node.conf")


def test_the_token_is_a_credential(service: dict[str, list[str]]) -> None:
    """The token comes from root's file, and is in no command line, environment or unit."""
    assert service["LoadCredential"] == ["token:/etc/codecfleet/token"]
    assert "RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=%d/token" in service["Environment"]
    assert "--insecure" not in service["ExecStart"][0]


def test_a_worker_may_finish_its_segments(deploy: Path) -> None:
    """The service manager waits longer than the node drains, and first signals only the node's main process."""
    folder = deploy / "systemd"
    worker = settings(folder / UNITS[1], folder / "codecfleet-.service.d" / "node.conf")
    words = worker["ExecStart"][0].split()
    assert int(words[words.index("--drain-seconds") + 1]) + 20 <= int(worker["TimeoutStopSec"][0])
    assert worker["KillMode"] == ["mixed"]


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_understands_every_line(unit: str, deploy: Path, tmp_path: Path) -> None:
    """`systemd-analyze` has nothing to say about the unit, and finds the service well confined."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd-analyze")
    shutil.copytree(deploy / "systemd", tmp_path, dirs_exist_ok=True)
    # `systemd-analyze` also checks that the program exists; users install it, so another program stands in here.
    for name in UNITS:
        text = (tmp_path / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace("/opt/codecfleet/bin/codecfleet", "/bin/true"), encoding="utf-8")

    def ask(*question: str) -> subprocess.CompletedProcess[str]:
        command = [analyze, *question, str(tmp_path / unit)]
        around = {"SYSTEMD_UNIT_PATH": f"{tmp_path}:", "PATH": "/usr/bin:/bin"}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=around)

    verified = ask("verify")
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")
    assert ask("security", "--offline=yes", "--threshold=25").returncode == 0

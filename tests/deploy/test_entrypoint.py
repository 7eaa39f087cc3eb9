"""The images' entry point, run as in a container: not as root, unable to gain rights, on a read-only file system."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[[str], subprocess.CompletedProcess[str]]
CONFINED = """
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
command=$1; shift
for closed; do
    layer=$(mktemp -d /dev/shm/XXXXXX); mkdir $layer/upper $layer/work; chmod go-rwx $layer
    mount -t overlay -o lowerdir=$closed,upperdir=$layer/upper,workdir=$layer/work overlay $closed
    chmod go+x $closed; mount -o remount,ro,bind $closed
done
mount -o remount,ro,bind /
cd /dev/shm
exec setpriv --reuid 1000 --regid 1000 --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs \\
    /bin/sh -c "$command"
"""
"""Arguments: the command, then folders that only their owner may enter; the script opens them for the command."""


@pytest.fixture
def confined(repository: Path) -> Run:
    """A function that runs a shell command as in a container; only /dev/shm is writable, and is removed afterwards."""
    if os.geteuid() != 0 or not (shutil.which("unshare") and shutil.which("setpriv")):
        pytest.skip("namespaces are made as root, with unshare and setpriv")
    needed = (repository, Path(sys.prefix), Path(sys.base_prefix))
    closed = {parent for each in needed for parent in (each, *each.parents) if not parent.stat().st_mode & 0o001}

    def run(command: str) -> subprocess.CompletedProcess[str]:
        namespaces = ["unshare", "--mount", "--pid", "--fork", "--net", "--ipc", "--mount-proc", "--kill-child"]
        around = {
            "PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/nonexistent",
            **dict.fromkeys(("TMPDIR", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"), "/dev/shm"),  # noqa: S108 - its own
        }
        words = [*namespaces, "/bin/sh", "-ec", CONFINED, "sh", command, *sorted(map(str, closed))]
        return subprocess.run(words, capture_output=True, text=True, check=False, env=around)

    return run


def test_the_healthcheck_passes_unprivileged_on_a_read_only_root(confined: Run) -> None:
    """`codecfleet doctor` needs only a place for its temporary files."""
    done = confined("! touch /written 2> /dev/null && id -u && codecfleet doctor")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1000\n")
    assert "healthy: nothing to fix" in done.stdout


@pytest.mark.slow
def test_a_film_is_encoded_there_and_proven(confined: Run, film: Path) -> None:
    """A whole job runs with its worker processes, and `codecfleet verify` proves the output."""
    job = f"codecfleet transcode {film} out.mp4 --codec h264 --preset ultrafast --end 1"
    done = confined(f"{job} && codecfleet verify {film} out.mp4 --end 1")
    assert done.returncode == 0, done.stderr
    assert "complete: 24 frames" in done.stdout

"""A run of all tests, some of which take their process with them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FINE = "".join(f"def test_{number}() -> None: ...\n" for number in range(6))
BREAKS = "import ctypes\nimport os\n\n\ndef test_before() -> None: ...\n\n\ndef test_breaks() -> None:\n    {}\n"
CRASH, HANG = "os.abort()", "ctypes.PyDLL(None).sleep(60)"
"""What no handler of Python's hears of: the second holds the interpreter's lock."""
HOUSE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}


def _options(repository: Path) -> list[str]:
    """Return how the Makefile shares tests out, for two processes."""
    found = re.search(r"^AT_ONCE := (.*)$", (repository / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert found
    return found[1].replace("$(TEST_PROCESSES)", "2").split()


def _pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder with this project's ways of ending what hangs, but sooner."""
    command = [Path(sys.executable).with_name("pytest"), "-q", "-o", "faulthandler_timeout=2"]
    ending = ["-o", "faulthandler_exit_on_timeout=true", "--rootdir", folder, "."]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | HOUSE
    return subprocess.run(
        [*map(str, [*command, *options, *ending])],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("act", [CRASH, pytest.param(HANG, marks=[pytest.mark.slow, pytest.mark.ci])])
def test_a_test_that_takes_its_process_with_it_is_named(repository: Path, tmp_path: Path, act: str) -> None:
    """Whether it crashes or hangs in foreign code, it alone fails, the run ends, and it can be played again."""
    for name, source in {"a": FINE, "b": BREAKS.format(act), "c": FINE, "d": FINE}.items():
        (tmp_path / f"test_{name}.py").write_text(source)
    done = _pytest(tmp_path, *_options(repository))
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    assert "1 failed, 19 passed" in done.stdout
    again = _pytest(tmp_path, "--last-failed", "--collect-only")
    assert [line for line in again.stdout.splitlines() if "::" in line] == ["test_b.py::test_breaks"]

"""How the code is imported: as ``codecfleet`` and its subpackages, by no other name, without optional packages."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FLOORS = ("actors", "cluster", "jobs")
NVIDIA = ("PyNvVideoCodec", "cuda")

IMPORT_ALL = """
import importlib, json, pkgutil, sys
import codecfleet
for module in pkgutil.walk_packages(codecfleet.__path__, "codecfleet."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(json.dumps({"file": codecfleet.__file__, "modules": sorted(sys.modules)}))
"""
IMPORT_BESIDE_OTHERS = """
import json
import cluster, jobs
import codecfleet.cluster, codecfleet.jobs
print(json.dumps({"owner": [cluster.OWNER, jobs.OWNER], "file": codecfleet.jobs.__file__}))
"""


def _python(
    code: str, cwd: Path, path: Path | None = None, flags: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    command = [sys.executable, *flags, "-c", code]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def _answer(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
    assert done.returncode == 0, done.stderr
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def _roots(modules: object) -> set[str]:
    assert isinstance(modules, list)
    return {name.partition(".")[0] for name in modules}


def test_installed_wheel_imports_whole_from_anywhere(installed: Path, tmp_path: Path) -> None:
    """Every module imports from the installed wheel, without NVIDIA's packages, which are an extra."""
    answer = _answer(_python(IMPORT_ALL, tmp_path, installed))
    assert answer["file"] == str(installed / "codecfleet" / "__init__.py")
    assert _roots(answer["modules"]).isdisjoint(NVIDIA)


def test_checkout_imports_whole_without_being_installed(checkout: Path) -> None:
    """Every module imports from a checkout's root, through the links, and never as ``actors``."""
    answer = _answer(_python(IMPORT_ALL, checkout))
    assert answer["file"] == str(checkout / "codecfleet" / "__init__.py")
    assert _roots(answer["modules"]).isdisjoint(FLOORS)


def test_project_with_its_own_jobs_keeps_them(installed: Path, project_with_jobs: Path) -> None:
    """A user's ``jobs`` and ``cluster`` keep their names, and codecfleet's are found beside them."""
    answer = _answer(_python(IMPORT_BESIDE_OTHERS, project_with_jobs, installed))
    assert answer == {"owner": ["the user"] * 2, "file": str(installed / "codecfleet" / "jobs" / "__init__.py")}


@pytest.mark.parametrize("name", [*FLOORS, "configs", "docs"])
def test_bare_folder_is_no_module_once_installed(installed: Path, tmp_path: Path, name: str) -> None:
    """An installed codecfleet takes no name but its own."""
    assert not (installed / name).exists()
    # -S keeps other installed packages out, so that no other `cluster` is found.
    done = _python(f"import {name}", tmp_path, installed, flags=("-S",))
    assert done.returncode != 0
    assert "ModuleNotFoundError" in done.stderr

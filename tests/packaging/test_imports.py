"""How the code is reached: as ``codecfleet`` and its subpackages, by no other name, with nothing it need not have."""

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


@pytest.fixture(scope="module")
def wheel_import(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What happens when every module of the installed wheel is imported, in a directory that knows nothing of it."""
    return _answer(_python(IMPORT_ALL, tmp_path_factory.mktemp("elsewhere"), installed))


@pytest.fixture(scope="module")
def checkout_import(checkout: Path) -> dict[str, object]:
    """What happens when every module is imported from a checkout's root."""
    return _answer(_python(IMPORT_ALL, checkout))


def test_installed_wheel_imports_whole_from_anywhere(wheel_import: dict[str, object], installed: Path) -> None:
    """Every module of the installed wheel imports, and from the wheel."""
    assert wheel_import["file"] == str(installed / "codecfleet" / "__init__.py")


def test_checkout_imports_whole_without_being_installed(checkout_import: dict[str, object], checkout: Path) -> None:
    """Every module imports from a checkout's root, through the links."""
    assert checkout_import["file"] == str(checkout / "codecfleet" / "__init__.py")


def test_code_is_imported_by_one_name_only(checkout_import: dict[str, object]) -> None:
    """No module imports ``actors``, which would work in the checkout's root."""
    assert _roots(checkout_import["modules"]).isdisjoint(FLOORS)


def test_importing_needs_no_nvidia_package(wheel_import: dict[str, object]) -> None:
    """Importing every module needs none of NVIDIA's packages, which are an extra."""
    assert _roots(wheel_import["modules"]).isdisjoint(NVIDIA)


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

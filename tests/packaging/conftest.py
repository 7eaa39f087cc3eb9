"""Distributions built once from a copy of the checkout, which stays clean."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# The checkout may also have huge folders (an environment, output), so this lists what is copied.
SOURCES = (
    *("pyproject.toml", "MANIFEST.in", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "NOTICE", "Makefile"),
    *("requirements.lock", "requirements-nvidia.lock", "requirements-keys.lock", ".gitignore", ".gitattributes", ".ci"),
    *("actors", "cluster", "jobs", "configs", "codecfleet"),
    *("benchmarks", "deploy", "docs", "examples", "players", "tests"),
)

Build = Callable[[Path, str], Path]


def _copy(source: Path, target: Path) -> Path:
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
    elif source.exists():
        shutil.copy2(source, target)
    return target


@pytest.fixture(scope="session")
def checkout(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout as a clone has it, with its links."""
    root = tmp_path_factory.mktemp("checkout")
    for name in SOURCES:
        _copy(repository / name, root / name)
    return root


@pytest.fixture(scope="session")
def checkout_without_links(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same clone on a file system without links: each link is a text file that names its target."""
    root = tmp_path_factory.mktemp("without-links") / "checkout"
    shutil.copytree(checkout, root, symlinks=True)
    links = [path for path in (root / "codecfleet").iterdir() if path.is_symlink()]
    assert links
    for link in links:
        target = link.readlink()
        link.unlink()
        link.write_text(str(target))
    return root


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Build a ``wheel`` or an ``sdist`` of a tree with the locked build tools, and return its path."""

    def run(tree: Path, kind: str) -> Path:
        out = tmp_path_factory.mktemp(kind)
        command = [sys.executable, "-m", "build", "--no-isolation", "--skip-dependency-check", f"--{kind}"]
        command += ["--outdir", str(out), str(tree)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        (built,) = out.iterdir()
        return built

    return run


@pytest.fixture(scope="session")
def wheel(build: Build, checkout: Path) -> Path:
    """The wheel of this checkout."""
    return build(checkout, "wheel")


@pytest.fixture(scope="session")
def sdist(build: Build, checkout: Path) -> Path:
    """The sdist of this checkout."""
    return build(checkout, "sdist")


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the installed wheel and nothing else, to be put on ``PYTHONPATH``."""
    target = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(target)]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True)
    return target


@pytest.fixture
def project_with_jobs(tmp_path: Path) -> Path:
    """Somebody's project whose own packages are called ``jobs`` and ``cluster``."""
    for name in ("jobs", "cluster"):
        package = tmp_path / name
        package.mkdir()
        (package / "__init__.py").write_text("OWNER = 'the user'\n")
    return tmp_path

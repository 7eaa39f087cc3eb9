"""The contents of a wheel and an sdist, compared with the folders."""

import subprocess
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

FLOORS = ("actors", "cluster", "jobs")
Build = Callable[[Path, str], Path]


def _modules(tree: Path) -> set[str]:
    """Name every module of a checkout as the wheel must hold it."""
    roof = {path for path in (tree / "codecfleet").rglob("*.py") if path.relative_to(tree).parts[1] not in FLOORS}
    names = {str(path.relative_to(tree)) for path in roof}
    return names | {f"codecfleet/{path.relative_to(tree)}" for floor in FLOORS for path in (tree / floor).rglob("*.py")}


def _configs(tree: Path) -> set[str]:
    return {f"codecfleet/{path.relative_to(tree)}" for path in (tree / "configs").rglob("*") if path.is_file()}


def _pages(tree: Path) -> set[str]:
    return {f"codecfleet/{path.relative_to(tree)}" for path in (tree / "docs").rglob("*.md")}


def _contents(wheel: Path) -> dict[str, bytes]:
    """Return a wheel's files beside its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}


def test_wheel_holds_every_module_and_config_and_nothing_else(wheel: Path, checkout: Path) -> None:
    """Modules in folders, configs, pages, the typing marker and the dashboard are in the wheel; tests are not."""
    others = {"codecfleet/py.typed", "codecfleet/dashboard/page.html"}
    assert set(_contents(wheel)) == _modules(checkout) | _configs(checkout) | _pages(checkout) | others


def test_wheel_holds_each_file_once_and_no_link(wheel: Path) -> None:
    """The links of the checkout become plain files, each at one name."""
    with zipfile.ZipFile(wheel) as archive:
        entries = archive.infolist()
    assert max(Counter(entry.filename for entry in entries).values()) == 1
    assert not [entry.filename for entry in entries if (entry.external_attr >> 16) & 0o170000 == 0o120000]


def test_wheel_carries_licence_and_command(wheel: Path) -> None:
    """The licence, the notice and the ``codecfleet`` command come with the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name.partition(".dist-info/")[2]: name for name in archive.namelist()}
        command = archive.read(names["entry_points.txt"]).decode()
    assert {"licenses/LICENSE", "licenses/NOTICE"} <= set(names)
    assert "codecfleet = codecfleet.__main__:main" in command


def test_checkout_without_links_builds_the_same_wheel(build: Build, wheel: Path, checkout_without_links: Path) -> None:
    """If links arrive as text files, the wheel is the same, byte for byte in every module."""
    assert _contents(build(checkout_without_links, "wheel")) == _contents(wheel)


@pytest.mark.slow
@pytest.mark.ci
def test_sdist_builds_the_same_wheel(build: Build, wheel: Path, sdist: Path, tmp_path: Path) -> None:
    """The sdist holds all that the wheel is made of."""
    subprocess.run(["tar", "-xzf", str(sdist), "-C", str(tmp_path)], check=True)
    (tree,) = tmp_path.iterdir()
    assert _contents(build(tree, "wheel")) == _contents(wheel)


def test_sdist_holds_what_tests_and_the_demo_need(sdist: Path, checkout: Path) -> None:
    """From an sdist one can set up, test and run the demo: it holds every file of the checkout, and no link."""
    with tarfile.open(sdist) as archive:
        members = {member.name.partition("/")[2]: member for member in archive.getmembers()}
    floors = tuple(f"codecfleet/{name}" for name in (*FLOORS, "configs", "docs"))
    tracked = {str(path.relative_to(checkout)) for path in checkout.rglob("*") if path.is_file()}
    generated = ("codecfleet.egg-info/", "build/")
    assert {name for name in tracked if not name.startswith((*floors, *generated))} <= set(members)
    assert not [name for name, member in members.items() if member.issym() or member.islnk()]

"""The files of compat packages: which are found, whether they fit together, and what an upgrade left behind."""

from dataclasses import replace
from pathlib import Path

import pytest

from codecfleet.cluster.probes.cuda.driver import packages_here
from codecfleet.cluster.probes.cuda.forward import judge_packages, package_troubles, usable_compat_library
from codecfleet.cluster.probes.cuda.packages import compat_libraries
from codecfleet.cluster.probes.cuda.report import LINKS, CudaLibrary, KernelModule
from codecfleet.cluster.probes.report.verdict import Diagnosis, Grade

from ..cuda_reports import COMPAT_590, WITHOUT_NOTE, report

VERSION = "590.44.01"
MODULE = KernelModule("580.159.04", is_open=True)


def package(folder: Path, *, links: bool = True, **versions: str) -> Path:
    """Make the files of a compat package of ``VERSION``, with other ``versions`` of some libraries."""
    folder.mkdir(parents=True)
    for name, link in LINKS.items():
        version = versions.get(name.replace("-", "_"), VERSION)
        if version:
            (folder / f"{name}.so.{version}").write_bytes(b"")
        if links:
            (folder / link).symlink_to(f"{name}.so.{version or VERSION}")
    return folder


def found_in(folder: Path) -> CudaLibrary:
    """Return the library that is found in one folder."""
    (found,) = compat_libraries(Path("/"), [str(folder)])
    return found


def test_a_whole_package_has_no_trouble(tmp_path: Path) -> None:
    """Four libraries of one version with their links have no fault."""
    found = found_in(package(tmp_path / "compat"))
    assert (found.version, found.companions) == (VERSION, dict.fromkeys(LINKS, VERSION))
    assert package_troubles(found) == ()


def test_a_copy_without_links_is_found(tmp_path: Path) -> None:
    """Libraries copied from a runfile are found by their versioned names; each missing link is listed."""
    found = found_in(package(tmp_path / "mine", links=False))
    assert found.version == VERSION
    assert found.missing_links == tuple(LINKS.values())
    assert "the link libcuda.so.1 is missing or broken" in package_troubles(found)


def test_the_newest_of_a_folder_counts(tmp_path: Path) -> None:
    """Two versions in one folder are one package, and the newer libcuda is compared with the other libraries."""
    folder = package(tmp_path / "compat")
    (folder / "libcuda.so.610.43.02").write_bytes(b"")
    found = found_in(folder)
    assert found.version == "610.43.02"
    assert f"libnvidia-ptxjitcompiler is version {VERSION}, but libcuda is 610.43.02" in package_troubles(found)


@pytest.mark.parametrize(
    ("versions", "trouble"),
    [
        ({"libnvidia_ptxjitcompiler": "580.65.06"}, "libnvidia-ptxjitcompiler is version 580.65.06"),
        ({"libnvidia_nvvm": ""}, "libnvidia-nvvm is missing"),
        ({"libcudadebugger": ""}, "libcudadebugger is missing"),
    ],
)
def test_its_libraries_are_of_one_version(versions: dict[str, str], trouble: str, tmp_path: Path) -> None:
    """A library that is missing, or has another version, is named."""
    (found,) = package_troubles(found_in(package(tmp_path / "compat", **versions)))
    assert found.startswith(trouble)


@pytest.mark.parametrize(
    ("cuda", "missing"),
    [("590.44.01", ["libnvidia-nvvm", "libcudadebugger"]), ("510.39.01", ["libnvidia-nvvm"]), ("470.42.01", [])],
)
def test_a_library_belongs_to_it_from_its_cuda_version_on(cuda: str, missing: list[str]) -> None:
    """The library for JIT with LTO exists since CUDA 11.5, that of the debugger since 11.8."""
    older = dict.fromkeys(("libcuda", "libnvidia-ptxjitcompiler"), cuda)
    library = replace(WITHOUT_NOTE, version=cuda, companions=older)
    assert package_troubles(library) == tuple(f"{name} is missing" for name in missing)


def test_only_folders_of_compat_packages_count(tmp_path: Path) -> None:
    """A driver's own libcuda in a folder of the search path is no package; a folder that the user names has one."""
    package(tmp_path / "usr/lib/nvidia")
    own = tmp_path / "usr/lib/nvidia"
    for name in LINKS:
        (own / f"{name}.so.{VERSION}").rename(own / f"{name}.so.{MODULE.version}")
    mine = package(tmp_path / "home/me/cuda-compat-13")
    around = {"LD_LIBRARY_PATH": "/usr/lib/nvidia", "CODECFLEET_CUDA_COMPAT": "/home/me/cuda-compat-13"}
    found = packages_here(tmp_path, MODULE, around, [])
    assert [library.folder for library in found] == [str(mine)]
    assert packages_here(tmp_path, MODULE, {"CODECFLEET_CUDA_COMPAT": "never"}, []) == ()


def verdicts(library: CudaLibrary, driver: str, *, used: bool = False) -> list[Diagnosis]:
    """Return the verdicts on one package with a kernel driver."""
    found = report(driver, compat_libraries=(library,))
    return list(judge_packages(replace(found, library=library) if used else found))


def test_what_is_wrong_with_a_package_limits_it_where_it_is_used(tmp_path: Path) -> None:
    """A fault is a limit if the package is in use, otherwise a note; the fix for missing links creates them."""
    linked = found_in(package(tmp_path / "compat", links=False))
    (unused,), (used,) = verdicts(linked, MODULE.version), verdicts(linked, MODULE.version, used=True)
    assert (unused.state, used.state) == (Grade.OK, Grade.LIMITED)
    assert unused.limits == ("it cannot be used until it is repaired",)
    assert f"ln -s libcuda.so.{VERSION} {linked.folder}/libcuda.so.1" in unused.fix
    broken = found_in(package(tmp_path / "other" / "compat", libnvidia_nvvm=""))
    assert verdicts(broken, MODULE.version)[0].fix.startswith("copy the four libraries of one driver version into")


@pytest.mark.parametrize(("driver", "is_left"), [("580.159.04", False), ("590.48.01", False), ("595.45.04", True)])
def test_a_package_older_than_the_driver_should_have_gone_with_the_upgrade(driver: str, is_left: bool) -> None:  # noqa: FBT001
    """A package older than the driver never works, and its fix removes it; a package in use is judged elsewhere."""
    found = verdicts(COMPAT_590, driver)
    assert bool(found) is is_left
    assert not verdicts(COMPAT_590, driver, used=True)
    if found:
        assert found[0].fix.startswith("remove the package cuda-compat-13-1")


def test_a_package_with_a_fault_is_not_offered() -> None:
    """Only a package that works without new links is the fix for a runtime that is too new."""
    whole = replace(COMPAT_590, companions=dict.fromkeys(LINKS, VERSION))
    found = report(compat_libraries=(whole,))
    assert usable_compat_library(found, "13.1") == whole
    unlinked = replace(whole, missing_links=("libcuda.so.1",))
    assert usable_compat_library(replace(found, compat_libraries=(unlinked,)), "13.1") is None
    undebugged = replace(whole, missing_links=("libcudadebugger.so.1",))
    assert usable_compat_library(replace(found, compat_libraries=(undebugged,)), "13.1") == undebugged

"""Which CUDA driver workers load: that of a compat package only if it fits, is needed, and passes a trial."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from codecfleet.cluster.probes.cuda.choosing import DriverChoice, choose_driver
from codecfleet.cluster.probes.cuda.driver import workers_driver
from codecfleet.cluster.probes.cuda.report import CudaReport, Deployment, ForwardNote, RuntimeInUse
from codecfleet.cluster.probes.report.absence import Absence, Unavailable

from ..cuda_reports import COMPAT_590, compat_report, device, own_library, report
from .test_cuda_driver import CLOSED, FakeDriver, fake_driver, kernel_file

NEWER = RuntimeInUse("cuda-bindings 13.1", "13.1")
FOLDER = COMPAT_590.folder
TRIED = report(cuda="13.1", library=COMPAT_590)
SYSTEM = report(compat_libraries=(COMPAT_590,), runtimes=(NEWER,))


class Trials:
    """Answers trials with one report, and records the search paths that were tried."""

    def __init__(self, answer: CudaReport = TRIED) -> None:
        self.paths: list[str] = []
        self._answer = answer

    def __call__(self, path: str) -> CudaReport:
        self.paths.append(path)
        return self._answer


def chosen(
    system: CudaReport, answer: CudaReport = TRIED, environ: Mapping[str, str] | None = None
) -> tuple[DriverChoice, CudaReport, list[str]]:
    """Return the choice, the report that workers see, and which search paths were tried."""
    trials = Trials(answer)
    choice, seen = choose_driver(system, environ or {}, trials)
    return choice, seen, trials.paths


def test_a_package_that_fits_and_starts_is_loaded() -> None:
    """The folder of the package is first in the search path, and the reason names the runtime that needs it."""
    choice, seen, paths = chosen(SYSTEM, environ={"LD_LIBRARY_PATH": "/opt/lib"})
    assert (choice.search_path, choice.folder, paths) == (f"{FOLDER}:/opt/lib", FOLDER, [f"{FOLDER}:/opt/lib"])
    assert seen is TRIED
    assert choice.words == (
        f"workers load the compat package in {FOLDER}: "
        "cuda-bindings 13.1 (CUDA 13.1) is newer than the driver's CUDA 13.0"
    )
    assert choice.note == choice.words


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (replace(TRIED, init_code=804), "cuInit returned CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE (804)"),
        (replace(TRIED, init_code=803), "cuInit returned CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)"),
        (replace(TRIED, ended="the process was killed by SIGSEGV while cuInit"), "the process was killed by SIGSEGV"),
        (replace(TRIED, library=own_library("580.159.04")), "/usr/lib/libcuda.so.580.159.04 was loaded instead"),
        (replace(TRIED, library=Unavailable(Absence.NO_LIBRARY, "it does not load")), "it does not load"),
        (replace(TRIED, device_count=0, devices=()), "it found 0 devices, but the system's driver finds 1"),
        (replace(TRIED, devices=(device(context_code=999),)), "creating a context on device 0 returned CUDA error 999"),
    ],
)
def test_a_trial_that_fails_leaves_the_systems_driver(answer: CudaReport, reason: str) -> None:
    """If a trial fails, workers load the same driver as before, and the choice states the reason."""
    choice, seen, _ = chosen(SYSTEM, answer)
    assert (choice.search_path, choice.folder, seen) == (None, "", SYSTEM)
    assert choice.reason.startswith(f"a trial of the compat package in {FOLDER} failed: {reason}")
    assert choice.note.startswith("workers load the system's CUDA driver: ")


def test_a_device_that_fails_only_with_the_package_is_found_after_one_that_fails_with_both() -> None:
    """A device on which CUDA never started does not hide another on which the package stops it."""
    broken, healthy = device(context_code=999), device(ordinal=1)
    system = replace(SYSTEM, device_count=2, devices=(broken, healthy))
    choice, _, _ = chosen(system, replace(TRIED, device_count=2, devices=(broken, device(ordinal=1, context_code=999))))
    assert (choice.folder, "device 1 returned CUDA error 999" in choice.reason) == ("", True)
    choice, _, _ = chosen(system, replace(TRIED, device_count=2, devices=(broken, healthy)))
    assert choice.folder == FOLDER


@pytest.mark.parametrize(
    ("system", "environ", "reason"),
    [
        (replace(SYSTEM, compat_libraries=()), {}, ""),
        (replace(SYSTEM, is_tegra=True), {}, ""),
        (SYSTEM, {"CODECFLEET_CUDA_COMPAT": "never"}, "CODECFLEET_CUDA_COMPAT forbids compat packages"),
        (replace(SYSTEM, runtimes=()), {}, "it supports every CUDA runtime here, so no compat package is needed"),
        (
            replace(SYSTEM, devices=(device(name="NVIDIA GeForce RTX 4090"),)),
            {},
            "compat packages do not support GeForce",
        ),
        (
            replace(SYSTEM, compat_libraries=(replace(COMPAT_590, note=ForwardNote("13.1", (535,))),)),
            {},
            f"{FOLDER}: the library accepts R535, and the driver is R580",
        ),
        (
            replace(SYSTEM, compat_libraries=(replace(COMPAT_590, companions={"libcuda": "590.44.01"}),)),
            {},
            f"{FOLDER}: libnvidia-ptxjitcompiler is missing; libnvidia-nvvm is missing",
        ),
    ],
)
def test_what_does_not_fit_is_not_tried(system: CudaReport, environ: dict[str, str], reason: str) -> None:
    """If there is no package, or none is needed, allowed or suitable, nothing is tried, and jobs get no note."""
    choice, seen, paths = chosen(system, environ=environ)
    assert (choice, seen, paths) == (DriverChoice(reason=reason), system, [])
    assert choice.note == ""


def test_a_named_folder_without_a_package_is_reported(tmp_path: Path) -> None:
    """If CODECFLEET_CUDA_COMPAT names no package, nodes and jobs report it, unless there is no driver."""
    environ = {"CODECFLEET_CUDA_COMPAT": "/nonexistent"}
    reason = "CODECFLEET_CUDA_COMPAT names /nonexistent, which holds no compat package"
    note = f"workers load the system's CUDA driver: {reason}"
    choice, _, paths = chosen(replace(SYSTEM, compat_libraries=()), environ=environ)
    assert (choice.note, choice.search_path, paths) == (note, None, [])
    assert workers_driver(60, root=tmp_path, environ=environ) == DriverChoice()
    kernel_file(tmp_path, CLOSED)
    assert workers_driver(60, root=tmp_path, environ=environ).note == note


def test_nvrtc_counts_as_a_runtime() -> None:
    """An NVRTC that is newer than the driver also needs a package."""
    choice, _, _ = chosen(replace(SYSTEM, runtimes=(), nvrtc="13.1"))
    assert choice.reason == "NVRTC (CUDA 13.1) is newer than the driver's CUDA 13.0"


def test_the_newest_that_fits_is_tried() -> None:
    """Of two packages that fit, the one of the newer toolkit is tried; packages that do not fit are skipped."""
    newest = replace(COMPAT_590, path="/usr/local/cuda-13.4/compat/libcuda.so.615.1", note=ForwardNote("13.4", (610,)))
    older = replace(COMPAT_590, path="/opt/older/compat/libcuda.so.590.1", note=ForwardNote("13.1", (580,)))
    newer = replace(COMPAT_590, path="/opt/newer/compat/libcuda.so.610.1", note=ForwardNote("13.3", (580,)))
    found = replace(SYSTEM, compat_libraries=(older, newest, newer))
    assert chosen(found, replace(TRIED, library=newer))[2] == ["/opt/newer/compat"]


@pytest.mark.parametrize("code", [803, 804])
def test_a_package_in_the_search_path_that_cuda_refuses_is_left_out(code: int) -> None:
    """If the package in the search path does not start, the system's driver is used, and the choice says so."""
    system = compat_report(init_code=code)
    choice, seen, paths = chosen(system, report(), {"LD_LIBRARY_PATH": f"/a:{FOLDER}:/b"})
    assert (choice.search_path, choice.folder, paths) == ("/a:/b", "", ["/a:/b"])
    assert seen == report()
    assert choice.words == (
        f"workers load the system's CUDA driver: the compat package in {FOLDER} does not start ({code})"
    )


def test_a_refused_package_that_is_not_in_the_search_path_stays() -> None:
    """One process cannot leave out a package that the linker's configuration loads; the choice says so."""
    choice, _, paths = chosen(compat_report(init_code=804, deployment=Deployment.LINKER))
    assert (choice.search_path, choice.failed, paths) == (None, True, [])
    assert "does not start (804)" in choice.note
    assert chosen(compat_report())[0] == DriverChoice()


@pytest.mark.parametrize(("init", "is_loaded"), [(0, True), (804, False)])
def test_a_package_on_the_disk_is_tried_in_a_child_process(init: int, is_loaded: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """With real libraries on the disk, the package is loaded only if its cuInit succeeds."""
    system = fake_driver(tmp_path / "lib")
    kernel_file(tmp_path, CLOSED.replace("580.159.04", "535.54.03"))
    package = tmp_path / "usr/local/cuda-13.0/compat"
    fake_driver(package, init=init)
    for name in ("libnvidia-ptxjitcompiler", "libnvidia-nvvm", "libcudadebugger"):
        FakeDriver(package).build(name, "int nothing;")
    (package / "libnvidia-nvvm.so.1").rename(package / "libnvidia-nvvm.so.4")
    choice = workers_driver(60, root=tmp_path, environ={"LD_LIBRARY_PATH": str(system.folder)})
    if choice.reason.startswith("it supports"):
        pytest.skip("no CUDA runtime newer than the driver is installed")
    model = tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0/information"
    model.parent.mkdir(parents=True)
    model.write_text("Model: \t\t NVIDIA GeForce RTX 4090\nIRQ:   \t\t 42\n")
    on_geforce = workers_driver(60, root=tmp_path, environ={"LD_LIBRARY_PATH": str(system.folder)})
    assert on_geforce == DriverChoice(reason="compat packages do not support GeForce")
    if is_loaded:
        assert choice.search_path == f"{package}{os.pathsep}{system.folder}"
    else:
        assert choice.search_path is None
        assert "(804)" in choice.reason

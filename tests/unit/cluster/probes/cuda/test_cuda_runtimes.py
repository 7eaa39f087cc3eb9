"""Which CUDA runtimes a driver runs, by which kind of compatibility, and what to do about the others."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.probes.cuda.compat import Grade
from codecfleet.cluster.probes.cuda.tables import TOOLKIT_DRIVERS, Forward, forward_by_table

from ..cuda_reports import COMPAT_590, compat_report, device, report, runtime_verdict, verdict_on


@pytest.mark.parametrize(
    ("driver", "cuda", "runtime", "state", "rule"),
    [
        ("580.159.04", "13.0", "12.3", Grade.OK, "older toolkits"),
        ("580.159.04", "13.0", "13.0", Grade.OK, "older toolkits"),
        ("580.159.04", "13.0", "13.4", Grade.LIMITED, "minor-version"),
        ("575.57.08", "12.9", "13.4", Grade.BROKEN, "across major versions"),
        ("535.54.03", "12.2", "12.9", Grade.LIMITED, "minor-version"),
        ("525.53", "12.0", "12.3", Grade.BROKEN, "minor-version"),
        ("450.80.02", "11.0", "11.8", Grade.LIMITED, "minor-version"),
        ("450.51.05", "11.0", "11.1", Grade.BROKEN, "minor-version"),
        ("418.39", "10.1", "10.2", Grade.BROKEN, "each toolkit needs its own driver"),
    ],
)
def test_a_runtime_is_judged_by_the_kind_of_compatibility(
    driver: str, cuda: str, runtime: str, state: Grade, rule: str
) -> None:
    """Backward always, minor-version within a major one from its minimum on, and else not without a compat package."""
    verdict = runtime_verdict(runtime, report(driver, cuda))
    assert verdict.state is state
    assert rule in verdict.rule


def test_minor_version_compatibility_names_its_limits() -> None:
    """Functions that are too new (36) are said, and the driver that has them all; our kernels are not PTX (222)."""
    verdict = runtime_verdict("13.3", report())
    assert verdict.limits == ("functions newer than the driver fail: cudaErrorCallRequiresNewerDriver (36)",)
    assert verdict.fix == "install driver 610.43.02 or later"


def test_a_runtime_that_is_too_new_is_repaired_by_a_package_on_the_disk() -> None:
    """A compat package that fits is named first; one that does not fit is not named."""
    found = report("550.54.15", "12.4", compat_libraries=(COMPAT_590,))
    here = "put /usr/local/cuda-13.1/compat first in LD_LIBRARY_PATH, or install driver 580.65.06 or later"
    assert runtime_verdict("13.1", found).fix == here
    assert runtime_verdict("13.4", found).fix == "install driver 580.65.06 or later"


@pytest.mark.parametrize(
    ("driver", "cuda", "package"),
    [
        ("418.39", "10.1", ""),
        ("470.57.02", "11.4", ""),
        ("525.60.13", "12.0", ""),
        ("545.23.06", "12.3", ""),
        ("550.54.15", "12.4", ""),
        ("560.35.03", "12.6", ""),
        ("575.57.08", "12.9", ""),
        ("535.54.03", "12.2", "cuda-compat-13-3"),
        ("570.124.06", "12.8", "cuda-compat-13-3"),
    ],
)
def test_a_compat_package_is_advised_only_where_the_matrix_has_it(driver: str, cuda: str, package: str) -> None:
    """For cuda.bindings 13.3 the package is named on R535 and R570; elsewhere there is none, and that is said."""
    verdict = runtime_verdict("13.3", report(driver, cuda), "cuda-bindings 13.3.0")
    assert verdict.state is Grade.BROKEN
    assert verdict.fix.startswith("install driver 580.65.06 or later")
    assert "line of cuda-python" not in verdict.fix
    if package:
        folder = "/usr/local/cuda-13.3/compat first in LD_LIBRARY_PATH"
        assert f"or on a data-centre GPU install the package {package} and put {folder}" in verdict.fix
    else:
        assert "compat" not in verdict.fix
        assert verdict.because.endswith(f"no compat package brings it to R{driver.partition('.')[0]}")


@given(st.sampled_from(sorted(TOOLKIT_DRIVERS)), st.sampled_from(sorted(TOOLKIT_DRIVERS)))
def test_every_package_that_is_advised_is_one_that_works(host: str, runtime: str) -> None:
    """No advice for any pair of driver and runtime names a package that our own table calls unsupported."""
    driver = TOOLKIT_DRIVERS[host]
    found = runtime_verdict(runtime, report(driver, host))
    advised = re.search(r"cuda-compat-(\d+)-(\d+)", found.fix)
    if advised is not None:
        package = f"{advised[1]}.{advised[2]}"
        assert forward_by_table(package, int(driver.partition(".")[0])) is Forward.WORKS
        assert tuple(map(int, package.split("."))) >= tuple(map(int, runtime.split(".")))


def test_a_geforce_card_is_not_told_to_use_a_compat_package() -> None:
    """Forward compatibility is for data-centre GPUs: neither a package to install nor one on the disk is advised."""
    geforce = (device(name="NVIDIA GeForce RTX 3090", compute_capability="8.6"),)
    found = report("570.124.06", "12.8", devices=geforce, compat_libraries=(COMPAT_590,))
    verdict = runtime_verdict("13.1", found)
    assert verdict.fix == "install driver 580.65.06 or later"
    assert "compat packages are not for GeForce" in verdict.because


def test_an_old_gpu_is_not_told_to_leave_its_last_driver_branch() -> None:
    """Volta ends with R580: neither a driver nor a compat package after it is advised."""
    volta = (device(name="Tesla V100", compute_capability="7.0"),)
    older = report("535.54.03", "12.2", devices=volta)
    assert "install driver 580.65.06 or later of R580, the last branch for Volta" in runtime_verdict("13.0", older).fix
    assert "cuda-compat-13-0" in runtime_verdict("13.0", older).fix
    assert "compat" not in runtime_verdict("13.3", older).fix
    newest = runtime_verdict("13.3", report(devices=volta))
    assert newest.fix == "use a newer GPU: the last driver for Volta is R580"


def test_a_jetson_is_told_of_a_jetpack_and_not_of_a_driver() -> None:
    """The driver of a Tegra comes with its JetPack; packages for servers are not for it."""
    verdict = runtime_verdict("13.4", report("540.4.0", "12.6", is_tegra=True), "cuda-bindings 13.4.4")
    assert verdict.state is Grade.BROKEN
    assert verdict.fix == "install a JetPack that brings CUDA 13.4 or later"


@pytest.mark.parametrize(
    ("driver", "code", "state", "fix"),
    [
        ("550.54.15", 999, Grade.BROKEN, "install driver 570.26 or later"),
        ("550.54.15", 0, Grade.OK, ""),
        ("570.124.06", 0, Grade.OK, ""),
    ],
)
def test_a_gpu_newer_than_its_driver_is_not_supported(driver: str, code: int, state: Grade, fix: str) -> None:
    """B200 needs R570; where a context could be made all the same, that outranks the table."""
    b200 = device(name="NVIDIA B200", compute_capability="10.0", context_code=code)
    verdict = verdict_on("generation", report(driver, "12.4", devices=(b200,)))
    assert (verdict.state, verdict.fix) == (state, fix)
    assert ("570.26" in verdict.because) == (driver == "550.54.15")


def test_a_compat_package_makes_a_newer_runtime_run() -> None:
    """The user-mode driver in use decides, whatever the kernel driver was made for."""
    assert runtime_verdict("13.1", compat_report(driver="535.54.03")).state is Grade.OK

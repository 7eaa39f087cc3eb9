"""Which verdicts a machine gets: driver, compat packages, codec libraries, and what to do about each."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.probes.cuda.compat import Grade, judge
from codecfleet.cluster.probes.cuda.forward import forward_answer
from codecfleet.cluster.probes.cuda.report import (
    CudaLibrary,
    CudaReport,
    Deployment,
    ForwardNote,
    RuntimeInUse,
)
from codecfleet.cluster.probes.cuda.tables import CUDA_ERRORS, TOOLKIT_DRIVERS, Forward
from codecfleet.cluster.probes.report.absence import Absence, Unavailable

from ..cuda_reports import COMPAT_590, NO, NO_NOTE, WITHOUT_NOTE, compat_report, device, own_library, report, verdict_on


def test_a_machine_without_a_driver_is_not_broken() -> None:
    """Where there is no driver at all, one verdict says that software engines are what there is."""
    found = report(kernel_module=NO, library=NO, runtimes=(RuntimeInUse("cuda-bindings", "13.4"),))
    (verdict,) = judge(found)
    assert verdict.state is Grade.UNKNOWN
    assert "software engines" in verdict.because
    assert "install its driver; in a container" in verdict.fix


def test_a_machine_in_order_has_nothing_to_fix() -> None:
    """A plain driver with a GPU and an older runtime is all right."""
    found = report(runtimes=(RuntimeInUse("PyNvVideoCodec 2.2.4's runtime", "12.3"),))
    verdicts = judge(found, None, "580.159.04")
    assert {verdict.state for verdict in verdicts} == {Grade.OK}
    assert all(verdict.rule and verdict.because and not verdict.fix for verdict in verdicts)


@pytest.mark.parametrize(
    ("found", "nvml", "words"),
    [
        (report(library=own_library("575.57.08"), init_code=803), "", "libcuda 575.57.08"),
        (report(init_code=803), "575.57.08", "NVML 575.57.08"),
        (report(library=NO), "", "it is not here"),
        (report(kernel_module=NO, init_code=3), "", "it is not here"),
    ],
)
def test_versions_that_differ_are_broken(found: CudaReport, nvml: str, words: str) -> None:
    """Kernel driver, libcuda and NVML are of one version, or the verdict names the stranger."""
    verdict = verdict_on("driver versions", found, nvml)
    assert verdict.state is Grade.BROKEN
    assert words in verdict.because
    assert verdict.fix


@pytest.mark.parametrize(("module", "nvml"), [("580.159.04", ""), ("590.48.01", "590.44.01")])
def test_a_driver_that_initialises_works_whatever_its_libraries_are(module: str, nvml: str) -> None:
    """Libraries of another version than the kernel driver's are named, and called broken only where cuInit refused."""
    for version in ("590.44.01", "575.57.08"):
        found = report(module, library=own_library(version))
        verdict = verdict_on("driver versions", found, nvml)
        assert (verdict.state, verdict.fix) == (Grade.OK, "")
        assert f"libcuda {version}" in verdict.because
        assert verdict.because.endswith("all the same cuInit accepted them")
        assert verdict.limits == ("NVENC, NVDEC and NVML stay at the kernel driver's version",)


def test_a_compat_package_is_no_mismatch() -> None:
    """A libcuda newer than the kernel driver is right where it is a compat package's, wherever it lies."""
    moved = replace(COMPAT_590, path="/home/me/libcuda.so.590.44.01", in_compat_folder=False)
    for library in (COMPAT_590, moved):
        assert verdict_on("driver versions", compat_report(library)).state is Grade.OK


@pytest.mark.parametrize("code", sorted(CUDA_ERRORS))
def test_initialising_that_fails_is_broken_and_has_a_fix(code: int) -> None:
    """Every known code of cuInit is named, with how to fix it."""
    verdict = verdict_on("CUDA initialisation", report(init_code=code, devices=()))
    assert verdict.state is Grade.BROKEN
    assert f"({code})" in verdict.because
    assert verdict.fix


def test_no_device_names_the_variable_that_hides_them() -> None:
    """Where CUDA_VISIBLE_DEVICES is set, error 100 is explained by it."""
    verdict = verdict_on("CUDA initialisation", report(init_code=100, devices=(), visible_devices=""))
    assert 'CUDA_VISIBLE_DEVICES is ""' in verdict.fix


def test_a_probe_that_did_not_come_back_is_broken() -> None:
    """A crash or a hang in the driver is a verdict."""
    verdict = verdict_on("CUDA initialisation", report(ended="no answer within 10 s while cuInit"))
    assert verdict.state is Grade.BROKEN
    assert "no answer within 10 s" in verdict.because


@pytest.mark.parametrize(
    ("driver", "cuda", "state"),
    [
        ("580.82.07", "13.0", Grade.OK),
        ("565.57.01", "12.6", Grade.LIMITED),
        ("470.57.02", "11.4", Grade.LIMITED),
        ("545.23.06", "12.3", Grade.LIMITED),
    ],
)
def test_branches_that_have_ended_are_limited(driver: str, cuda: str, state: Grade) -> None:
    """Ended branches and new feature branches are named; others are all right."""
    assert verdict_on("driver branch", report(driver, cuda)).state is state


@pytest.mark.parametrize(
    ("code", "state"), [(0, Grade.OK), (2, Grade.LIMITED), (804, Grade.BROKEN), (808, Grade.LIMITED)]
)
def test_a_context_that_fails_is_judged_by_its_code(code: int, state: Grade) -> None:
    """What passes by itself is a limit; what needs a hand is broken."""
    assert verdict_on("device 0", report(devices=(device(context_code=code),))).state is state


@pytest.mark.parametrize(
    ("library", "driver", "answer", "rule"),
    [
        (COMPAT_590, "580.159.04", Forward.WORKS, "note"),
        (COMPAT_590, "550.54.15", Forward.WORKS, "note"),  # the note accepts a branch that the table has dropped
        (COMPAT_590, "560.35.03", Forward.NOT_SUPPORTED, "note"),
        (COMPAT_590, "590.48.01", Forward.NOT_NEEDED, "note"),
        (COMPAT_590, "595.45.04", Forward.NOT_SUPPORTED, "note"),
        (WITHOUT_NOTE, "580.159.04", Forward.WORKS, "Table 3"),
        (WITHOUT_NOTE, "550.54.15", Forward.NOT_SUPPORTED, "Table 3"),
        (WITHOUT_NOTE, "590.48.01", Forward.NOT_NEEDED, "Table 3"),
        (WITHOUT_NOTE, "610.43.02", Forward.NOT_SUPPORTED, "Table 3"),
        (replace(COMPAT_590, note=ForwardNote("13.1")), "580.159.04", Forward.WORKS, "Table 3"),
        (replace(WITHOUT_NOTE, version=NO), "580.159.04", None, "neither"),
    ],
)
def test_note_before_table(library: CudaLibrary, driver: str, answer: Forward | None, rule: str) -> None:
    """The note in the library decides where it lists branches, the document's table where it does not."""
    found = forward_answer(library, driver)
    assert found.answer is answer
    assert rule in found.rule
    assert found.because


@given(
    st.sampled_from(sorted(TOOLKIT_DRIVERS)),
    st.sampled_from(sorted(TOOLKIT_DRIVERS)),
    st.frozensets(st.sampled_from([470, 535, 550, 570, 580, 590, 595, 610, 615])),
)
def test_no_library_works_on_a_driver_that_is_not_older(cuda: str, host: str, accepted: frozenset[int]) -> None:
    """Whatever a note lists, a package for the driver's own CUDA version or an older one is never used."""
    library = replace(COMPAT_590, note=ForwardNote(cuda, tuple(sorted(accepted))))
    older = tuple(map(int, cuda.split("."))) <= tuple(map(int, host.split(".")))
    works = forward_answer(library, TOOLKIT_DRIVERS[host]).answer is Forward.WORKS
    assert not (works and older)


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"virtual_address_management_supported": 1, "handle_type_posix_file_descriptor_supported": 1}, ""),
        (
            {"virtual_address_management_supported": 1, "handle_type_posix_file_descriptor_supported": 0},
            "no the cuMemMap",
        ),
        ({}, "only where the device says"),
    ],
)
def test_forward_compatibility_names_its_limits(attributes: dict[str, int], words: str) -> None:
    """What stays behind is said; whether cuMemMap works depends on two attributes of the device."""
    limits = verdict_on("forward compatibility", compat_report(devices=(device(attributes=attributes),))).limits
    for always in ("OpenGL and Vulkan", "POWER9", "OpenCL", "NVENC"):
        assert any(always in limit for limit in limits)
    about_memory = [limit for limit in limits if "cuMemMap" in limit]
    assert bool(about_memory) == bool(words)
    assert all(words in limit for limit in about_memory)


@pytest.mark.parametrize(
    ("library", "driver", "code", "state"),
    [
        (COMPAT_590, "580.159.04", 0, Grade.LIMITED),  # as it should be
        (COMPAT_590, "580.159.04", 803, Grade.BROKEN),  # the driver refused it
        (COMPAT_590, "590.48.01", 0, Grade.LIMITED),  # not needed
        (COMPAT_590, "595.45.04", 803, Grade.BROKEN),  # older than the driver
        (COMPAT_590, "595.45.04", 100, Grade.BROKEN),
        (COMPAT_590, "560.35.03", 0, Grade.LIMITED),  # in no list, and works all the same
        (replace(WITHOUT_NOTE, version=NO), "580.82.07", 100, Grade.UNKNOWN),
    ],
)
def test_a_compat_package_in_use_is_judged(library: CudaLibrary, driver: str, code: int, state: Grade) -> None:
    """What cuInit returned outranks the lists; what the lists forbid and cuInit did not accept is broken."""
    assert verdict_on("forward compatibility", compat_report(library, driver, init_code=code)).state is state


@pytest.mark.parametrize(("code", "state"), [(0, Grade.OK), (804, Grade.BROKEN), (3, Grade.UNKNOWN)])
def test_compat_packages_are_for_data_centre_gpus(code: int, state: Grade) -> None:
    """Error 804 says that the hardware is none of those that forward compatibility is for."""
    verdict = verdict_on("hardware for compat packages", compat_report(init_code=code))
    assert verdict.state is state
    assert "data-centre" in verdict.rule


@pytest.mark.parametrize("how", [how for how in Deployment if how is not Deployment.DRIVER])
def test_the_deployment_model_is_named(how: Deployment) -> None:
    """Shared and per-application deployment are told, and only the module is warned to check."""
    verdict = verdict_on("compat package's deployment", compat_report(deployment=how))
    assert how.value in verdict.because
    assert bool(verdict.fix) == (how is Deployment.MODULES)


def test_a_jetson_is_not_judged_by_branches() -> None:
    """Tegra's libcuda carries no driver version, its upgrade package no branches: only initialising tells."""
    orin = CudaLibrary(
        path="/usr/local/cuda/compat/libcuda.so.1.1", version=NO, in_compat_folder=True, note=ForwardNote("13.2")
    )
    found = compat_report(orin, "540.4.0", is_tegra=True)
    assert verdict_on("driver versions", found).state is Grade.OK
    assert verdict_on("forward compatibility", found).state is Grade.OK
    assert verdict_on("forward compatibility", replace(found, init_code=3)).state is Grade.UNKNOWN
    assert not [verdict for verdict in judge(found) if verdict.subject == "driver branch"]


@pytest.mark.parametrize(
    ("libraries", "state", "words"),
    [
        ({"libnvcuvid.so.1": "/usr/lib/libnvcuvid.so.580.159.04"}, Grade.OK, "load"),
        ({"libnvcuvid.so.1": NO}, Grade.BROKEN, "libnvcuvid.so.1 cannot be loaded"),
        ({"libnvcuvid.so.1": Unavailable(Absence.FAILED, "not asked")}, Grade.UNKNOWN, "libnvcuvid.so.1"),
        ({"libnvcuvid.so.1": "/usr/lib/libnvcuvid.so.575.57.08"}, Grade.BROKEN, "libnvcuvid.so.575.57.08 was loaded"),
        ({"libnvcuvid.so.1": "/usr/lib/libnvcuvid.so.1"}, Grade.OK, "load"),
    ],
)
def test_codec_libraries_load_and_are_the_drivers(
    libraries: dict[str, str | Unavailable], state: Grade, words: str
) -> None:
    """They are there and of the kernel driver's version, or the verdict names the one that is not."""
    verdict = verdict_on("codec libraries", report(codec_libraries=libraries))
    assert verdict.state is state
    assert words in verdict.because


def test_codec_libraries_that_worked_are_not_broken() -> None:
    """Libraries of another version are named, and that a session worked with them outranks the rule."""
    libraries = {"libnvcuvid.so.1": "/usr/lib/libnvcuvid.so.575.57.08"}
    judged = judge(report(codec_libraries=libraries), codecs_work=True)
    (verdict,) = [found for found in judged if found.subject == "codec libraries"]
    assert (verdict.state, verdict.fix) == (Grade.OK, "")
    assert "libnvcuvid.so.575.57.08 was loaded; all the same a codec session worked" in verdict.because


drivers = st.sampled_from([*TOOLKIT_DRIVERS.values(), "580.159.04", "390.48", "999.1"])


@given(
    drivers,
    drivers,
    st.sampled_from([*TOOLKIT_DRIVERS]),
    st.sampled_from([0, 3, 100, 802, 803, 804, 999]),
    st.lists(st.sampled_from([*TOOLKIT_DRIVERS]), max_size=3),
    st.booleans(),
    st.sampled_from([NO, NO_NOTE, ForwardNote("13.1", (580,)), ForwardNote("13.2")]),
)
def test_every_machine_is_judged(  # noqa: PLR0917 - Hypothesis hands its values over in order
    module: str,
    user_mode: str,
    cuda: str,
    code: int,
    runtimes: list[str],
    in_compat_folder: bool,  # noqa: FBT001
    note: ForwardNote | Unavailable,
) -> None:
    """No combination of versions is beyond judging; what is broken has a fix, and each verdict its rule and reason."""
    library = replace(own_library(user_mode), in_compat_folder=in_compat_folder, note=note)
    found = report(module, cuda, library=library, init_code=code, compat_libraries=(COMPAT_590,))
    verdicts = judge(replace(found, runtimes=tuple(RuntimeInUse(text, text) for text in runtimes)))
    assert verdicts
    for verdict in verdicts:
        assert verdict.rule
        assert verdict.because
        assert verdict.fix or verdict.state is not Grade.BROKEN
        assert verdict.limits or verdict.state is not Grade.LIMITED or verdict.fix


def test_a_missing_compiler_is_a_limit_with_its_package() -> None:
    """Without NVRTC the processor scales pictures, and the extra brings it; where it was not asked nothing is said."""
    missing = Unavailable(Absence.NO_LIBRARY, "NVRTC cannot be loaded: it was not found")
    verdict = verdict_on("NVRTC", report(nvrtc=missing))
    assert (verdict.state, verdict.because) == (Grade.LIMITED, missing.reason)
    assert verdict.fix == 'install the extra: pip install "codecfleet[nvidia]"'
    assert verdict.limits == ("scaling and converting pictures on the GPU: the processor does it",)
    assert verdict_on("NVRTC", report(nvrtc="13.5")).state is Grade.OK
    assert not [found for found in judge(report()) if found.subject == "NVRTC"]


COMPAT_OUT = "take /usr/local/cuda-13.1/compat out of the library search path, so that the driver's libcuda is used"


@pytest.mark.parametrize(
    ("subject", "found", "fix"),
    [
        ("driver versions", report(kernel_module=NO, init_code=3), "sudo modprobe nvidia"),
        ("driver versions", report(library=NO), "install the user-mode driver 580.159.04, of exactly"),
        (
            "driver versions",
            report(library=own_library("575.57.08"), init_code=803),
            "after a driver upgrade, restart the machine; else install libraries of version 580.159.04",
        ),
        ("CUDA initialisation", report(ended="no answer"), "sudo dmesg | grep -E 'NVRM|Xid'"),
        ("driver branch", report("565.57.01", "12.6"), "install a driver of a production or long-term branch"),
        ("generation", report(devices=(device(compute_capability="7.0"),)), "stay on that branch"),
        ("generation", report(devices=(device(compute_capability="3.5"),)), "use a newer GPU"),
        (
            "codec libraries",
            report(codec_libraries={"libnvcuvid.so.1": NO}),
            "(Ubuntu: libnvidia-decode-580 and libnvidia-encode-580); in a container: -e NVIDIA_DRIVER_CAPABILITIES=",
        ),
        (
            "codec libraries",
            report(codec_libraries={"libnvcuvid.so.1": "/usr/lib/libnvcuvid.so.575.57.08"}),
            "install the driver's libraries of version 580.159.04",
        ),
        ("forward compatibility", compat_report(init_code=803), COMPAT_OUT),
        ("forward compatibility", compat_report(driver="590.48.01"), COMPAT_OUT),
        ("forward compatibility", compat_report(driver="595.45.04", init_code=100), COMPAT_OUT),
        (
            "hardware for compat packages",
            compat_report(init_code=804),
            "upgrade the driver instead, and take the compat",
        ),
    ],
)
def test_each_verdict_that_a_user_can_act_upon_says_how(subject: str, found: CudaReport, fix: str) -> None:
    """The words of the remedy are for that very fault, with the version, package or command that it takes."""
    verdict = verdict_on(subject, found)
    assert verdict.state in (Grade.BROKEN, Grade.LIMITED)
    assert fix in verdict.fix

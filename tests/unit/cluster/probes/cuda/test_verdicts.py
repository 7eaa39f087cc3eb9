"""Verdicts on the versions, codes and files of a CUDA driver; tests/golden/remedies.txt has reasons and fixes."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.probes.cuda.compat import judge
from codecfleet.cluster.probes.cuda.forward import forward_answer
from codecfleet.cluster.probes.cuda.report import CudaLibrary, Deployment, ForwardNote, RuntimeInUse
from codecfleet.cluster.probes.cuda.tables import TOOLKIT_DRIVERS, Forward, forward_by_table
from codecfleet.cluster.probes.report.absence import Unavailable
from codecfleet.cluster.probes.report.verdict import Grade

from ..cuda_reports import (
    COMPAT_590,
    NO,
    NO_NOTE,
    WITHOUT_NOTE,
    compat_report,
    own_library,
    report,
    runtime_verdict,
    verdict_on,
)


def test_nvml_of_another_version_is_named() -> None:
    """If cuInit fails, the verdict states NVML's version."""
    verdict = verdict_on("driver versions", report(init_code=803), "575.57.08")
    assert (verdict.state, "NVML is 575.57.08" in verdict.because) == (Grade.BROKEN, True)


@pytest.mark.parametrize(
    ("library", "driver", "answer", "rule"),
    [
        (COMPAT_590, "580.159.04", Forward.WORKS, "note"),
        (COMPAT_590, "550.54.15", Forward.WORKS, "note"),  # the note accepts a branch that the table no longer has
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
    """The note in the library decides if it lists branches, otherwise the document's table does."""
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
    """A package for the driver's CUDA version, or for an older one, is never used, whatever its note lists."""
    library = replace(COMPAT_590, note=ForwardNote(cuda, tuple(sorted(accepted))))
    older = tuple(map(int, cuda.split("."))) <= tuple(map(int, host.split(".")))
    works = forward_answer(library, TOOLKIT_DRIVERS[host]).answer is Forward.WORKS
    assert not (works and older)


@pytest.mark.parametrize("how", [how for how in Deployment if how is not Deployment.DRIVER])
def test_the_deployment_model_is_named(how: Deployment) -> None:
    """The verdict states the deployment; only environment modules get advice."""
    verdict = verdict_on("compat package's deployment", compat_report(deployment=how))
    assert how.value in verdict.because
    assert bool(verdict.fix) == (how is Deployment.MODULES)


def test_codec_libraries_that_worked_are_not_broken() -> None:
    """Libraries of another version are named, but a session that worked with them overrides the rule."""
    libraries = {"libnvcuvid.so.1": "/usr/lib/libnvcuvid.so.575.57.08"}
    judged = judge(report(codec_libraries=libraries), codecs_work=True)
    (verdict,) = [found for found in judged if found.subject == "codec libraries"]
    assert (verdict.state, verdict.fix) == (Grade.OK, "")
    assert "libnvcuvid.so.575.57.08 was loaded; a codec session worked anyway" in verdict.because


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
def test_every_machine_is_judged(  # noqa: PLR0917 - Hypothesis passes its values in order
    module: str,
    user_mode: str,
    cuda: str,
    code: int,
    runtimes: list[str],
    in_compat_folder: bool,  # noqa: FBT001
    note: ForwardNote | Unavailable,
) -> None:
    """Every combination of versions gets verdicts; a broken one has a fix, and each has a rule and a reason."""
    library = replace(own_library(user_mode), in_compat_folder=in_compat_folder, note=note)
    found = report(module, cuda, library=library, init_code=code, compat_libraries=(COMPAT_590,))
    verdicts = judge(replace(found, runtimes=tuple(RuntimeInUse(text, text) for text in runtimes)))
    assert verdicts
    for verdict in verdicts:
        assert verdict.rule
        assert verdict.because
        assert verdict.fix or verdict.state is not Grade.BROKEN
        assert verdict.limits or verdict.state is not Grade.LIMITED or verdict.fix


@given(st.sampled_from(sorted(TOOLKIT_DRIVERS)), st.sampled_from(sorted(TOOLKIT_DRIVERS)))
def test_every_package_that_is_advised_is_one_that_works(host: str, runtime: str) -> None:
    """For no pair of driver and runtime does the advice name a package that our table calls unsupported."""
    driver = TOOLKIT_DRIVERS[host]
    found = runtime_verdict(runtime, report(driver, host))
    advised = re.search(r"cuda-compat-(\d+)-(\d+)", found.fix)
    if advised is not None:
        package = f"{advised[1]}.{advised[2]}"
        assert forward_by_table(package, int(driver.partition(".")[0])) is Forward.WORKS
        assert tuple(map(int, package.split("."))) >= tuple(map(int, runtime.split(".")))

from dataclasses import replace

import pytest

from codecfleet.cluster.probes.cuda.pynvvideocodec import (
    PyNvVideoCodecReport,
    judge_pynvvideocodec,
    probe_pynvvideocodec,
)
from codecfleet.cluster.probes.cuda.report import KernelModule
from codecfleet.cluster.probes.report.absence import Unavailable
from codecfleet.cluster.probes.report.verdict import Grade

from ..cuda_reports import NO, device, report

PACKAGE = PyNvVideoCodecReport(
    version="2.2.4",
    picked="_130",
    python_version="3.12",
    glibc_version="2.36",
    machine="x86_64",
)
FAILED = replace(PACKAGE, picked=NO)
MACHINE = report("595.45.04", "13.2", library=NO, devices=())
BLACKWELL = (device(compute_capability="12.0"),)
TOO_OLD = KernelModule("570.86.15", is_open=True)


@pytest.mark.parametrize(
    "package", [replace(PACKAGE, glibc_version=NO), replace(PACKAGE, python_version="3.15"), PACKAGE]
)
def test_an_import_that_worked_outranks_every_list(package: PyNvVideoCodecReport) -> None:
    """The rules for Python, C library and driver only explain a failed import; they never cause one."""
    wrong = {"libnvidia-encode.so.1": NO}
    machine = replace(MACHINE, kernel_module=TOO_OLD, devices=BLACKWELL, codec_libraries=wrong, nvenc_api="12.0")
    verdict = judge_pynvvideocodec(package, machine, codecs_work=True)
    assert (verdict.state, verdict.fix) == (Grade.OK, "")


def test_this_python_is_reported_either_way() -> None:
    """The package is absent, its import failed with a reason in one line, or the import picked a build."""
    found = probe_pynvvideocodec(60)
    if isinstance(found.version, Unavailable):
        assert found.version == found.picked
    elif isinstance(found.picked, Unavailable):
        assert "\n" not in found.picked.reason
    else:
        assert found.picked.startswith("_")

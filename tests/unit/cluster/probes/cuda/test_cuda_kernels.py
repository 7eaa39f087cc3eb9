"""Whether kernels run is judged by a kernel that was loaded, else by versions."""

from dataclasses import replace

import pytest

from codecfleet.cluster.probes.child.child import ChildEnd, ChildOutcome
from codecfleet.cluster.probes.cuda.compat import judge
from codecfleet.cluster.probes.cuda.driver import report_of
from codecfleet.cluster.probes.report.absence import Absence, Unavailable
from codecfleet.cluster.probes.report.verdict import Diagnosis, Grade, Stops, why_stopped

from ..cuda_reports import device, own_library, report, verdict_on

UUID = "fbe51a40-ee7f-7537-07ae-245324ae96bd"


def kernels(**changes: object) -> Diagnosis:
    """Return the verdict on the kernels of an H200 with these ``changes``, beside an NVRTC for CUDA 13.0."""
    return verdict_on("kernels on", report(nvrtc="13.0", devices=(device(uuid=UUID, **changes),)))


@pytest.mark.parametrize(
    ("nvrtc", "cuda", "because"),
    [
        ("13.0", "13.0", ""),
        ("12.8", "13.0", ""),
        ("13.3", "13.0", ""),
        ("11.3", "11.0", ""),
        ("11.2", "11.0", "NVRTC 11.2 makes kernels for CUDA 11.2, and the driver is for CUDA 11.0"),
        ("13.0", "12.2", "NVRTC 13.0 makes kernels for CUDA 13.0, and the driver is for CUDA 12.2"),
    ],
)
def test_nvrtc_belongs_to_the_drivers_major_version(nvrtc: str, cuda: str, because: str) -> None:
    """A newer NVRTC fits within the major version, from CUDA 11.3 on; else no kernel of it is loaded."""
    found = verdict_on("NVRTC", report(cuda=cuda, nvrtc=nvrtc, devices=()))
    assert (found.stops, found.because) == (
        (Stops.KERNELS, because) if because else (Stops.NOTHING, f"NVRTC {nvrtc} loads")
    )


def test_a_kernel_that_was_loaded_outranks_versions() -> None:
    """Where the driver loaded a kernel of a newer NVRTC, nothing is stopped."""
    found = verdict_on("NVRTC", report(cuda="12.2", nvrtc="13.0", devices=(device(kernel_code=0),)))
    assert (found.state, found.stops) == (Grade.OK, Stops.NOTHING)
    assert "all the same" in found.because


def test_a_kernel_that_does_not_load_stops_kernels_of_its_device_alone() -> None:
    """The driver's code is the reason, NVDEC and NVENC stay, and other devices are not touched."""
    found = kernels(kernel_code=222)
    assert (found.state, found.stops, found.device) == (Grade.LIMITED, Stops.KERNELS, UUID)
    assert found.because.startswith("loading a kernel returned CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)")
    assert why_stopped((found,), Stops.KERNELS, f"GPU-{UUID}") == found.because
    assert why_stopped((found,), Stops.KERNELS, "GPU-00000000-0000-0000-0000-000000000000") == ""
    assert why_stopped((found,), Stops.CUDA, f"GPU-{UUID}") == ""


@pytest.mark.parametrize(
    ("capability", "nvrtc", "because", "fix"),
    [
        ("9.0", "11.2", "NVRTC 11.2 does not know Hopper", "install NVRTC of CUDA 11.8 or later"),
        ("7.0", "13.0", "NVRTC 13.0 compiles for Volta no more", "install NVRTC of CUDA 12.9 or earlier"),
        ("10.0", "12.6", "NVRTC 12.6 does not know Blackwell", "install NVRTC of CUDA 12.8 or later"),
    ],
)
def test_nvrtc_knows_the_devices_generation(capability: str, nvrtc: str, because: str, fix: str) -> None:
    """Without a kernel that was tried, the tables of generations decide."""
    found = report(nvrtc=nvrtc, devices=(device(compute_capability=capability),))
    verdict = verdict_on("kernels on", found)
    assert (verdict.because, verdict.fix, verdict.stops) == (because, fix, Stops.KERNELS)


def test_what_nvrtc_refused_is_told_with_the_reason_of_the_tables() -> None:
    """The code of NVRTC comes first, and why it would refuse after it, where a table says so."""
    refused = Unavailable(Absence.NOT_SUPPORTED, "NVRTC returned 5")
    assert kernels(kernel_code=refused).because == "NVRTC returned 5"
    volta = kernels(compute_capability="7.0", kernel_code=refused)
    assert volta.because == "NVRTC returned 5; NVRTC 13.0 compiles for Volta no more"


@pytest.mark.parametrize(
    ("code", "is_closed"),
    [(803, True), (804, True), (34, True), (3, True), (999, True), (802, False), (807, False)],
)
def test_what_cuinit_refuses_closes_devices_unless_it_may_pass(code: int, is_closed: bool) -> None:  # noqa: FBT001
    """An error that ends by itself is left to the rests of workers that fail; any other closes every device."""
    judged = judge(report(init_code=code, devices=(), device_count=0))
    assert bool(why_stopped(judged, Stops.CUDA, f"GPU-{UUID}")) is is_closed


def test_a_context_that_fails_closes_its_device_alone() -> None:
    """A device without a context takes no work; another one does."""
    broken = device(uuid=UUID, context_code=999)
    judged = judge(report(devices=(broken, replace(broken, ordinal=1, uuid="other", context_code=0))))
    assert "making a context returned" in why_stopped(judged, Stops.CUDA, f"GPU-{UUID}")
    assert why_stopped(judged, Stops.CUDA, "GPU-other") == ""
    passing = judge(report(devices=(device(uuid=UUID, context_code=2),)))
    assert why_stopped(passing, Stops.CUDA, f"GPU-{UUID}") == ""


def test_a_crash_of_cuda_closes_devices_unless_a_codec_worked() -> None:
    """A crash in cuInit closes; a codec session that worked outranks it."""
    not_reached = Unavailable(Absence.FAILED, "the question was not reached")
    crashed = report(init_code=not_reached, devices=(), ended="it was killed", has_crashed=True)
    assert why_stopped(judge(crashed), Stops.CUDA, "") != ""
    assert why_stopped(judge(crashed, codecs_work=True), Stops.CUDA, "") == ""


@pytest.mark.parametrize(
    ("step", "end", "detail", "closes"),
    [
        ("cuInit", ChildEnd.KILLED, "the process was ended by SIGSEGV", True),
        ("cuInit", ChildEnd.EXITED, "the process exited with code 1", True),
        ("cuInit", ChildEnd.KILLED, "the process was ended by SIGKILL", False),
        ("cuInit", ChildEnd.TIMED_OUT, "no answer within 20 s", False),
        ("loading NVRTC", ChildEnd.KILLED, "the process was ended by SIGSEGV", False),
        ("retaining the primary context of device 0", ChildEnd.KILLED, "the process was ended by SIGSEGV", False),
        (None, ChildEnd.EXITED, "the child process did not start: no memory", False),
    ],
)
def test_a_probe_that_ended_closes_devices_only_by_a_crash_in_cuinit(
    step: str | None, end: ChildEnd, detail: str, *, closes: bool
) -> None:
    """A busy machine, one without memory, and a crash elsewhere say nothing of whether CUDA starts."""
    values = ({"library": own_library("580.82.07")}, *filter(None, [step]))
    found = replace(report_of(ChildOutcome(end, values, detail)), kernel_module=report().kernel_module)
    assert found.ended.startswith(detail)
    why = why_stopped(judge(found), Stops.CUDA, "")
    assert (why != "") is closes

"""Whether kernels run is judged by a loaded kernel, or else by versions."""

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
    """Return the verdict on the kernels of an H200 with these ``changes``, with NVRTC for CUDA 13.0."""
    return verdict_on("kernels on", report(nvrtc="13.0", devices=(device(uuid=UUID, **changes),)))


def test_a_kernel_that_does_not_load_stops_kernels_of_its_device_alone() -> None:
    """If a kernel does not load, the reason has the driver's code; NVDEC, NVENC and other devices stay usable."""
    found = kernels(kernel_code=222)
    assert (found.state, found.stops, found.device) == (Grade.LIMITED, Stops.KERNELS, UUID)
    assert found.because.startswith("loading a kernel returned CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)")
    assert why_stopped((found,), Stops.KERNELS, f"GPU-{UUID}") == found.because
    assert why_stopped((found,), Stops.KERNELS, "GPU-00000000-0000-0000-0000-000000000000") == ""
    assert why_stopped((found,), Stops.CUDA, f"GPU-{UUID}") == ""


def test_a_context_that_fails_closes_its_device_alone() -> None:
    """A device without a context gets no work; another device does."""
    broken = device(uuid=UUID, context_code=999)
    judged = judge(report(devices=(broken, replace(broken, ordinal=1, uuid="other", context_code=0))))
    assert "creating a context returned" in why_stopped(judged, Stops.CUDA, f"GPU-{UUID}")
    assert why_stopped(judged, Stops.CUDA, "GPU-other") == ""
    passing = judge(report(devices=(device(uuid=UUID, context_code=2),)))
    assert why_stopped(passing, Stops.CUDA, f"GPU-{UUID}") == ""


def test_a_crash_of_cuda_closes_devices_unless_a_codec_worked() -> None:
    """A crash in cuInit closes devices, unless a codec session worked."""
    not_reached = Unavailable(Absence.FAILED, "the probe ended before this question")
    crashed = report(init_code=not_reached, devices=(), ended="it was killed", has_crashed=True)
    assert why_stopped(judge(crashed), Stops.CUDA, "") != ""
    assert why_stopped(judge(crashed, codecs_work=True), Stops.CUDA, "") == ""


@pytest.mark.parametrize(
    ("step", "end", "detail", "closes"),
    [
        ("cuInit", ChildEnd.KILLED, "the process was killed by SIGSEGV", True),
        ("cuInit", ChildEnd.EXITED, "the process exited with code 1", True),
        ("cuInit", ChildEnd.KILLED, "the process was killed by SIGKILL", False),
        ("cuInit", ChildEnd.TIMED_OUT, "no answer within 20 s", False),
        ("loading NVRTC", ChildEnd.KILLED, "the process was killed by SIGSEGV", False),
        ("retaining the primary context of device 0", ChildEnd.KILLED, "the process was killed by SIGSEGV", False),
        (None, ChildEnd.EXITED, "the child process did not start: no memory", False),
    ],
)
def test_a_probe_that_ended_closes_devices_only_by_a_crash_in_cuinit(
    step: str | None, end: ChildEnd, detail: str, *, closes: bool
) -> None:
    """A probe that ends without time, without memory or outside cuInit does not show that CUDA fails to start."""
    values = ({"library": own_library("580.82.07")}, *filter(None, [step]))
    found = replace(report_of(ChildOutcome(end, values, detail)), kernel_module=report().kernel_module)
    assert found.ended.startswith(detail)
    why = why_stopped(judge(found), Stops.CUDA, "")
    assert (why != "") is closes

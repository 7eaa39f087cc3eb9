"""Judges whether kernels of ours run: NVRTC against the driver, and against each device (CUDA Compatibility 2.3, 5).

NVRTC compiles machine code for the device where it runs. So it must know the device's generation, and the driver must
load what it made. A kernel that was loaded outranks what versions say.
"""

from collections.abc import Iterator
from typing import Final

from ..report.absence import Absence, Unavailable
from ..report.verdict import Diagnosis, Grade, Stops
from .errors import cuda_error
from .pynvvideocodec import INSTALL_EXTRA
from .report import CudaDevice, CudaReport
from .tables import FIRST_COMPATIBLE_NVRTC, generation_of, version_numbers

LIMITS: Final = ("scaling and converting pictures on the GPU: the processor does it",)
"""What a GPU does not do without kernels; NVDEC and NVENC need none."""
_RULE: Final = "it compiles kernels for the GPU where they run (CUDA Compatibility 2.3)"


def judge_kernels(report: CudaReport) -> Iterator[Diagnosis]:
    """Judge NVRTC, and a kernel on each device; a report that did not come so far says nothing."""
    found = report.nvrtc
    if isinstance(found, Unavailable):
        if found.absence is Absence.NO_LIBRARY:
            yield Diagnosis("NVRTC", Grade.LIMITED, _RULE, found.reason, INSTALL_EXTRA, LIMITS, Stops.KERNELS)
        return
    yield _against_driver(found, report)
    for device in report.devices:
        yield from _on_device(found, device)


def _against_driver(nvrtc: str, report: CudaReport) -> Diagnosis:
    trouble, fix = _newer_than_driver(nvrtc, report)
    if not trouble:
        return Diagnosis("NVRTC", Grade.OK, _RULE, f"NVRTC {nvrtc} loads")
    if report.devices and all(device.kernel_code == 0 for device in report.devices):
        return Diagnosis("NVRTC", Grade.OK, _RULE, f"{trouble}; all the same the driver loaded a kernel of it")
    return Diagnosis("NVRTC", Grade.LIMITED, _RULE, trouble, fix, LIMITS, Stops.KERNELS)


def _newer_than_driver(nvrtc: str, report: CudaReport) -> tuple[str, str]:
    """Return why the driver would not load what this NVRTC makes, and the fix; "" where it would."""
    if isinstance(report.cuda_version, Unavailable):
        return "", ""
    made, has = version_numbers(nvrtc)[:2], version_numbers(report.cuda_version)[:2]
    if made <= has or (made[0] == has[0] and made >= FIRST_COMPATIBLE_NVRTC):
        return "", ""
    needs = f"NVRTC {nvrtc} makes kernels for CUDA {nvrtc}, and the driver is for CUDA {report.cuda_version}"
    return needs, f"install a driver for CUDA {nvrtc} or a compat package that fits, or NVRTC of CUDA {has[0]}"


def _on_device(nvrtc: str, device: CudaDevice) -> Iterator[Diagnosis]:
    """Judge a device by the kernel that was tried on it, else by whether NVRTC knows its generation."""
    code = device.kernel_code
    if code == 0:
        return
    if not isinstance(code, Unavailable):
        error = cuda_error(code)
        because, fix = f"loading a kernel returned {error.name} ({code}): {error.meaning}", error.fix
    else:
        because = "" if code.absence is Absence.FAILED else code.reason
        unknown, fix = _unknown_generation(nvrtc, device)
        because = "; ".join(filter(None, (because, unknown)))
    if because:
        subject, uuid = f"kernels on device {device.ordinal} ({device.name})", device.uuid
        stopped = "" if isinstance(uuid, Unavailable) else uuid
        yield Diagnosis(subject, Grade.LIMITED, _RULE, because, fix, LIMITS, Stops.KERNELS, stopped)


def _unknown_generation(nvrtc: str, device: CudaDevice) -> tuple[str, str]:
    """Return why NVRTC compiles nothing for a device, and the fix; "" where nothing says so."""
    capability = device.compute_capability
    generation = None if isinstance(capability, Unavailable) else generation_of(capability)
    if generation is None:
        return "", INSTALL_EXTRA
    made, first, last = version_numbers(nvrtc), generation.first_toolkit, generation.last_toolkit
    if made < version_numbers(first):
        return f"NVRTC {nvrtc} does not know {generation.name}", f"install NVRTC of CUDA {first} or later"
    if last and made > version_numbers(last):
        return f"NVRTC {nvrtc} compiles for {generation.name} no more", f"install NVRTC of CUDA {last} or earlier"
    return "", INSTALL_EXTRA

"""What doctor says about each fault of a driver, container or codec, with the fix: tests/golden/remedies.txt."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from codecfleet.cluster.probes.cuda.compat import judge
from codecfleet.cluster.probes.cuda.pynvvideocodec import judge_pynvvideocodec
from codecfleet.cluster.probes.cuda.report import CudaLibrary, CudaReport, ForwardNote, KernelModule, RuntimeInUse
from codecfleet.cluster.probes.cuda.tables import CUDA_ERRORS
from codecfleet.cluster.probes.node.container import ContainerReport, judge_container
from codecfleet.cluster.probes.nvml.calls import absence_of, return_codes
from codecfleet.cluster.probes.report.absence import Absence, Unavailable
from codecfleet.cluster.probes.report.tables import read_tables
from codecfleet.cluster.probes.report.verdict import Diagnosis, Stops
from codecfleet.cluster.probes.report.xids import xid_rules
from codecfleet.cluster.probes.trials.gpu import decode_fault, encode_fault
from tests.goldens import golden

from ..probes.cuda.test_pynvvideocodec import BLACKWELL, FAILED, MACHINE, PACKAGE, TOO_OLD
from ..probes.cuda_reports import COMPAT_590, NO, WITHOUT_NOTE, compat_report, device, own_library, report
from ..probes.node.test_container import container

STRANGER = {"libnvcuvid.so.1": "/usr/lib/libnvcuvid.so.575.57.08"}
MOVED = replace(COMPAT_590, path="/home/me/libcuda.so.590.44.01", in_compat_folder=False)
ORIN = CudaLibrary(
    path="/usr/local/cuda/compat/libcuda.so.1.1", version=NO, in_compat_folder=True, note=ForwardNote("13.2")
)
GEFORCE = device(name="NVIDIA GeForce RTX 3090", compute_capability="8.6")
VOLTA = device(name="Tesla V100", compute_capability="7.0")


def blackwell(driver: str, code: int) -> CudaReport:
    """Return a machine with a B200 whose context returns this code."""
    return report(driver, devices=(device(name="NVIDIA B200", compute_capability="10.0", context_code=code),))


def codecs(path: str | Unavailable) -> CudaReport:
    """Return a machine with this codec library."""
    return report(codec_libraries={"libnvcuvid.so.1": path})


def running(runtime: str, driver: str, cuda: str, **changes: object) -> CudaReport:
    """Return a machine with a single runtime."""
    return report(driver, cuda, runtimes=(RuntimeInUse("a runtime", runtime),), **changes)


COMPILERS = (("12.8", "13.0"), ("13.3", "13.0"), ("11.3", "11.0"), ("11.2", "11.0"))
REFUSED = Unavailable(Absence.NOT_SUPPORTED, "NVRTC returned 5")
RUNTIMES = (
    # Older runtimes always work; newer ones of the same major version work from a minimum driver on, others with a
    # package.
    *(("12.3", "580.159.04", "13.0"), ("13.0", "580.159.04", "13.0"), ("13.4", "580.159.04", "13.0")),
    *(("13.4", "575.57.08", "12.9"), ("12.9", "535.54.03", "12.2"), ("12.3", "525.53", "12.0")),
    *(("11.8", "450.80.02", "11.0"), ("11.1", "450.51.05", "11.0"), ("10.2", "418.39", "10.1")),
    *(("13.3", "550.54.15", "12.4"), ("13.3", "570.124.06", "12.8")),
)
DRIVERS: Final[dict[str, CudaReport]] = {
    "all in order": report(),
    "no driver": report(kernel_module=NO, library=NO),
    "no kernel driver": report(kernel_module=NO, init_code=3),
    "no libcuda": report(library=NO),
    "a libcuda of another version": report(library=own_library("575.57.08"), init_code=803),
    "the probe of the driver died": report(ended="no answer"),
    **{f"cuInit returns {code}": report(init_code=code, devices=()) for code in CUDA_ERRORS},
    "no context": report(devices=(device(context_code=999),)),
    "an ended branch": report("565.57.01", "12.6"),
    "a new feature branch": report("545.23.06", "12.3"),
    "a GPU that drivers leave behind": report(devices=(device(compute_capability="7.0"),)),
    "a GPU newer than its driver": report("550.54.15", devices=(device(compute_capability="10.0", context_code=999),)),
    "a GPU older than all drivers": report(devices=(device(compute_capability="3.5"),)),
    "no codec library": report(codec_libraries={"libnvcuvid.so.1": NO}),
    "a codec library of another version": report(codec_libraries=STRANGER),
    "no NVRTC": report(nvrtc=NO),
    "an NVRTC that is too new": report(cuda="12.2", nvrtc="13.0"),
    "a runtime that is newer": report(runtimes=(RuntimeInUse("a runtime", "13.3"),)),
    "a runtime that is too new": report("535.54.03", "12.2", runtimes=(RuntimeInUse("a runtime", "13.3"),)),
    "a compat package that cuInit refuses": compat_report(init_code=803),
    "a compat package that is not needed": compat_report(driver="590.48.01"),
    "a compat package older than the driver": compat_report(driver="595.45.04", init_code=100),
    "a compat package on hardware that is not for it": compat_report(init_code=804),
    "a compat package left behind": report("595.45.04", compat_libraries=(COMPAT_590,)),
    "a compat package in use": compat_report(),
    "one elsewhere": compat_report(MOVED),
    "one that no list has": compat_report(driver="560.35.03"),
    "one older than the driver, which cuInit refuses": compat_report(driver="595.45.04", init_code=803),
    "one of an unknown version": compat_report(replace(WITHOUT_NOTE, version=NO), init_code=100),
    "one before cuInit was asked": compat_report(init_code=3),
    "one with a runtime": compat_report(driver="535.54.03", runtimes=(RuntimeInUse("a runtime", "13.1"),)),
    "one without cuMemMap": compat_report(
        devices=(
            device(
                attributes=dict.fromkeys(device().attributes, 1) | {"handle_type_posix_file_descriptor_supported": 0}
            ),
        )
    ),
    "one of unknown attributes": compat_report(devices=(device(attributes={}),)),
    "an Orin's": compat_report(ORIN, "540.4.0", is_tegra=True),
    "an Orin's that does not start": compat_report(ORIN, "540.4.0", is_tegra=True, init_code=3),
    "an older libcuda that starts": report(library=own_library("575.57.08")),
    "a newer libcuda that starts": report(library=own_library("590.44.01")),
    "R470": report("470.57.02", "11.4"),
    **{f"a context returns {code}": report(devices=(device(context_code=code),)) for code in (2, 804, 808)},
    "a B200 that a table denies": blackwell("550.54.15", 999),
    "a B200 that works all the same": blackwell("550.54.15", 0),
    "a B200": blackwell("570.124.06", 0),
    "a codec library without a version": codecs("/usr/lib/libnvcuvid.so.1"),
    "codec libraries that were not asked for": codecs(Unavailable(Absence.FAILED, "not asked")),
    "a newer NVRTC of the major version": report(nvrtc="13.5"),
    **{f"NVRTC {nvrtc} for CUDA {cuda}": report(cuda=cuda, nvrtc=nvrtc, devices=()) for nvrtc, cuda in COMPILERS},
    "an NVRTC that is too new, whose kernel loads": report(cuda="12.2", nvrtc="13.0", devices=(device(kernel_code=0),)),
    **{
        f"NVRTC {nvrtc} for a GPU of {capability}": report(
            nvrtc=nvrtc, devices=(device(compute_capability=capability),)
        )
        for nvrtc, capability in (("11.2", "9.0"), ("13.0", "7.0"), ("12.6", "10.0"))
    },
    "a kernel that NVRTC refuses": report(nvrtc="13.0", devices=(device(kernel_code=REFUSED),)),
    "and for Volta": report(nvrtc="13.0", devices=(device(compute_capability="7.0", kernel_code=REFUSED),)),
    **{f"a runtime for {runtime} on {driver}": running(runtime, driver, cuda) for runtime, driver, cuda in RUNTIMES},
    "a runtime that a package on the disk fits": running("13.1", "550.54.15", "12.4", compat_libraries=(COMPAT_590,)),
    "a runtime that it does not fit": running("13.4", "550.54.15", "12.4", compat_libraries=(COMPAT_590,)),
    "a runtime on GeForce": running("13.1", "570.124.06", "12.8", devices=(GEFORCE,), compat_libraries=(COMPAT_590,)),
    "a runtime on Volta": running("13.0", "535.54.03", "12.2", devices=(VOLTA,)),
    "a runtime that Volta never has": running("13.3", "580.159.04", "13.0", devices=(VOLTA,)),
    "a runtime on a Jetson": running("13.4", "540.4.0", "12.6", is_tegra=True),
}
UNSEEN = report(init_code=100)
NO_DRIVER = report(kernel_module=NO, library=NO, init_code=NO, devices=(), codec_libraries={})


def asking(text: str) -> ContainerReport:
    """Return a container whose image requires a driver, although the check is disabled."""
    return container(requirements={"NVIDIA_REQUIRE_CUDA": text}, is_requirement_disabled=True)


def part(
    branch: str, name: str, minors: tuple[int, ...], visible: str | None = "GPU-1"
) -> tuple[ContainerReport, CudaReport]:
    """Return a container that sees only some GPUs, with its driver."""
    return container(visible_devices=visible, device_minors=minors), report(branch, devices=(device(name=name),))


CONTAINERS: Final = {
    "all in order": (container(requirements={"NVIDIA_REQUIRE_CUDA": "cuda>=12.4"}), report()),
    "graphics, and libraries that load": (container(capabilities=("compute", "graphics", "utility")), report()),
    "no capabilities, and libraries that load": (container(capabilities=None), report()),
    "no capabilities, and none that loads": (container(capabilities=None), DRIVERS["no codec library"]),
    **{
        f"no driver, {each} GPUs": (container(device_minors=(), visible_devices=each), NO_DRIVER)
        for each in (None, "all", "void")
    },
    "GeForce, one of some on R580": part("580.82.09", "NVIDIA GeForce RTX 4090", (2,)),
    "H200, one of some on R580": part("580.82.09", "NVIDIA H200", (2,)),
    "GeForce, two of some on R570": part("570.86.15", "NVIDIA GeForce RTX 4080", (1, 2), None),
    "GeForce, all on R580": part("580.82.09", "NVIDIA GeForce RTX 4090", (0, 1), "all"),
    "GeForce, one of some on R550": part("550.54.15", "NVIDIA GeForce RTX 4090", (2,)),
    "GeForce that did not arrive": part("580.82.09", "NVIDIA GeForce RTX 4090", ()),
    "a compat package that starts": (container(compat_folders=("/c/compat",)), compat_report()),
    "a compat package that is not loaded": (container(compat_folders=("/c/compat",)), report(init_code=803)),
    **{f"asks for {text}": (asking(text), report()) for text in ("cuda>=13.0", "cuda>=99", "brand=tesla")},
    "little shared memory": (container(shared_memory_bytes=64 << 20), report()),
    "no GPU given": (container(visible_devices="void", device_minors=()), UNSEEN),
    "no GPU arrived": (container(visible_devices="GPU-1", device_minors=()), UNSEEN),
    "without video": (container(capabilities=("compute",)), DRIVERS["no codec library"]),
    "with video": (container(), DRIVERS["no codec library"]),
    "some of the GPUs": (container(visible_devices="GPU-1"), report(devices=(device(name="NVIDIA GeForce RTX 4090"),))),
    "a requirement": (container(requirements={"NVIDIA_REQUIRE_CUDA": "cuda>=99"}), report()),
    "an undecided requirement": (container(requirements={"NVIDIA_REQUIRE_CUDA": "brand=tesla"}), report()),
    "a compat package": (container(compat_folders=("/c/compat",)), compat_report(init_code=803)),
}

NO_ENCODER = {"libnvidia-encode.so.1": NO}
PACKAGES: Final = {
    "in order": (PACKAGE, MACHINE),
    "not installed": (replace(PACKAGE, version=NO), MACHINE),
    **{f"no build for Python {each}": (replace(FAILED, python_version=each), MACHINE) for each in ("3.9", "3.15")},
    "no build for glibc 2.27": (replace(FAILED, glibc_version="2.27"), MACHINE),
    "no build for another C library": (replace(FAILED, glibc_version=NO), MACHINE),
    "no build for an older Arm": (
        replace(FAILED, machine="aarch64", python_version="3.13", glibc_version="2.31"),
        MACHINE,
    ),
    "an older Arm that works": (replace(PACKAGE, machine="aarch64", glibc_version="2.31"), MACHINE),
    "without the encode library": (FAILED, replace(MACHINE, codec_libraries=NO_ENCODER)),
    "an old interface": (FAILED, replace(MACHINE, nvenc_api="12.0")),
    "an old driver of Blackwell's": (PACKAGE, replace(MACHINE, kernel_module=TOO_OLD, devices=BLACKWELL)),
    "Blackwell": (PACKAGE, replace(MACHINE, devices=BLACKWELL)),
    "an Orin": (PACKAGE, replace(MACHINE, is_tegra=True, devices=(device(compute_capability="8.7"),))),
    "a driver without statistics": (PACKAGE, replace(MACHINE, kernel_module=KernelModule("580.159.04", is_open=False))),
    "an import that fails": (FAILED, MACHINE),
}


TRIALS: Final = read_tables("trials.toml")


def verdict_lines(name: str, verdicts: tuple[Diagnosis, ...]) -> Iterator[str]:
    """Yield the verdicts on one machine; those that need an action or state a limit are given in full."""
    yield f"== {name}"
    told = [each for each in verdicts if each.fix or each.limits]
    for each in told:
        stops = "" if each.stops is Stops.NOTHING else f" [stops {each.stops.value}]"
        yield f"{each.state.value}: {each.subject}: {each.because}{stops}"
        yield from [f"  fix: {each.fix}"] if each.fix else []
        yield from (f"  limit: {limit}" for limit in each.limits)
    others = [f"{each.subject} {each.state.value}" for each in verdicts if each not in told]
    yield from [", ".join(others)] if others else []


def table_lines() -> Iterator[str]:
    """Yield what is said about each code of a decoder, an encoder and NVML, and about each Xid."""
    yield "== codes"
    faults = {f"decoder {code}": decode_fault(f"Error code : {code}") for code in TRIALS["decode_errors"]}
    faults |= {f"encoder {code}": encode_fault(f"returned error {code}") for code in TRIALS["encode_errors"]}
    faults |= {f"message {message!r}": decode_fault(f"Error: {message.upper()}") for message in TRIALS["missing"]}
    yield from (f"{name}: {fault.reason}; fix: {fault.fix or 'none'}" for name, fault in faults.items())
    for code, row in return_codes().items():
        absence = absence_of("NVML", code)
        yield f"{absence.reason} [{absence.absence.value}]; fix: {row.fix or 'none'}"
    yield from (f"Xid {rule.xid}, {rule.name}: {rule.reason}; {rule.action.value}" for rule in xid_rules().values())


def test_remedies_are_those_that_people_have_read() -> None:
    """Each fault has a reason and a fix, with the version, package, option or command that the fix needs."""
    judged = {name: judge(found) for name, found in DRIVERS.items()}
    judged |= {f"container: {name}": judge_container(*pair) for name, pair in CONTAINERS.items()}
    judged |= {f"PyNvVideoCodec: {name}": (judge_pynvvideocodec(*pair),) for name, pair in PACKAGES.items()}
    lines = [line for name, verdicts in judged.items() for line in verdict_lines(name, verdicts)]
    text = "\n".join([*lines, *table_lines(), ""])
    assert text == golden("remedies.txt", text)

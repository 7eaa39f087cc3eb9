"""How compatibility verdicts change placement, on the recording of a real H200: tests/golden/verdicts.txt."""

from dataclasses import replace
from typing import Final

from codecfleet.cluster.node.offer import offer_of
from codecfleet.cluster.placement.assign.assignment import place
from codecfleet.cluster.placement.build import node_of_report
from codecfleet.cluster.placement.labels import KIND
from codecfleet.cluster.placement.model.demand import Demand, EncoderChoice, Rendition
from codecfleet.cluster.placement.model.inventory import Inventory
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.placement.rates import start_rates
from codecfleet.cluster.probes.cuda.choosing import choose_driver
from codecfleet.cluster.probes.cuda.report import CudaLibrary, CudaReport, Deployment, ForwardNote, KernelModule
from codecfleet.cluster.probes.node.report import NodeReport
from codecfleet.cluster.probes.report.absence import Absence, Unavailable
from codecfleet.cluster.probes.report.device_kinds import DeviceKind
from codecfleet.cluster.probes.report.engines import CodecCase, Direction, MediaCodec
from codecfleet.cluster.probes.report.verdict import Diagnosis, Grade, grade_of
from tests.goldens import golden
from tests.simulated_gpus import recorded_h200


def _with_cuda(**changes: object) -> NodeReport:
    """Return the recording with another answer from CUDA."""
    report = recorded_h200()
    assert isinstance(report.cuda, CudaReport)
    return replace(report, cuda=replace(report.cuda, **changes))  # type: ignore[arg-type]


def _refused(code: int) -> NodeReport:
    return _with_cuda(init_code=code, device_count=Unavailable(Absence.FAILED, "cuInit failed"), devices=())


PACKAGE: Final = CudaLibrary(
    path="/usr/local/cuda-13.3/compat/libcuda.so.610.43.02",
    version="610.43.02",
    in_compat_folder=True,
    note=ForwardNote("13.3", (535, 550, 570, 580, 590, 595)),
)
OLD: Final = replace(PACKAGE, path="/usr/local/cuda-12.8/compat/libcuda.so.570.26", note=ForwardNote("12.8", (535,)))


def _chosen(init_code: int | None) -> NodeReport:
    """Return the recording with a driver for CUDA 12.8 and a compat package that fits.

    ``init_code`` is the result of cuInit in the trial of the package; with None, there is no trial.
    """
    changes = {"cuda_version": "12.8", "kernel_module": KernelModule("570.86.15", is_open=True), "nvrtc": "13.3"}
    own = replace(PACKAGE, path="/usr/lib/libcuda.so.570.86.15", version="570.86.15", in_compat_folder=False)
    before = _with_cuda(**changes, library=own, compat_libraries=(PACKAGE,))
    return (
        before
        if init_code is None
        else _choose(before, init_code=init_code, **changes | {"library": PACKAGE, "cuda_version": "13.3"})
    )


def _refused_package() -> NodeReport:
    """Return the recording with an old compat package in the search path, which cuInit refuses."""
    report = _refused(803)
    assert isinstance(report.cuda, CudaReport)
    return replace(report, cuda=replace(report.cuda, library=OLD, deployment=Deployment.SEARCH_PATH))


def _choose(before: NodeReport, **found: object) -> NodeReport:
    """Return a report after the choice of the workers' driver; a trial returns the recording with some changes."""
    assert isinstance(before.cuda, CudaReport)
    tried = _with_cuda(**{"nvrtc": "13.3"} | found).cuda
    assert isinstance(tried, CudaReport)
    choice, seen = choose_driver(before.cuda, {"LD_LIBRARY_PATH": OLD.folder}, lambda _: tried)
    return replace(before, cuda=seen, driver_choice=choice)


CASES: Final = {
    "as recorded": recorded_h200,
    "cuInit returns 804": lambda: _refused(804),
    "cuInit returns 803": lambda: _refused(803),
    "cuInit returns 802, which may pass": lambda: _refused(802),
    "NVRTC is missing": lambda: _with_cuda(
        nvrtc=Unavailable(Absence.NO_LIBRARY, "NVRTC cannot be loaded: no libnvrtc")
    ),
    "NVRTC is of another major version": lambda: _with_cuda(cuda_version="12.8", nvrtc="13.3"),
    "a fitting compat package, before it is chosen": lambda: _chosen(None),
    "a fitting compat package, loaded after its trial": lambda: _chosen(0),
    "a fitting compat package whose trial returns 804": lambda: _chosen(804),
    "an old compat package in LD_LIBRARY_PATH returns 803": _refused_package,
    "the same, and the system's driver starts without it": lambda: _choose(_refused_package()),
}


def _placed(report: NodeReport) -> list[str]:
    """Return the GPU's state and label, and where a long film is placed that NVDEC may decode."""
    node = node_of_report(report)
    (gpu,) = [device for device in node.devices if device.kind is not DeviceKind.CPU]
    case = CodecCase(MediaCodec.HEVC, Direction.ENCODE)
    demand = Demand(
        job="j",
        segments=(250,) * 64,
        decode=CodecCase(MediaCodec.H264, Direction.DECODE),
        width=1920,
        height=1080,
        renditions=(Rendition(case=case, width=1920, height=1080, software="libx265", preset="5"),),
        encoder=EncoderChoice.AUTO,
    )
    placement = place([demand], Inventory((node,)), start_rates(), Policy(hybrid_gain=0))
    routes = sorted({lane.route.value for lane in placement.lanes})
    return [
        f"{gpu.name}: {gpu.state.value}{f' ({gpu.state_reason})' if gpu.state_reason else ''}",
        f"its kernels: {gpu.no_kernels or 'run'}",
        *filter(None, [node.driver_choice]),
        *([] if node.search_path is None else [f"workers' search path: {node.search_path!r}"]),
        f"{len(placement.lanes)} lanes, {' and '.join(routes)}; kind for Ray: {offer_of(report).labels[KIND]}",
        *dict.fromkeys(f"not used: {refusal.reason}" for refusal in placement.refusals),
    ]


def test_verdicts_decide_placement_as_recorded() -> None:
    """Each verdict closes the GPU, or only its kernels, or neither; placement, search path and label follow."""
    page = "\n\n".join("\n".join([f"== {title}", *_placed(make())]) for title, make in CASES.items()) + "\n"
    assert page == golden("verdicts.txt", page)


def test_a_device_has_its_driver_and_the_worst_verdict() -> None:
    """A device keeps the driver's whole version and the worst grade of its own and its machine's verdicts."""
    (gpu,) = node_of_report(recorded_h200()).gpus
    assert (gpu.driver, gpu.driver_branch, gpu.compatibility) == ("580.159.04", "580", Grade.LIMITED)
    (broken,) = node_of_report(_refused(804)).gpus
    assert broken.compatibility is Grade.BROKEN
    other = Diagnosis("device 1", Grade.BROKEN, "rule", "because", device="1234")
    fine = Diagnosis("driver versions", Grade.OK, "rule", "because")
    unsure = replace(fine, state=Grade.UNKNOWN)
    assert grade_of((other, fine, unsure), "GPU-5678") is Grade.OK
    assert grade_of((other, fine), "GPU-1234") is Grade.BROKEN
    assert grade_of((unsure,), "GPU-5678") is Grade.UNKNOWN

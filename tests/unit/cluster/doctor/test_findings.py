"""Each fault of a machine alone, with weight, cause and fix: tests/golden/findings.txt."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.doctor.findings import Weight, findings, verdicts
from codecfleet.cluster.probes.cuda.report import CudaReport
from codecfleet.cluster.probes.gpus.devices import NvmlReport
from codecfleet.cluster.probes.node.report import DeviceTrials, NodeReport, ProbeProblem
from codecfleet.cluster.probes.nvml.use import RECOVERY_ACTIONS
from codecfleet.cluster.probes.report.absence import Absence, Unavailable
from codecfleet.cluster.probes.report.device_report import DeviceReport
from codecfleet.cluster.probes.report.engines import Engine, EngineCount, How, MediaCodec, Trial
from codecfleet.cluster.probes.report.verdict import Grade
from codecfleet.cluster.simulated.fleet_file import load_fleet
from codecfleet.testing.fleet.simulated_report import simulated_report
from tests.goldens import golden

from ..maybe import held
from ..probes import cuda_reports
from ..probes.cuda.test_pynvvideocodec import PACKAGE
from ..probes.node.test_container import container

ABSENT = Unavailable(Absence.NO_LIBRARY, "there is none")
STUCK = Unavailable(Absence.TIMED_OUT, "no answer within 15 s")
REFUSED = Unavailable(Absence.NO_PERMISSION, "the user may not ask for MIG instances")
STRANGER = {"libnvcuvid.so.1": "/usr/lib/libnvcuvid.so.575.57.08"}


@cache
def node(fleet: str, number: int = 0) -> NodeReport:
    """Return the report of one machine of a fleet, as if it were real."""
    return replace(simulated_report(load_fleet(fleet).nodes[number]), simulated="")


def with_gpu(report: NodeReport, change: Callable[[DeviceReport], DeviceReport], number: int = 0) -> NodeReport:
    """Return the report with a GPU changed."""
    devices = tuple(change(gpu) if place == number else gpu for place, gpu in enumerate(report.gpus))
    return replace(report, nvml=replace(held(report.nvml), devices=devices))


def with_health(report: NodeReport, number: int = 0, **changes: Any) -> NodeReport:
    """Return the report with a GPU's health changed."""
    return with_gpu(report, lambda gpu: replace(gpu, health=replace(gpu.health, **changes)), number)


def cuda(**changes: Any) -> CudaReport:
    """Return a CUDA driver that works, except for the ``changes``; no process loads its libcuda."""
    return cuda_reports.report(**{"library": ABSENT, "devices": (), "codec_libraries": {}, **changes})


def of(engine: Engine) -> Callable[[Trial], bool]:
    """Return a function that picks the trials of an engine."""
    return lambda trial: trial.engine is engine


def hevc_10(trial: Trial) -> bool:
    """Pick a single case of NVDEC."""
    case = trial.case
    return (case.codec, case.bit_depth, case.chroma, trial.engine) == (MediaCodec.HEVC, 10, "4:2:0", Engine.NVDEC)


def with_trials(report: NodeReport, changed: Callable[[Trial], bool], **changes: Any) -> NodeReport:
    """Return the report with some trials of the first device changed."""
    first, *others = report.devices
    trials = tuple(replace(trial, **changes) if changed(trial) else trial for trial in first.trials)
    return replace(report, devices=(replace(first, trials=trials), *others))


def failing(changed: Callable[[Trial], bool], how: How = How.TRIED, fix: str = "") -> NodeReport:
    """Return a machine on which some of the GPU's trials failed."""
    return with_trials(node("rtx-4090"), changed, works=False, how=how, reason="it failed", fix=fix)


def with_smoke(report: NodeReport, number: int, **frames: Trial) -> NodeReport:
    """Return the report with this result of a device's own frame."""
    devices = (replace(each, **frames) if place == number else each for place, each in enumerate(report.devices))
    return replace(report, devices=tuple(devices))


def mig(**changes: Any) -> NodeReport:
    """Return a machine whose first GPU is partitioned, with this change of MIG."""
    return with_gpu(node("a100-mig"), lambda gpu: replace(gpu, mig=replace(held(gpu.mig), **changes)))


def branded(brand: str | Unavailable) -> NodeReport:
    """Return a machine whose image requires a brand of GPU, and whose GPU has this brand in NVML."""
    asked = container(requirements={"NVIDIA_REQUIRE_CUDA": "brand=tesla"})
    report = replace(node("rtx-4090"), container=asked, cuda=cuda())
    return with_gpu(report, lambda gpu: replace(gpu, facts={**gpu.facts, "brand": brand}))


def without_libx265(*bits: int) -> NodeReport:
    """Return a machine whose libx265 fails at some bit depths."""
    report = node("laptop")
    changed = (
        replace(trial, works=False, reason="no", fix="reinstall")
        if trial.implementation == "libx265" and trial.case.bit_depth in bits
        else trial
        for trial in report.software
    )
    return replace(report, software=tuple(changed))


def cases() -> Iterator[tuple[str, NodeReport]]:
    """Yield machines that have one fault or none."""
    laptop, rtx, h200, cut = node("laptop"), node("rtx-4090"), node("h200-l40s"), node("a100-mig").gpus[0].slices
    yield from (("a laptop", laptop), ("an RTX 4090", rtx), ("8 H200", h200), ("L40S", node("h200-l40s", 1)))
    yield from (("A100 with MIG", node("a100-mig")), ("a vGPU", node("vgpu", 1)))
    yield "a lost GPU with errors", with_health(rtx, lost="it fell off the bus", ecc_uncorrected=5)
    for action in sorted({*RECOVERY_ACTIONS.values(), "action 99"} - {"none"}):
        yield f"recovery action {action}", with_health(rtx, recovery_action=action)
    for sign, value in (("ecc_uncorrected", 2), ("retirement_pending", True), ("remapped_rows_pending", True)):
        yield sign, with_health(rtx, **{sign: value})
    for xid in (31, 48, 79):
        yield f"Xid {xid}", with_health(rtx, xids=(xid,))
    yield "errors of GPU 3", with_health(h200, 3, ecc_uncorrected=1)
    yield "NVDEC fails", failing(of(Engine.NVDEC), fix="give it all")
    yield "NVDEC is denied by the driver", failing(of(Engine.NVDEC), How.ASKED)
    yield "NVENC fails", failing(of(Engine.NVENC), fix="close some")
    yield "NVDEC fails at 10 bits of HEVC", failing(hevc_10, fix="update it")
    broken = failing(of(Engine.NVENC))
    smoke = next(filter(of(Engine.NVENC), broken.devices[0].trials))
    yield "NVENC fails at the GPU's own frame", with_smoke(broken, 0, smoke_encode=smoke)
    smoke = replace(h200.devices[3].trials[0], works=False, reason="no CUDA device answers", fix="")
    yield "GPU 3 alone fails", with_smoke(h200, 3, smoke=smoke)
    yield "nothing was tried", replace(rtx, devices=(DeviceTrials(device="GPU-x", kind="X", trials=()),))
    unknown = (EngineCount(Engine.OFA, 0, How.ASKED),)
    yield "slices of unknown engines", mig(slices=tuple(replace(part, engines=unknown) for part in cut))
    yield "slices that may not be seen", mig(slices=(), slices_refused=REFUSED)
    yield "no slices, and MIG to be off", mig(slices=(), pending=False)
    problem = Unavailable(Absence.FAILED, "the versions of driver and library differ")
    silent = NvmlReport(
        driver_version=problem,
        cuda_driver_version=problem,
        library_problem=problem,
        fix="reboot",
        devices=(),
    )
    yield "NVML fails beside a driver", replace(laptop, nvml=silent, cuda=cuda())
    yield "NVML is not installed", replace(laptop, nvml=replace(silent, library_problem=ABSENT))
    yield "NVML is stuck beside a driver", replace(laptop, nvml=STUCK, cuda=cuda())
    yield "NVML and CUDA are stuck", replace(laptop, nvml=STUCK, cuda=STUCK)
    yield "NVML is stuck without a driver", replace(laptop, nvml=STUCK, cuda=cuda(kernel_module=ABSENT))
    yield "cuInit returns 803", replace(h200, cuda=cuda(init_code=803))
    yield "PyNvVideoCodec is missing", replace(h200, cuda=cuda(), pynvvideocodec=replace(PACKAGE, version=ABSENT))
    little = container(shared_memory_bytes=64 << 20)
    yield "little shared memory", replace(laptop, container=little, cuda=cuda(kernel_module=ABSENT))
    for brand in ("tesla", "geforcertx"):
        yield f"an image for tesla on {brand}", branded(brand)
    yield "an image for tesla on what NVML does not name", branded(ABSENT)
    yield "libx265 fails", without_libx265(8, 10, 12)
    yield "libx265 fails at 12 bits", without_libx265(12)
    yield "no software was tried", replace(laptop, software=())
    yield "a probe was cut off", replace(laptop, probe_problems=(ProbeProblem("CUDA", "no answer within 20 s"),))


def lines_of(name: str, report: NodeReport) -> Iterator[str]:
    """Yield the findings on a machine as lines."""
    yield f"== {name}"
    for each in findings(report):
        yield f"{each.weight.value}: {each.about}: {each.title}: {each.cause}"
        yield from [f"  fix: {each.fix}"] if each.fix else []


def test_findings_are_those_that_people_have_read() -> None:
    """Each fault has its weight and a fix that can be typed; a healthy machine has nothing to fix."""
    text = "".join(f"{line}\n" for case in cases() for line in lines_of(*case))
    assert text == golden("findings.txt", text)


@pytest.mark.parametrize(("how", "state"), [(How.SIMULATED, Grade.BROKEN), (How.TRIED, Grade.OK)])
def test_codec_libraries_that_decoded_are_not_called_broken(how: How, state: Grade) -> None:
    """A trial that worked overrides the rule that libraries must have the driver's version."""
    report = with_trials(replace(node("rtx-4090"), cuda=cuda(codec_libraries=STRANGER)), lambda _: True, how=how)
    assert [found.state for found in verdicts(report) if found.subject == "codec libraries"] == [state]


@given(st.permutations(["lost", "xid", "problem"]))
def test_the_gravest_comes_first(order: list[str]) -> None:
    """Broken findings come before limited ones, notes come last, and no finding is repeated."""
    report = node("h200-l40s")
    for each in order:
        if each == "lost":
            report = with_health(report, lost="gone")
        elif each == "xid":
            report = with_health(report, xids=(48, 48))
        else:
            report = replace(report, probe_problems=(ProbeProblem("NVML", "late"), ProbeProblem("NVML", "late")))
    found = findings(report)
    ranks = [list(Weight).index(finding.weight) for finding in found]
    assert ranks == sorted(ranks)
    assert len(set(found)) == len(found)

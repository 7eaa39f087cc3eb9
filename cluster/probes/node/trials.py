"""Which devices are tried with what: the whole matrix once per kind of device, then one frame per device."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..child.child import run_in_child
from ..child.trials import RunChild
from ..cuda.report import CudaReport
from ..gpus.devices import NvmlReport
from ..report.absence import Maybe, Unavailable
from ..report.device_report import DeviceReport
from ..report.engines import Engine, Trial
from ..trials.cache import CacheKey, is_lasting, load_trials, save_trials
from ..trials.gpu import smoke_decode, trials_of_device
from ..trials.software import TrialStream
from .report import DeviceTrials

MATRIX_LIMIT_S = 10.0
SMOKE_LIMIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Subject:
    """A device to try: what CUDA_VISIBLE_DEVICES takes, and the kind whose matrix it shares."""

    visible: str
    kind: str


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """What trials of a machine depend on, besides its devices. ``ends_s`` is on the clock of ``try_devices``."""

    driver: str
    packages: tuple[str, ...]
    folder: Path | None
    fresh: bool
    ends_s: float


def subjects(nvml: Maybe[NvmlReport], cuda: Maybe[CudaReport]) -> tuple[Subject, ...]:
    """Return what there is to try: GPUs, or the MIG instances of those that are cut; without NVML, CUDA's devices."""
    if not isinstance(nvml, Unavailable) and nvml.devices:
        return tuple(subject for device in nvml.devices for subject in _of_device(device))
    if isinstance(cuda, Unavailable):
        return ()
    return tuple(Subject(str(device.ordinal), device.name) for device in cuda.devices)


def _of_device(device: DeviceReport) -> tuple[Subject, ...]:
    if device.health.lost:
        return ()
    if device.is_cut:
        return tuple(Subject(part.uuid, f"{device.name} MIG {part.profile}") for part in device.slices)
    return (Subject(device.key, device.name),)


def try_devices(
    found: Sequence[Subject],
    streams: Mapping[str, TrialStream],
    plan: TrialPlan,
    *,
    run: RunChild = run_in_child,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[tuple[DeviceTrials, ...], tuple[str, ...]]:
    """Try every device, kinds before smoke tests, until ``plan.ends_s``; return what they did and what went wrong."""
    matrices: dict[str, DeviceTrials] = {}
    problems: list[str] = []
    for subject in found:
        if subject.kind not in matrices:
            matrix, trouble = _matrix(subject, streams, plan, min(MATRIX_LIMIT_S, plan.ends_s - clock()), run)
            matrices[subject.kind] = matrix
            problems += [f"{subject.kind}: {line}" for line in trouble]
    answers = []
    for subject in found:
        matrix = matrices[subject.kind]
        if matrix.device == subject.visible and not matrix.from_cache:
            answers.append(matrix)  # every case has just been tried on this very device
        elif plan.ends_s - clock() < SMOKE_LIMIT_S:
            # A decode that is cut short tells nothing of the device, and must not count against it.
            answers.append(replace(matrix, device=subject.visible))
            problems.append(f"{subject.visible}: the time for trials was up, so it is taken to be like its kind")
        else:
            answers.append(_smoked(subject, matrix, streams, run))
    return tuple(answers), tuple(problems)


def _matrix(
    subject: Subject, streams: Mapping[str, TrialStream], plan: TrialPlan, limit_s: float, run: RunChild
) -> tuple[DeviceTrials, tuple[str, ...]]:
    key = CacheKey(plan.driver, subject.kind, plan.packages)
    kept = None if plan.fresh else load_trials(plan.folder, key)
    if kept is not None:
        return DeviceTrials(device=subject.visible, kind=subject.kind, trials=kept, from_cache=True), ()
    if limit_s <= 0:
        return DeviceTrials(device=subject.visible, kind=subject.kind, trials=()), ("the time for trials was up",)
    trials, problems = trials_of_device(subject.visible, streams, limit_s, run=run)
    if is_lasting(trials) and not problems:
        save_trials(plan.folder, key, trials)
    return DeviceTrials(device=subject.visible, kind=subject.kind, trials=trials), problems


def _smoked(subject: Subject, matrix: DeviceTrials, streams: Mapping[str, TrialStream], run: RunChild) -> DeviceTrials:
    mine = replace(matrix, device=subject.visible)
    smoke = smoke_decode(subject.visible, matrix.trials, streams, SMOKE_LIMIT_S, run=run)
    if smoke is None or smoke.works:
        return replace(mine, smoke=smoke)
    return replace(mine, smoke=smoke, trials=tuple(_doubted(trial, smoke) for trial in matrix.trials))


def _doubted(trial: Trial, smoke: Trial) -> Trial:
    """A device whose own decoder fails decodes nothing, whatever others of its kind do."""
    if trial.engine is not Engine.NVDEC or not trial.works:
        return trial
    return replace(trial, works=False, reason=smoke.reason, fix=smoke.fix)

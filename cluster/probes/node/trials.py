"""Tries devices: every codec case on one device of each kind, then one frame on each other device.

If a case fails on a device, every case is also tried on the next device of the same kind.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ..child.child import RunChild, run_in_child
from ..cuda.report import CudaReport
from ..gpus.devices import NvmlReport
from ..report.absence import Maybe, Unavailable
from ..report.device_report import DeviceReport
from ..report.engines import Engine, How, Trial
from ..trials.cache import is_lasting, load_trials, save_trials, trials_file
from ..trials.gpu import smoke, trials_of_device
from ..trials.software import TrialStream
from .report import DeviceTrials

MATRIX_LIMIT_S = 10.0
SMOKE_LIMIT_S = 5.0
MATRICES_MAX = 3
"""If trials fail on this many devices of a kind, the other devices of the kind are not tried with every case."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A device to try."""

    visible: str  #: the device's name in CUDA_VISIBLE_DEVICES
    kind: str  #: devices of one kind share trials


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """The settings for the trials on a machine."""

    driver: str
    packages: tuple[str, ...]  #: "name version" of each package that trials depend on
    folder: Path | None  #: the cache's folder
    fresh: bool  #: whether to ignore the cache, and encode a frame on every device
    ends_s: float  #: the deadline, on the clock given to ``try_devices``


def subjects(nvml: Maybe[NvmlReport], cuda: Maybe[CudaReport]) -> tuple[Subject, ...]:
    """Return the GPUs, or their slices in MIG mode; without NVML, return CUDA's devices."""
    if not isinstance(nvml, Unavailable) and nvml.devices:
        return tuple(subject for device in nvml.devices for subject in _of_device(device))
    devices = () if isinstance(cuda, Unavailable) else cuda.devices
    return tuple(Subject(str(device.ordinal), device.name) for device in devices)


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
    """Try every device until ``plan.ends_s``; return the trials, and the problems that occurred."""
    matrices: dict[str, list[DeviceTrials]] = {}
    problems: list[str] = []
    for subject in found:
        tried = matrices.setdefault(subject.kind, [])
        if len(tried) < MATRICES_MAX and not any(_speaks_for_kind(each.trials) for each in tried):
            matrix, trouble = _matrix(subject, streams, plan, min(MATRIX_LIMIT_S, plan.ends_s - clock()), run)
            tried.append(matrix)
            problems += [f"{subject.kind}: {line}" for line in trouble]
    answers = []
    for subject in found:
        tried = matrices[subject.kind]
        own = next((each for each in tried if each.device == subject.visible and not each.from_cache), None)
        matrix = next((each for each in tried if _speaks_for_kind(each.trials)), tried[0])
        smokes = 2 if plan.fresh else 1
        if own is not None:
            answers.append(own)  # every case was tried on this device
        elif plan.ends_s - clock() < SMOKE_LIMIT_S * smokes:
            # A trial that is cut short would prove nothing about the device.
            like_it = tuple(replace(trial, how=How.KIND) for trial in matrix.trials)
            answers.append(replace(matrix, device=subject.visible, trials=like_it))
            problems.append(f"{subject.visible}: no time to try it; assumed to work like others of its model")
        else:
            answers.append(_smoked(subject, matrix, streams, run, encodes=plan.fresh))
    return tuple(answers), tuple(problems)


def _speaks_for_kind(trials: tuple[Trial, ...]) -> bool:
    """Whether the trials hold for all devices of the kind. A frame that failed may be the fault of one device."""
    return is_lasting(trials) and all(trial.works or trial.how is not How.TRIED for trial in trials)


def _matrix(
    subject: Subject, streams: Mapping[str, TrialStream], plan: TrialPlan, limit_s: float, run: RunChild
) -> tuple[DeviceTrials, tuple[str, ...]]:
    file = trials_file(plan.folder, plan.driver, subject.kind, *plan.packages)
    made = partial(DeviceTrials, device=subject.visible, kind=subject.kind)
    cached = None if plan.fresh else load_trials(file)
    if cached is not None:
        return made(trials=cached, from_cache=True), ()
    if limit_s <= 0:
        return made(trials=()), ("the time limit for trials was reached",)
    trials, problems = trials_of_device(subject.visible, streams, limit_s, run=run)
    if _speaks_for_kind(trials) and not problems:
        save_trials(file, trials)
    return made(trials=trials), problems


def _smoked(
    subject: Subject, matrix: DeviceTrials, streams: Mapping[str, TrialStream], run: RunChild, *, encodes: bool
) -> DeviceTrials:
    """Decode one frame on a device; if ``encodes``, also encode one frame, for which an encoder session is opened."""

    def tried(engine: Engine) -> Trial | None:
        return smoke(engine, subject.visible, matrix.trials, streams, SMOKE_LIMIT_S, run=run)

    decode, encode = tried(Engine.NVDEC), tried(Engine.NVENC) if encodes else None
    trials = tuple(_doubted(_doubted(trial, decode), encode) for trial in matrix.trials)
    return replace(matrix, device=subject.visible, smoke=decode, smoke_encode=encode, trials=trials)


def _doubted(trial: Trial, own: Trial | None) -> Trial:
    """Return a kind's trial as it counts for one device: failed if the device's ``own`` trial of that engine failed."""
    if own is None or own.works or trial.engine is not own.engine or not trial.works:
        return trial
    return replace(trial, works=False, reason=own.reason, fix=own.fix)

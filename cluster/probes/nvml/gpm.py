"""Measures each engine of a GPU or MIG slice between two samples of NVML's GPU performance monitoring (GPM).

NVIDIA documents GPM for Hopper and later.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..report.absence import Absence, Maybe, Unavailable
from ..report.device_report import MigSlice
from ..report.engines import Engine, EngineCount
from .calls import SUCCESS, DeviceQuestions, ask_named

METRICS: dict[int, tuple[Engine, int]] = {
    **{30 + index: (Engine.NVDEC, index) for index in range(8)},
    **{40 + index: (Engine.NVJPG, index) for index in range(8)},
    **{50 + index: (Engine.OFA, index) for index in range(2)},
    **{166 + index: (Engine.NVENC, index) for index in range(4)},
}
"""The engine that each ``NVML_GPM_METRIC_*_UTIL`` measures, with its index."""

WHOLE_GPU = None

# A driver that lacks one metric may refuse the whole call, and the metrics of encoders were added later.
_LATE = 100
_GROUPS = (
    tuple(metric for metric in METRICS if metric < _LATE),
    tuple(metric for metric in METRICS if metric >= _LATE),
)


@dataclass(frozen=True, slots=True)
class GpmMeasure:
    """The first samples of a measurement. Call ``finish`` once; it frees the samples."""

    questions: DeviceQuestions
    _first: dict[int | None, Maybe[Any]]

    @property
    def needs_time(self) -> bool:
        """Whether any first sample was taken; if so, the caller must wait before it calls ``finish``."""
        return any(not isinstance(sample, Unavailable) for sample in self._first.values())

    def finish(
        self, slices: Iterable[MigSlice] = (), whole: tuple[EngineCount, ...] = ()
    ) -> dict[int | None, Maybe[dict[str, float]]]:
        """Take the second samples; return percentages by engine ("nvdec0"), for each GPU instance and for WHOLE_GPU.

        Engines beyond the counts in ``slices`` and in ``whole`` are left out, because drivers may report them as idle.
        """
        engines: dict[int | None, tuple[EngineCount, ...]]
        engines = {WHOLE_GPU: whole, **{piece.gpu_instance: piece.engines for piece in slices}}
        return {
            instance: self._measure(instance, first, {each.engine: each.count for each in engines.get(instance, ())})
            for instance, first in self._first.items()
        }

    def _measure(self, instance: int | None, first: Maybe[Any], counted: dict[Engine, int]) -> Maybe[dict[str, float]]:
        if isinstance(first, Unavailable):
            return first
        second = _take(self.questions, instance)
        if isinstance(second, Unavailable):
            _free(self.questions, first)
            return second
        answers = [_read_group(self.questions, (first, second), group, counted) for group in _GROUPS]
        _free(self.questions, first)
        _free(self.questions, second)
        read = [answer for answer in answers if not isinstance(answer, Unavailable)]
        return {engine: percent for answer in read for engine, percent in answer.items()} if read else answers[0]


def begin_gpm(questions: DeviceQuestions, slices: Iterable[MigSlice]) -> GpmMeasure:
    """Take first samples of a GPU and of the GPU instances that its slices belong to; never raises."""
    targets = [WHOLE_GPU, *sorted({piece.gpu_instance for piece in slices})]
    supported: Maybe[bool] = questions.ask("nvmlGpmQueryDeviceSupport", read=lambda said: bool(said.isSupportedDevice))
    if supported is True:
        return GpmMeasure(questions, {target: _take(questions, target) for target in targets})
    none = Unavailable(Absence.NOT_SUPPORTED, "this GPU does not offer per-engine metrics (GPM)")
    refused = supported if isinstance(supported, Unavailable) else none
    return GpmMeasure(questions, dict.fromkeys(targets, refused))


def _take(questions: DeviceQuestions, instance: int | None) -> Maybe[Any]:
    sample = ask_named(questions.nvml, "nvmlGpmSampleAlloc")
    if isinstance(sample, Unavailable):
        return sample
    asked = ("nvmlGpmSampleGet",) if instance is WHOLE_GPU else ("nvmlGpmMigSampleGet", instance)
    taken = questions.ask(*asked, sample, read=lambda _: sample)
    if isinstance(taken, Unavailable):
        _free(questions, sample)
    return taken


def _free(questions: DeviceQuestions, sample: object) -> None:
    questions.ask_of(sample, "nvmlGpmSampleFree", read=lambda _: None)


def _read_group(
    questions: DeviceQuestions, samples: tuple[object, object], group: tuple[int, ...], counted: dict[Engine, int]
) -> Maybe[dict[str, float]]:
    try:
        asked = questions.nvml.c_nvmlGpmMetricsGet_t()
        asked.version = questions.nvml.NVML_GPM_METRICS_GET_VERSION
    except AttributeError as error:
        return Unavailable(Absence.FUNCTION_NOT_FOUND, f"the installed nvidia-ml-py has no GPM structures ({error})")
    asked.sample1, asked.sample2 = samples
    asked.numMetrics = len(group)
    for position, metric in enumerate(group):
        asked.metrics[position].metricId = metric
    return questions.ask_of(asked, "nvmlGpmMetricsGet", read=lambda _: _percents(asked, counted))


def _percents(answered: Any, counted: dict[Engine, int]) -> dict[str, float]:
    percents = {}
    for position in range(int(answered.numMetrics)):
        metric = answered.metrics[position]
        engine, index = METRICS[int(metric.metricId)]
        exists = index < counted.get(engine, index + 1)
        if exists and int(metric.nvmlReturn) == SUCCESS and math.isfinite(metric.value):
            percents[f"{engine.value}{index}"] = float(metric.value)
    return percents

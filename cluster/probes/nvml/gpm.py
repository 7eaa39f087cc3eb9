"""Measures the engines of MIG slices between two samples of NVML's GPU performance monitoring (GPM).

NVIDIA documents GPM for Hopper and later.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, TypeAlias

from ..report.absence import Absence, Maybe, Unavailable
from ..report.device_report import MigSlice
from ..report.engines import Engine
from .calls import SUCCESS, DeviceQuestions, ask_named

METRICS = {Engine.NVDEC: range(30, 38), Engine.NVENC: range(166, 170)}
"""The numbers of the ``NVML_GPM_METRIC_*_UTIL`` of each engine, by kind. Encoders' metrics were added later, and a
driver that lacks one metric may refuse the whole call, so there is a call for each kind."""

Percents: TypeAlias = dict[Engine, Maybe[int]]
"""The mean use of the engines of each kind, in percent."""


@dataclass(frozen=True, slots=True)
class GpmMeasure:
    """The first samples of a measurement, by GPU instance. Call ``finish`` once; it frees the samples."""

    questions: DeviceQuestions
    _first: dict[int, Maybe[Any]]

    def finish(self, slices: Iterable[MigSlice] = ()) -> dict[int, Percents]:
        """Take the second samples, and return the use of engines by GPU instance.

        Engines beyond the counts in ``slices`` are left out, because drivers may report them as idle.
        """
        counts = {piece.gpu_instance: {each.engine: each.count for each in piece.engines} for piece in slices}
        return {
            instance: self._measure(instance, first, counts.get(instance, {}))
            for instance, first in self._first.items()
        }

    def _measure(self, instance: int, first: Maybe[Any], counts: dict[Engine, int]) -> Percents:
        if isinstance(first, Unavailable):
            return dict.fromkeys(METRICS, first)
        second = _take(self.questions, instance)
        percents: Percents = {}
        for engine, metrics in METRICS.items():
            percents[engine] = second
            if not isinstance(second, Unavailable):
                percents[engine] = _read(self.questions, (first, second), engine, metrics[: counts.get(engine)])
        for sample in (first, second):
            _free(self.questions, sample)
        return percents


def begin_gpm(questions: DeviceQuestions, slices: Iterable[MigSlice]) -> GpmMeasure:
    """Take first samples of the GPU instances that slices belong to; never raises."""
    instances = sorted({piece.gpu_instance for piece in slices})
    supported: Maybe[bool] = questions.ask("nvmlGpmQueryDeviceSupport", read=lambda said: bool(said.isSupportedDevice))
    if supported is True:
        return GpmMeasure(questions, {each: _take(questions, each) for each in instances})
    none = Unavailable(Absence.NOT_SUPPORTED, "this GPU does not offer per-engine metrics (GPM)")
    return GpmMeasure(questions, dict.fromkeys(instances, supported or none))


def _take(questions: DeviceQuestions, instance: int) -> Maybe[Any]:
    sample = ask_named(questions.nvml, "nvmlGpmSampleAlloc")
    if isinstance(sample, Unavailable):
        return sample
    taken = questions.ask("nvmlGpmMigSampleGet", instance, sample, read=lambda _: sample)
    if isinstance(taken, Unavailable):
        _free(questions, sample)
    return taken


def _free(questions: DeviceQuestions, sample: Maybe[Any]) -> None:
    if not isinstance(sample, Unavailable):
        questions.ask_of(sample, "nvmlGpmSampleFree", read=lambda _: None)


def _read(
    questions: DeviceQuestions, samples: tuple[object, object], engine: Engine, metrics: Sequence[int]
) -> Maybe[int]:
    if not metrics:
        return Unavailable(Absence.NOT_FOUND, f"the slice has no {engine.name}")
    try:
        asked = questions.nvml.c_nvmlGpmMetricsGet_t()
        asked.version = questions.nvml.NVML_GPM_METRICS_GET_VERSION
    except AttributeError as error:
        return Unavailable(Absence.FUNCTION_NOT_FOUND, f"the installed nvidia-ml-py has no GPM structures ({error})")
    asked.sample1, asked.sample2 = samples
    asked.numMetrics = len(metrics)
    for position, metric in enumerate(metrics):
        asked.metrics[position].metricId = metric
    answer: Maybe[list[Any]] = questions.ask_of(
        asked, "nvmlGpmMetricsGet", read=lambda _: asked.metrics[: len(metrics)]
    )
    if isinstance(answer, Unavailable):
        return answer
    values = [each.value for each in answer if int(each.nvmlReturn) == SUCCESS and math.isfinite(each.value)]
    if not values:
        return Unavailable(Absence.NOT_FOUND, f"the slice's driver measures no {engine.name}")
    return round(fmean(values))

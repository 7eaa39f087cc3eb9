"""Inference on pictures that a GPU decodes gives the same tensors, on the host and on the GPU."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from codecfleet.actors.device.work import WorkContext
from codecfleet.actors.dla.inference.device_input import TensorFiller
from codecfleet.actors.dla.inference.network import read_loadable
from codecfleet.actors.dla.inference.segments import InferredSegment, InferSegment
from codecfleet.actors.nvidia.gpu import Gpu
from codecfleet.errors import EngineUnfit
from codecfleet.jobs.board.events import Run
from codecfleet.jobs.infer.plan import plan_inference
from codecfleet.testing.nvidia.fake_device import FakeDevice
from codecfleet.testing.nvidia.host_kernels import ReferenceConverter

from ...actors.dla.inference.test_device_input import Launching, kernel
from .test_infer import Bench, bench

__all__ = ["bench", "kernel"]


def no_gpu() -> Gpu:
    """Return a fake GPU."""

    def refuse() -> Any:
        raise EngineUnfit("PyNvVideoCodec cannot be used here: it is missing")

    return Gpu(refuse)


def first_segment(bench: Bench, gpu: Callable[[], Gpu], **changes: Any) -> InferSegment:
    """Return the work of a job's first segment."""
    options = {name: changes.pop(name) for name in ("dla_input", "mode") if name in changes}
    plan = plan_inference(bench.spec(**options), read_loadable(str(bench.loadable)))
    run = Run(segment=0, attempt=0, until=0, entry_moves=0)
    work = plan.work("job", run, lambda: bench.networks)
    return dataclasses.replace(work, gpu=gpu, **changes)


def inferred(work: InferSegment) -> InferredSegment:
    """Run it."""
    return work.run(WorkContext())


def assert_same(one: InferredSegment, other: InferredSegment) -> None:
    """Compare tensors, which must not be empty, bit for bit."""
    for first, second in zip(one.tensors, other.tensors, strict=True):
        assert first.values.any()
        np.testing.assert_array_equal(first.values, second.values)


def test_pictures_of_nvdec_give_software_s_tensors(bench: Bench) -> None:
    """In hybrid mode NVDEC decodes if there is one, with software's tensors, bit for bit."""
    device = FakeDevice()
    on_gpu = inferred(first_segment(bench, lambda: device.gpu))
    in_software = inferred(first_segment(bench, no_gpu))
    assert (on_gpu.tally.decoded_by, in_software.tally.decoded_by) == ("nvdec", "software")
    assert "PyNvVideoCodec cannot be used here" in in_software.tally.fallback
    assert on_gpu.pts_ticks.tolist() == in_software.pts_ticks.tolist()
    assert_same(on_gpu, in_software)


def test_standalone_mode_opens_no_gpu(bench: Bench) -> None:
    """Without CUDA, software decodes."""

    def never() -> Gpu:
        raise AssertionError("a GPU was asked for")

    assert inferred(first_segment(bench, never, mode="standalone")).tally.decoded_by == "software"


def test_pictures_that_stay_on_the_gpu_give_the_host_s_tensors(bench: Bench, kernel: Launching) -> None:
    """If pictures stay on the GPU, only outputs come to the host; without a GPU the host gives the same bytes."""
    device = FakeDevice()

    def filler(gpu: Any, descriptor: Any, rule: Any, colour: Any) -> TensorFiller:
        return TensorFiller(gpu.cuda, ReferenceConverter, kernel, descriptor=descriptor, rule=rule, colour=colour)

    uploads = bench.fake.calls.count("cuMemcpyHtoDAsync")
    on_gpu = inferred(first_segment(bench, lambda: device.gpu, dla_input="device", filler=filler))
    assert on_gpu.tally.decoded_by == "nvdec"
    assert bench.fake.calls.count("cuMemcpyHtoDAsync") == uploads
    on_host = inferred(first_segment(bench, no_gpu, dla_input="device"))
    assert on_host.tally.decoded_by == "software"
    assert_same(on_gpu, on_host)


def test_a_gpu_that_compiles_no_kernels_leaves_its_work_to_the_host(bench: Bench) -> None:
    """If a GPU compiles no kernels, the report states the reason, and the tensors are the same."""
    device = FakeDevice()

    def unfit(*_: Any) -> TensorFiller:
        raise EngineUnfit("kernels cannot be compiled here: no NVRTC")

    found = inferred(first_segment(bench, lambda: device.gpu, dla_input="device", filler=unfit))
    assert (found.tally.decoded_by, found.tally.fallback) == ("software", "kernels cannot be compiled here: no NVRTC")


def test_another_gpu_than_the_dla_s_is_not_used(bench: Bench) -> None:
    """A DLA takes tensors only from the GPU with which it is coupled."""
    device = FakeDevice()
    bench.fake.context = 0xBAD
    found = inferred(first_segment(bench, lambda: device.gpu, dla_input="device"))
    assert found.tally.decoded_by == "software"

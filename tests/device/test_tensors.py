"""Tensors of frames on a real GPU equal the host's bit for bit."""

from collections.abc import Iterator

import pytest

from codecfleet.actors.media.values import Colour
from codecfleet.actors.nvidia.convert.tensor_kernel import CompiledTensors
from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.actors.nvidia.cuda.kernels import compiled
from codecfleet.actors.surfaces.scaling import ScaleFilter
from codecfleet.actors.tensors.tensor_format import TensorFormat

from .tensor_batch_cases import NORMALISED, BatchCase, TensorBench, cases

HD = Colour(range=1, matrix=1)


@pytest.fixture(scope="module")
def bench(cuda: Cuda) -> Iterator[TensorBench]:
    """Provide the GPU with its kernels; a GPU machine must have NVRTC."""
    kernels, reason = compiled(CompiledTensors, cuda)
    assert kernels is not None, reason
    bench = TensorBench(cuda, kernels)
    yield bench
    bench.close()


def test_a_gpu_makes_what_the_host_makes(bench: TensorBench) -> None:
    """Tensors are equal for every format, type, layout and colour, for crops, and scaled up and down."""
    for case in cases():
        bench.check(case)


@pytest.mark.parametrize(
    "case",
    [
        BatchCase("yuv420p", (1920, 1080), HD, TensorFormat(size=(224, 224), dtype="float32", **NORMALISED), 4),
        BatchCase("yuv420p10le", (3840, 2160), HD, TensorFormat(size=(518, 294), dtype="bfloat16", layout="nhwc")),
        BatchCase("yuv420p", (1280, 720), HD, TensorFormat()),
        BatchCase("yuv420p", (320, 180), HD, TensorFormat(layout="nhwc"), 35),
        BatchCase("yuv444p12le", (854, 480), HD, TensorFormat(size=(1920, 1080), filter=ScaleFilter.LANCZOS)),
        BatchCase("yuv422p10le", (1280, 720), HD, TensorFormat(crop=(101, 55, 640, 481), size=(300, 301))),
        BatchCase("yuv420p", (1366, 768), HD, TensorFormat(size=(8, 8), dtype="float16", filter=ScaleFilter.BICUBIC)),
    ],
    ids=lambda case: f"{case.pix_fmt}-{case.size[0]}-{case.format.dtype}",
)
def test_pictures_of_real_sizes(bench: TensorBench, case: BatchCase) -> None:
    """Large pictures take many blocks of threads, the last ones not full."""
    bench.check(case)

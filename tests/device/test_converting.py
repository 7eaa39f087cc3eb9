"""Kernels that scale and convert give the bits of the reference on a real GPU."""

from collections.abc import Iterator

import pytest

from codecfleet.actors.nvidia.convert.converting import Converter
from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.actors.nvidia.cuda.kernels import compiled
from codecfleet.actors.surfaces.conversion import Conversion
from codecfleet.actors.surfaces.scaling import ScaleFilter

from .conversion_cases import FORMATS, Bench, conversions

ROOM_BYTES = 1920 * 1080 * 2 * 3


@pytest.fixture(scope="module")
def bench(cuda: Cuda) -> Iterator[Bench]:
    """Provide the GPU with its kernels; without NVRTC the tests are skipped, but a GPU machine must have NVRTC."""
    converter, reason = compiled(Converter, cuda)
    assert converter is not None, reason
    bench = Bench(cuda, converter, ROOM_BYTES)
    yield bench
    bench.close()


@pytest.mark.parametrize("filter_", ScaleFilter)
@pytest.mark.parametrize("source", FORMATS)
def test_kernels_are_the_reference(bench: Bench, source: str, filter_: ScaleFilter) -> None:
    """Bytes are those of the reference between all formats, scaled up, down and by odd ratios."""
    for seed, conversion in enumerate(conversions(FORMATS[source], filter_)):
        bench.check(conversion, seed)


@pytest.mark.parametrize("filter_", ScaleFilter)
@pytest.mark.parametrize(
    "case",
    [
        ("yuv420p", (1920, 1080), "yuv420p", (1280, 720)),
        ("yuv420p10le", (1280, 720), "yuv420p10le", (1920, 1080)),
        ("yuv420p10le", (1920, 1080), "yuv420p", (1366, 768)),
        ("yuv420p", (720, 576), "yuv444p10le", (1024, 576)),
        ("yuv444p12le", (1920, 1080), "yuv422p10le", (426, 240)),
        ("yuv420p12le", (1920, 1080), "yuv444p12le", (1920, 1080)),
    ],
)
def test_pictures_of_real_sizes(
    bench: Bench, case: tuple[str, tuple[int, int], str, tuple[int, int]], filter_: ScaleFilter
) -> None:
    """Bytes are those of the reference for many blocks of threads, and for the scaling ratios of films."""
    source, size, target, becomes = case
    conversion = Conversion(
        source=FORMATS[source], source_size=size, target=FORMATS[target], target_size=becomes, filter=filter_
    )
    bench.check(conversion, seed=len(source) + becomes[0])

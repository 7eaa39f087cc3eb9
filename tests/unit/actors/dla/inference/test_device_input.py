"""Tensors filled on a GPU equal the host's tensors; the kernel's source is compiled for the processor."""

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from av.video.frame import VideoFrame
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from codecfleet.actors.dla.inference.device_input import KERNEL_NAMES, SOURCE, ExactScaler, TensorFiller
from codecfleet.actors.dla.inference.pictures import PictureScaler, PixelRule, input_memory
from codecfleet.actors.media.values import Colour
from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.actors.surfaces.formats import surface_format
from codecfleet.actors.surfaces.host_pictures import plane_samples
from codecfleet.actors.surfaces.to_rgb import rgb_of, rgb_rule
from codecfleet.errors import DeviceMemory, Unsupported
from codecfleet.testing.nvidia.fake_cuda import FakeCudaDriver
from codecfleet.testing.nvidia.fake_cudla import fake_tensor
from codecfleet.testing.nvidia.host_kernels import ReferenceConverter
from tests.device.tensor_cases import CASES, COLOURS, TensorCase, picture_at, surface_of_picture

PRELUDE = """
struct Place { int x, y; };
static Place blockIdx, threadIdx, blockDim = {1, 1};
#define __global__ static
"""
CALL = """
extern "C" void fill_%d(void **a, int columns, int rows)
{
    for (blockIdx.y = 0; blockIdx.y < rows; blockIdx.y++)
        for (blockIdx.x = 0; blockIdx.x < columns; blockIdx.x++)
            %s(*(const unsigned char **)a[0], *(char **)a[1], *(const %s **)a[2], *(int *)a[3], *(int *)a[4],
               *(int *)a[5], *(int *)a[6], *(int *)a[7], *(int *)a[8], *(int *)a[9], *(int *)a[10], *(int *)a[11],
               *(int *)a[12], *(int *)a[13], *(int *)a[14], *(long long *)a[15], *(long long *)a[16],
               *(long long *)a[17], *(long long *)a[18]);
}
"""


@dataclass
class HostLaunch:
    """A launch that runs at once on the processor."""

    function: Any
    size: tuple[int, int]
    values: tuple[Any, ...]

    def begin(self, stream: object) -> None:
        """Run the kernel with more threads than pixels, as blocks of threads do."""
        del stream
        pointers = (ctypes.c_void_p * len(self.values))(*map(ctypes.addressof, self.values))
        self.function(pointers, self.size[0] + 3, self.size[1] + 1)


Launching = Callable[[int, tuple[int, int], tuple[Any, ...]], Any]


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Launching:
    """Return the kernel, compiled by the system's compiler."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no g++")
    folder = tmp_path_factory.mktemp("kernel")
    calls = "".join(CALL % (size, name, name[5:-1]) for size, name in KERNEL_NAMES.items())
    (folder / "fill.cpp").write_text(PRELUDE + SOURCE + calls, encoding="utf-8")
    command = [compiler, "-std=c++17", "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o"]
    subprocess.run([*command, str(folder / "fill.so"), str(folder / "fill.cpp")], check=True, timeout=60)
    library = ctypes.CDLL(str(folder / "fill.so"))
    return lambda element_bytes, size, values: HostLaunch(library[f"fill_{element_bytes}"], size, values)


def filled(kernel: Launching, case: TensorCase, pictures: list[VideoFrame], colour: Colour) -> NDArray[np.uint8]:
    """Return a tensor's memory after a device filled it."""
    driver = FakeCudaDriver()
    cuda = Cuda(driver)
    descriptor = case.descriptor
    filler = TensorFiller(cuda, ReferenceConverter, kernel, descriptor=descriptor, rule=case.rule, colour=colour)
    tensor = np.zeros(descriptor.size_bytes, dtype=np.uint8)
    for place, picture in enumerate(pictures):
        surface = surface_of_picture(picture)
        on_device = picture_at(int(surface.ctypes.data), picture, surface)
        filler.begin(filler.prepare(on_device), int(tensor.ctypes.data), place, 0x51)
    filler.close()
    assert driver.memory == {}
    return tensor


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("colour", COLOURS)
def test_a_gpu_fills_what_the_host_packs(kernel: Launching, case: TensorCase, colour: Colour) -> None:
    """Tensors are equal for every layout, type, number of channels, range and matrix, and for batches."""
    pictures = case.pictures((24, 16))
    scaler = ExactScaler(case.descriptor, colour)
    wanted = input_memory(case.descriptor, [scaler.scaled(each) for each in pictures], case.rule)
    assert wanted.any()
    np.testing.assert_array_equal(filled(kernel, case, pictures, colour), wanted)


@pytest.mark.parametrize("good", [0, 1])
def test_a_gpu_without_room_for_the_tables_keeps_nothing(good: int) -> None:
    """Whichever allocation fails, the error is ``DeviceMemory``, and nothing stays allocated on the device."""
    driver = FakeCudaDriver()
    driver.faults["cuMemAlloc"], driver.fails_after["cuMemAlloc"] = 2, good
    with pytest.raises(DeviceMemory):
        TensorFiller(
            Cuda(driver),
            ReferenceConverter,
            HostLaunch,
            descriptor=fake_tensor("x", (1, 3, 4, 4)),
            rule=PixelRule(),
            colour=None,
        )
    assert driver.memory == {}


def test_exact_scaling_is_near_to_ffmpeg_s() -> None:
    """Without scaling, the samples of the GPU and of the host differ only in the last bits."""
    descriptor = fake_tensor("x", (1, 3, 16, 24))
    picture = VideoFrame(24, 16, "yuv444p")
    for number, samples in enumerate(plane_samples(picture, surface_format("yuv444p"))):  # type: ignore[arg-type]
        samples[:] = np.linspace(60, 180, samples.size).reshape(samples.shape) + number * 5
    exact = ExactScaler(descriptor, None).scaled(picture).astype(int)
    ffmpeg = PictureScaler(descriptor).scaled(picture).astype(int)
    assert np.abs(exact - ffmpeg).max() <= 2


@given(
    y=st.integers(0, 255),
    cb=st.integers(0, 255),
    cr=st.integers(0, 255),
    matrix=st.sampled_from([1, 2, 6, 9]),
    range_=st.sampled_from([1, 2]),
    height=st.sampled_from([576, 1080]),
)
def test_colours_are_h_273_s(*, y: int, cb: int, cr: int, matrix: int, range_: int, height: int) -> None:
    """Any sample differs by at most one from the exact value of H.273's equations."""
    weights = {1: (0.2126, 0.0722), 6: (0.299, 0.114), 9: (0.2627, 0.0593)}
    red, blue = weights[matrix if matrix != 2 else (1 if height >= 720 else 6)]
    light, blues, reds = (
        (y / 255, (cb - 128) / 255, (cr - 128) / 255)
        if range_ == 2
        else ((y - 16) / 219, (cb - 128) / 224, (cr - 128) / 224)
    )
    r, b = light + 2 * (1 - red) * reds, light + 2 * (1 - blue) * blues
    wanted = np.clip([r, (light - red * r - blue * b) / (1 - red - blue), b], 0, 1) * 255
    planes = np.array([[[y]], [[cb]], [[cr]]], dtype=np.uint8)
    found = rgb_of(rgb_rule(Colour(range=range_, matrix=matrix), height), planes)[0, 0]
    assert np.abs(found - wanted).max() <= 0.51


def test_a_picture_without_a_surface_is_refused() -> None:
    """NVDEC has no RGB format, so an RGB picture is refused; the host can scale it."""
    with pytest.raises(Unsupported, match="fits no GPU surface") as caught:
        ExactScaler(fake_tensor("x", (1, 3, 4, 4)), None).scaled(VideoFrame(8, 8, "rgb24"))
    assert "--dla-input host" in caught.value.next_step

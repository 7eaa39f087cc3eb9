"""One device's NVENC: its capabilities, queried once and compared with the settings, and its encoders, counted."""

from dataclasses import replace
from fractions import Fraction

import pytest

from codecfleet.actors.encode.nvenc_settings import NvencSettings, Qp, RateMode, TuningInfo
from codecfleet.actors.encode.settings import Codec
from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.actors.nvidia.cuda.memory import MemoryBudget
from codecfleet.actors.nvidia.nvenc.device import NvencDevice
from codecfleet.actors.settle.nvenc import EncoderCapabilities
from codecfleet.actors.surfaces.formats import SurfaceFormat
from codecfleet.errors import DeviceMemory, EngineUnfit, SessionLimit, Unsupported
from codecfleet.testing.nvidia.fake_cuda import CONTEXT, FakeCudaDriver
from codecfleet.testing.nvidia.fake_nvenc import FakeNvenc
from tests.device.conversion_cases import FORMATS

SETTINGS = NvencSettings(bitrate=1_000_000, fps=Fraction(25), bf=2)
SIZE = (128, 96)
NV12 = FORMATS["yuv420p"]


def test_capabilities_are_asked_once_a_codec() -> None:
    """Each query makes a CUDA context, so each codec is queried only once, however many sessions follow."""
    package = FakeNvenc()
    device = NvencDevice(package)
    for _ in range(3):
        device.open(SETTINGS, NV12, *SIZE, from_host=True).close()
    assert package.asked == ["h264"]
    assert device.capabilities(Codec.HEVC).b_frames_max
    assert package.asked == ["h264", "hevc"]


def test_a_segment_gets_an_encoder_of_its_own() -> None:
    """Every encoder has its own rate control; the driver has no encoder left after its session is closed."""
    package = FakeNvenc(sessions_max=1)
    device = NvencDevice(package)
    for number in range(3):
        encoder = device.open(SETTINGS, NV12, *SIZE, from_host=True)
        assert (device.counts.open, device.counts.made, package.open_sessions) == (1, number + 1, 1)
        encoder.close()
        encoder.close()
        assert (device.counts.open, package.open_sessions) == (0, 0)


def test_the_encoder_is_made_on_the_visible_device_with_the_workers_handles() -> None:
    """The encoder gets the one visible GPU (number 0) and the worker's context, and nothing that was not requested."""
    package = FakeNvenc()
    device = NvencDevice(package, cuda=Cuda(FakeCudaDriver()))
    device.open(SETTINGS, FORMATS["yuv420p10le"], *SIZE, from_host=False)
    (made,) = package.made
    assert (made["gpu_id"], made["cudacontext"]) == (0, CONTEXT)
    assert (made["width"], made["height"], made["fmt"], made["from_host"]) == (128, 96, "P010", False)
    NvencDevice(package).open(SETTINGS, NV12, *SIZE, from_host=True)
    assert "cudacontext" not in package.made[1]


@pytest.mark.parametrize(
    ("lacking", "settings", "surface", "named"),
    [
        ({"support_10bit_encode": 0}, SETTINGS, FORMATS["yuv420p10le"], "10-bit"),
        ({"support_yuv444_encode": 0}, SETTINGS, FORMATS["yuv444p"], "4:4:4"),
        ({"support_yuv422_encode": 0}, SETTINGS, FORMATS["yuv422p"], "4:2:2"),
        ({"num_max_bframes": 1}, SETTINGS, NV12, "2 B pictures"),
        ({"support_lookahead": 0}, replace(SETTINGS, lookahead=8), NV12, "look-ahead"),
        ({"support_temporal_aq": 0}, replace(SETTINGS, temporalaq=True), NV12, "temporal"),
        ({"support_multiple_ref_frames": 0}, replace(SETTINGS, numrefl0=2), NV12, "reference"),
        ({"support_custom_vbv_buf_size": 0}, replace(SETTINGS, vbvbufsize=9), NV12, "buffer"),
        ({"supported_ratecontrol_modes": 1}, replace(SETTINGS, rc=RateMode.CBR), NV12, "cbr"),
        (
            {"support_lossless_encode": 0},
            NvencSettings(rc=RateMode.CONSTQP, constqp=Qp.same(0), tuning_info=TuningInfo.LOSSLESS),
            NV12,
            "lossless",
        ),
        ({"width_max": 64}, SETTINGS, NV12, "128x96"),
        ({"height_min": 128}, SETTINGS, NV12, "128x96"),
    ],
)
def test_what_the_device_lacks_is_named_before_an_encoder_is_made(
    lacking: dict[str, int], settings: NvencSettings, surface: SurfaceFormat, named: str
) -> None:
    """Each requirement of the settings is compared with the driver's answers."""
    package = FakeNvenc(capabilities={"h264": lacking})
    with pytest.raises(EngineUnfit, match=named):
        NvencDevice(package).open(settings, surface, *SIZE, from_host=True)
    assert not package.made
    NvencDevice(FakeNvenc()).capabilities(Codec.H264).check(settings, surface, *SIZE)


def test_no_encoder_and_no_such_codec_say_so() -> None:
    """A GPU without NVENC, or without AV1, is unfit."""
    with pytest.raises(EngineUnfit, match="no encoder"):
        NvencDevice(FakeNvenc(faults={"nvEncOpenEncodeSessionEx": 2})).capabilities(Codec.H264)
    with pytest.raises(EngineUnfit, match="no av1 encoder"):
        NvencDevice(FakeNvenc(capabilities={"h264": {}})).capabilities(Codec.AV1)


def test_what_no_nvenc_does_is_refused_without_asking_the_device() -> None:
    """The package does not get sizes and formats that it would misread."""
    package = FakeNvenc()
    with pytest.raises(Unsupported, match="65x64"):
        NvencDevice(package).open(SETTINGS, NV12, 65, 64, from_host=True)
    assert not package.asked


def test_a_capability_that_the_package_does_not_name_is_not_there() -> None:
    """Older builds of the package report fewer capabilities; missing ones count as absent."""
    silent = EncoderCapabilities(Codec.H264, {"width_max": 4096})
    assert not silent.has("yuv422_encode")
    assert silent.b_frames_max == 0
    silent.check(replace(SETTINGS, bf=0), NV12, *SIZE)


def test_encoders_take_of_the_devices_budget() -> None:
    """An open encoder counts in the budget; above the budget no encoder is opened, and the driver is not asked."""
    package = FakeNvenc()
    budget = MemoryBudget(150 << 20)
    device = NvencDevice(package, budget=budget)
    encoder = device.open(SETTINGS, NV12, *SIZE, from_host=True)
    assert 96 << 20 < budget.taken_bytes < 100 << 20
    with pytest.raises(DeviceMemory, match="are in use"):
        device.open(SETTINGS, NV12, *SIZE, from_host=True)
    assert (len(package.made), device.counts.open) == (1, 1)
    encoder.close()
    encoder.close()
    assert budget.taken_bytes == 0
    device.open(SETTINGS, NV12, *SIZE, from_host=True).close()


def test_an_encoder_that_the_driver_refuses_takes_nothing() -> None:
    """A refusal does not change the budget."""
    budget = MemoryBudget(1 << 30)
    device = NvencDevice(FakeNvenc(sessions_max=0), free_bytes=lambda: 1 << 40, budget=budget)
    with pytest.raises(SessionLimit):
        device.open(SETTINGS, NV12, *SIZE, from_host=True)
    assert budget.taken_bytes == 0

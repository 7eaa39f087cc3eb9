"""Opening a GPU that may be missing, and querying the capabilities of its NVDEC."""

import importlib.util
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from av.video.frame import VideoFrame

from codecfleet.actors.decode.decoding import DecodeTally, PictureDecoder
from codecfleet.actors.decode.nvdec_support import CODECS
from codecfleet.actors.decode.picture_hash import picture_hash
from codecfleet.actors.device.interface import SessionCounts
from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.actors.nvidia.gpu import Gpu, OpenedGpu, assemble_gpu, imported, open_gpu
from codecfleet.actors.nvidia.nvdec.decoder import NvdecCapabilities
from codecfleet.actors.nvidia.nvdec.session import SessionKey, session_bytes
from codecfleet.actors.surfaces.formats import surface_format
from codecfleet.errors import (
    CodecfleetError,
    DeviceError,
    DeviceLost,
    DeviceMemory,
    EngineBusy,
    EngineFailed,
    EngineUnfit,
    UsageError,
)
from codecfleet.testing.clips import Clip, constant_times, make_clip
from codecfleet.testing.nvidia.fake_cuda import FakeCudaDriver
from codecfleet.testing.nvidia.fake_nvdec import FakeNvdec

from .nvdec.test_nvdec_decoder import opened


def key(codec: str = "hevc", pix_fmt: str = "yuv420p", width: int = 64, height: int = 64) -> SessionKey:
    """Return the key of a session."""
    surface = surface_format(pix_fmt)
    assert surface is not None
    return SessionKey(codec, pix_fmt, surface, width, height)


@pytest.fixture
def device() -> FakeNvdec:
    """A device."""
    return FakeNvdec(FakeCudaDriver())


def capabilities(device: FakeNvdec) -> NvdecCapabilities:
    """Return who asks it."""
    return NvdecCapabilities(device, Cuda(device.driver))


@pytest.mark.parametrize(
    ("pix_fmt", "numbers"),
    [("yuv420p", (1, 8)), ("yuv420p10le", (1, 10)), ("yuv422p12le", (2, 12)), ("yuv444p10le", (3, 10))],
)
@pytest.mark.parametrize("codec", sorted(CODECS))
def test_the_driver_is_asked_in_its_own_numbers(
    device: FakeNvdec, codec: str, pix_fmt: str, numbers: tuple[int, int]
) -> None:
    """The package is asked with the SDK's numbers of codec, sampling and depth, once for all sizes."""
    asked = capabilities(device)
    for side in (64, 128, 64):
        assert asked.unsupported_reason(key(codec, pix_fmt, side, side)) == ""
    assert device.caps_asked == [(CODECS[codec], *numbers)]


@pytest.mark.parametrize(
    ("width", "height", "fits"),
    [(48, 48, True), (8192, 8192, True), (46, 64, False), (64, 46, False), (8194, 64, False), (64, 8194, False)],
)
def test_sizes_are_within_the_devices(device: FakeNvdec, width: int, height: int, *, fits: bool) -> None:
    """Each side must be within the device's limits; the reason names both limits and the size of the picture."""
    reason = capabilities(device).unsupported_reason(key(width=width, height=height))
    expected = f"this GPU's NVDEC decodes hevc from 48x48 to 8192x8192, not {width}x{height}"
    assert reason == ("" if fits else expected)


def test_what_it_does_not_support_is_named(device: FakeNvdec) -> None:
    """A codec that the device has no engine for is refused by name."""
    device.supported = frozenset({"h264"})
    reason = capabilities(device).unsupported_reason(key("av1", "yuv420p10le"))
    assert reason == "this GPU's NVDEC decodes no av1 4:2:0 with 10 bits"


@pytest.mark.parametrize(("code", "kind"), [(2, DeviceMemory), (999, DeviceLost), (1, DeviceError)])
def test_a_question_may_fail(device: FakeNvdec, code: int, kind: type[DeviceError]) -> None:
    """A failed query is repeated next time."""
    device.caps_code = code
    asked = capabilities(device)
    with pytest.raises(kind, match=str(code)):
        asked.unsupported_reason(key())
    device.caps_code = 0
    assert asked.unsupported_reason(key()) == ""


def _gpu(device: FakeNvdec) -> OpenedGpu:
    return assemble_gpu(Cuda(device.driver), device, None, lambda: device.wrong_pictures)


class Opening:
    """Opens a GPU, or fails; counts the attempts."""

    def __init__(self, device: FakeNvdec, *errors: CodecfleetError) -> None:
        self._device = device
        self._errors = list(errors)
        self.times = 0
        self._lock = threading.Lock()

    def __call__(self) -> OpenedGpu:
        """Open it."""
        with self._lock:
            self.times += 1
        if self._errors:
            raise self._errors.pop(0)
        return _gpu(self._device)


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short clip."""
    return make_clip(tmp_path_factory.mktemp("clips") / "clip.mkv", Clip(times=constant_times(6)))


def _decode(gpu: Gpu, clip: Path) -> Iterator[bytes]:
    return _decoded(gpu.pictures, clip)


def _decoded(pictures: PictureDecoder[VideoFrame], clip: Path) -> Iterator[bytes]:
    with opened(clip) as (track, packets):
        for _, picture in pictures.decode(track, iter(packets), DecodeTally()):
            yield picture_hash(picture.pts or 0, picture).digest


def test_it_is_opened_once_and_late(device: FakeNvdec, clip: Path) -> None:
    """The GPU is opened at the first decode, once for all callers."""
    gpu = Gpu(opening := Opening(device))
    assert opening.times == 0
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: list(_decode(gpu, clip)), range(8)))
    assert opening.times == 1
    assert all(each == found[0] for each in found)
    assert len(found[0]) == 6


def test_a_refusal_is_remembered(device: FakeNvdec, clip: Path) -> None:
    """Every caller gets the reason for a missing package, without another try."""
    gpu = Gpu(opening := Opening(device, EngineUnfit("PyNvVideoCodec cannot be used here: no module")))
    for _ in range(3):
        with pytest.raises(EngineUnfit, match="PyNvVideoCodec cannot be used here: no module"):
            list(_decode(gpu, clip))
    assert opening.times == 1


@pytest.mark.parametrize("kind", [DeviceMemory, DeviceLost, EngineFailed])
def test_other_failures_are_tried_again(device: FakeNvdec, clip: Path, kind: type[DeviceError]) -> None:
    """A passing error, such as full memory, is not remembered."""
    gpu = Gpu(opening := Opening(device, kind("not now")))
    with pytest.raises(kind, match="not now"):
        list(_decode(gpu, clip))
    assert len(list(_decode(gpu, clip))) == 6
    assert opening.times == 2


def _decode_without_blocking(gpu: Gpu, clip: Path) -> list[bytes]:
    with gpu.non_blocking_pictures() as pictures:
        return list(_decoded(pictures, clip))


def test_non_blocking_callers_do_not_wait_for_a_gpu_that_is_being_opened(device: FakeNvdec, clip: Path) -> None:
    """Callers with a fallback get an error at once while the GPU is opened (once), and a decoder afterwards."""
    may_open, opening = threading.Event(), Opening(device)

    def open_() -> OpenedGpu:
        assert may_open.wait(30)
        return opening()

    gpu = Gpu(open_)
    for _ in range(8):
        with pytest.raises(EngineBusy, match="still being opened"):
            _decode_without_blocking(gpu, clip)
    assert gpu.use() == SessionCounts()
    may_open.set()
    waited = list(_decode(gpu, clip))
    assert _decode_without_blocking(gpu, clip) == waited
    assert opening.times == 1
    gpu.close()
    assert (gpu.use().decoding, gpu.opened().budget.taken_bytes) == (0, 0)


@pytest.mark.parametrize("error", [DeviceLost("it fell off the bus"), UsageError("there is no such device", "-L")])
def test_a_non_blocking_caller_gets_the_error_of_opening(device: FakeNvdec, clip: Path, error: CodecfleetError) -> None:
    """If opening fails, the next non-blocking caller gets the error, once; then opening is tried again."""
    gpu = Gpu(opening := Opening(device, error))
    with pytest.raises(EngineBusy):
        _decode_without_blocking(gpu, clip)
    assert gpu._warming is not None
    gpu._warming.join(30)
    with pytest.raises(type(error), match=error.message):
        _decode_without_blocking(gpu, clip)
    with pytest.raises(EngineBusy):
        _decode_without_blocking(gpu, clip)
    gpu._warming.join(30)
    assert len(_decode_without_blocking(gpu, clip)) == 6
    assert opening.times == 2


def test_a_session_takes_of_the_devices_budget(device: FakeNvdec, clip: Path) -> None:
    """Idle sessions count in the budget, which is nine tenths of the memory that was free at opening."""
    gpu = Gpu(Opening(device))
    assert len(list(_decode(gpu, clip))) == 6
    budget = gpu.opened().budget
    assert budget.total_bytes == int(0.9 * (1 << 30))
    assert budget.taken_bytes == session_bytes(key("h264", height=48))
    assert gpu.use() == SessionCounts(sessions_made=1, decoding=0)


def test_a_missing_package_is_named() -> None:
    """The error names the package to install."""
    with pytest.raises(
        EngineUnfit, match="Nothing cannot be used here: No module named 'codecfleet_nothing'"
    ) as caught:
        imported("codecfleet_nothing", "Nothing")
    assert "codecfleet[nvidia]" in caught.value.next_step


def test_a_machine_without_nvdec_says_why() -> None:
    """Without a driver or packages, opening raises one of our errors, with the reason in one line."""
    if importlib.util.find_spec("pynvml") is not None and Path("/proc/driver/nvidia/version").exists():
        pytest.skip("this machine has a driver")
    with pytest.raises(EngineUnfit, match="cannot be used here: ") as caught:
        open_gpu()
    assert "\n" not in caught.value.message

"""A simulated GPU of a worker: codecfleet's real sessions on fakes of the driver and of PyNvVideoCodec."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from av.video.frame import VideoFrame

from ...actors.decode.decoding import PictureDecoder
from ...actors.nvidia.cuda import BufferPool, Cuda
from ...actors.nvidia.gpu import Gpu, OpenedGpu, assemble_gpu
from .fake_cuda import FakeCudaDriver
from .fake_nvdec import FakeNvdec
from .fake_nvenc import FakeNvenc
from .host_kernels import ReferenceConverter, ReferencePacking, ReferenceTensors


def drop_idle(pool: BufferPool) -> None:
    """Free all memory that is not in use."""
    while pool.drop_oldest():
        pass


class FakePackage:
    """``PyNvVideoCodec``: names are looked up in the fake decoder first, then in the fake encoder."""

    def __init__(self, decoder: FakeNvdec, encoder: FakeNvenc) -> None:
        self._parts = (decoder, encoder)

    def __getattr__(self, name: str) -> object:
        for part in self._parts:
            if hasattr(part, name):
                found: object = getattr(part, name)
                return found
        raise AttributeError(name)


@dataclass
class FakeDevice:
    """A GPU with a fake driver and fake libraries, which tests can break."""

    driver: FakeCudaDriver = field(default_factory=FakeCudaDriver)
    encoder: FakeNvenc = field(default_factory=FakeNvenc)

    def __post_init__(self) -> None:
        self.decoder = FakeNvdec(self.driver)
        self.package = FakePackage(self.decoder, self.encoder)
        self.gpu = Gpu(self.opened)

    def opened(self) -> OpenedGpu:
        converter = ReferenceConverter(lambda stream, work: self.driver.put(stream.number, work))
        packing = ReferencePacking(lambda stream, work: self.driver.put(stream.number, work))
        tensors = ReferenceTensors(lambda stream, work: self.driver.put(stream.number, work))
        return assemble_gpu(
            Cuda(self.driver),
            self.package,
            None,
            lambda: self.decoder.wrong_pictures,
            converter=lambda: converter,
            packing=lambda: packing,
            tensors=lambda: tensors,
        )


class _GpuWith(Gpu):
    """A GPU with the given decoder, which writes to host memory."""

    def __init__(self, pictures: PictureDecoder[VideoFrame]) -> None:
        super().__init__(FakeDevice().opened)
        self.pictures = pictures

    @contextmanager
    def non_blocking_pictures(self) -> Iterator[PictureDecoder[VideoFrame]]:
        yield self.pictures


def device_with(pictures: PictureDecoder[VideoFrame]) -> Gpu:
    """Return the GPU of a worker, which decodes into host memory in the same way as ``pictures``."""
    return _GpuWith(pictures)

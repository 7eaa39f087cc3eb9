"""The GPU of a worker process: its decoders and encoders, opened once on first use."""

import gc
import importlib
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Generic, TypeVar

from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame

from ...errors import CodecfleetError, EngineBusy, EngineUnfit
from ..decode.decoding import Decoded, DecodeTally, PictureDecoder
from ..decode.nvdec_options import PLAIN, NvdecOptions
from ..decode.nvdec_support import CodedTrack
from ..decode.packet_decoder import PacketDecoder, PacketDecoding
from ..decode.wanted import WantedPictures
from ..device.interface import SESSIONS_OPENING, SessionCounts, WorkerDevice
from ..encode.settings import Codec, EncoderSettings
from ..settle.nvenc import EncoderCapabilities
from ..surfaces.conversion import Conversion
from ..surfaces.device_frame import DevicePicture
from .convert.converting import Converter, SurfaceConverter
from .convert.device_pictures import CudaConversion, CudaMover, PicturePool, SurfaceKeeper
from .convert.packing import CompiledPacking, CudaPacker, PackingKernels
from .convert.tensor_kernel import CompiledTensors, TensorKernels
from .convert.tensors import CudaTensors, free_idle
from .convert.unpacking import PictureFetcher, Unpacker
from .cuda.context import Cuda
from .cuda.kernels import KernelsT, compiled
from .cuda.memory import USABLE_PART, MemoryBudget, PinnedMemory
from .nvdec.decoder import NvdecCapabilities, NvdecDecoder
from .nvdec.pool import WAIT_ADVICE, NvdecPool, SessionRequest
from .nvdec.session import NvdecSession, SessionKey
from .nvenc.device import NvencDevice
from .nvenc.session import NvencSession
from .stdout_monitor import CStdoutTap, StdoutTap, wrong_picture_counter

_IDLE_SESSIONS: Final = 32
"""How many idle decoder sessions a worker keeps: more than the engines of a GPU can use at once."""
_SESSIONS_BESIDE: Final = 16
"""How many decoder sessions are enough for a user's program, however many films it reads: they fill a GPU's engines.

Each further session would only be opened and closed again, which takes a tenth of a second.
"""
_SWITCH_INTERVAL_S: Final = 1e-4
"""How often a thread must offer the GIL. A dozen threads exchange it thousands of times a second: Python's default of 5
ms costs a quarter of the speed.
"""
_SHARED_BYTES: Final = 16 << 30
"""A GPU with this much free memory may be used by two codecfleet processes; smaller GPUs have few engines."""
_ALONE, _SHARED = 1.0, 0.5
_FIX: Final = 'Run pip install "codecfleet[nvidia]"; codecfleet doctor shows what else is missing.'

PictureT = TypeVar("PictureT", bound=Decoded)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedGpu:
    """Everything that is open on a GPU: one context, one pool of decoder sessions, one pool for each kind of memory."""

    cuda: Cuda
    pool: NvdecPool
    pictures: NvdecDecoder[VideoFrame]
    surfaces: NvdecDecoder[DevicePicture]
    nvenc: NvencDevice
    budget: MemoryBudget  # the device's free memory that sessions and buffers may take
    pinned: PinnedMemory
    memory: PicturePool
    converter: Callable[[], SurfaceConverter]
    packing: Callable[[], PackingKernels]
    tensors: Callable[[], TensorKernels]
    converts: bool  # whether ``converter`` has kernels
    is_shared: bool = False  # whether half of the memory is left to a second process of the worker
    movers: deque[CudaMover] = field(default_factory=deque)
    """The idle movers: opening a stream takes longer than copying a picture."""
    tensor_makers: deque[CudaTensors] = field(default_factory=deque)
    """The idle makers of tensors, with their prepared kernels."""


class Gpu(WorkerDevice):
    """A GPU of this process. The first caller opens it with ``open_``, and gets the error if opening fails."""

    def __init__(self, open_: Callable[[], OpenedGpu] | None = None) -> None:
        self._open = open_ or open_gpu
        self._lock = threading.Lock()
        self._opened: OpenedGpu | None = None
        self._refusal = ""
        self._warming: threading.Thread | None = None
        self._failure: CodecfleetError | None = None
        self.pictures: PictureDecoder[VideoFrame] = _Late(lambda: self.opened().pictures)
        self.surfaces: PictureDecoder[DevicePicture] = _Late(lambda: self.opened().surfaces)

    @contextmanager
    def non_blocking_pictures(self) -> Iterator[PictureDecoder[VideoFrame]]:
        """Return a decoder into host memory, for a caller with a fallback, without waiting for the GPU to open."""
        request = SessionRequest()
        try:
            yield _Late(lambda: replace(self._opened_soon().pictures, request=request))
        finally:
            request.is_over = True

    def decoder_with(
        self, options: NvdecOptions, *, on_device: bool
    ) -> PictureDecoder[VideoFrame] | PictureDecoder[DevicePicture]:
        """Return a decoder whose sessions have ``options``."""
        if options == PLAIN:
            return self.surfaces if on_device else self.pictures
        return self.packet_decoder(options, on_device=on_device)

    def packet_decoder(
        self, options: NvdecOptions, *, on_device: bool
    ) -> PacketDecoder[VideoFrame] | PacketDecoder[DevicePicture]:
        """Return a decoder that takes packets one by one, and whose sessions have ``options``."""
        if on_device:
            return _Late(lambda: replace(self.opened().surfaces, options=options))
        return _Late(lambda: replace(self.opened().pictures, options=options))

    def warm_up(self) -> None:
        """Open the GPU now, in a thread: packages, context and kernel take seconds."""
        if self._warming is None or not self._warming.is_alive():
            self._warming = threading.Thread(target=self._tried, name="codecfleet-gpu", daemon=True)
            self._warming.start()

    def encoder_capabilities(self, codec: Codec) -> EncoderCapabilities:
        """Return the capabilities of the GPU's NVENC."""
        return self.opened().nvenc.capabilities(codec)

    def encoder_package(self) -> str:
        """Return PyNvVideoCodec's version."""
        return str(self.opened().nvenc.package.__version__)

    def converts(self) -> bool:
        """Return whether the GPU can scale and convert pictures."""
        return self.opened().converts

    def open_encoder(self, settings: EncoderSettings, *, from_host: bool, stream: int | None = None) -> NvencSession:
        """Open a session on the GPU's NVENC."""
        return NvencSession(self.opened().nvenc, settings, from_host=from_host, stream=stream)

    def open_mover(self) -> CudaMover:
        """Return a mover between host and device, for one thread; an idle mover is reused."""
        gpu = self.opened()
        try:
            return gpu.movers.pop()
        except IndexError:
            return CudaMover(gpu.cuda, gpu.pinned, gpu.memory, gpu.movers)

    @property
    def ordinal(self) -> int:
        """The device's CUDA ordinal in this process."""
        return self.opened().cuda.ordinal

    def open_conversion(self, conversion: Conversion, pix_fmt: str) -> CudaConversion:
        """Open a conversion, which one thread at a time may use."""
        gpu = self.opened()
        return CudaConversion(gpu.cuda, gpu.memory, conversion, gpu.converter(), pix_fmt, budget=gpu.budget)

    def open_packer(self) -> CudaPacker:
        """Open a packer, which one thread at a time may use."""
        gpu = self.opened()
        return CudaPacker(gpu.cuda, gpu.memory, gpu.packing(), gpu.budget)

    def open_tensors(self) -> CudaTensors:
        """Return a maker of tensors, for one thread; an idle maker is reused."""
        gpu = self.opened()
        try:
            return gpu.tensor_makers.pop()
        except IndexError:
            return CudaTensors(gpu.cuda, gpu.memory, gpu.tensors(), gpu.budget, idle=gpu.tensor_makers)

    def opened(self) -> OpenedGpu:
        """Return the opened GPU, opening it the first time.

        Raises:
            EngineUnfit: the GPU cannot be used here; later calls raise this error again.
            DeviceError: the driver gives no context at the moment.
        """
        with self._lock:
            if self._refusal:
                raise EngineUnfit(self._refusal, _FIX)
            if self._opened is None:
                try:
                    self._opened = self._open()
                except EngineUnfit as error:
                    self._refusal = error.message
                    raise
            return self._opened

    def free_bytes(self) -> int:
        """Return how much of the GPU's memory is free."""
        return self.opened().cuda.free_bytes()

    @property
    def is_shared(self) -> bool:
        """Whether the GPU is open, and this process leaves room for a second process."""
        gpu = self._opened
        return gpu is not None and gpu.is_shared

    def use(self) -> SessionCounts:
        """Return the GPU's session counts without waiting, even while it is being opened."""
        gpu = self._opened
        if gpu is None:
            return SessionCounts()
        counts, nvenc = gpu.pool.counts, gpu.nvenc.counts
        return SessionCounts(counts.made + nvenc.made, counts.in_use_now, nvenc.open, nvenc.refusals, nvenc.refused_at)

    def close(self) -> None:
        """Close the GPU's idle sessions, and wait for a session that is being opened."""
        with self._lock:
            gpu = self._opened
        if gpu is not None:
            gpu.pool.close()

    def _opened_soon(self) -> OpenedGpu:
        if self._opened is None and not self._refusal:
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure
            self.warm_up()
            raise EngineBusy(SESSIONS_OPENING, WAIT_ADVICE)
        return self.opened()

    def _tried(self) -> None:
        try:
            self.opened()
        except CodecfleetError as error:
            self._failure = error  # raised in the next caller that does not wait; callers that wait try again


class _Late(PacketDecoder[PictureT]):
    """A decoder that opens its device on first use."""

    name = "nvdec"

    def __init__(self, open_: Callable[[], PacketDecoder[PictureT]]) -> None:
        self._open = open_

    def begin(
        self,
        coded: CodedTrack,
        context: VideoCodecContext,
        tally: DecodeTally,
        wanted: WantedPictures | None = None,
        *,
        at_once: bool = False,
    ) -> PacketDecoding[PictureT]:
        """Open the GPU if it is not open yet, and begin a series of packets."""
        return self._open().begin(coded, context, tally, wanted, at_once=at_once)


def open_gpu(*, is_second: bool = False) -> OpenedGpu:
    """Open the one device that CUDA_VISIBLE_DEVICES shows, and monitor standard output from then on.

    ``is_second``: another process of the same worker uses the device too, so this process takes only half of the
    memory.

    Raises:
        EngineUnfit: a package is missing, or does not load with this driver.
        DeviceError: the driver gives no context.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    # The first count starts the monitoring, so it must precede any decoding.
    opened = _opened(wrong_picture_counter(StdoutTap), lambda free_bytes: is_second or free_bytes >= _SHARED_BYTES)
    # Modules are never freed; scanning them in every garbage collection costs a tenth of the speed.
    gc.collect()
    gc.freeze()
    return opened


_wrong_pictures: Final = wrong_picture_counter(CStdoutTap)
"""Counts wrong pictures in a user's program, for all GPUs together: there is only one standard output."""


def open_beside(device: int | str | None = None, context: int | None = None) -> OpenedGpu:
    """Open a device, named as for ``Cuda``, possibly in a user's program. Raises the errors of ``open_gpu``.

    The only change in a user's program is that CUDA_DEVICE_MAX_CONNECTIONS is set, if it was unset. ``UsageError`` if
    there is no such device.
    """
    return _opened(_wrong_pictures, lambda _: False, device, context, _SESSIONS_BESIDE)


def _opened(
    wrong_pictures: Callable[[], int],
    is_shared: Callable[[int], bool],
    device: int | str | None = None,
    context: int | None = None,
    enough: int | None = None,
) -> OpenedGpu:
    # Set before CUDA starts. With the default of 8, the streams of a dozen sessions wait for each other in shared
    # queues.
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    cuda = Cuda(imported("cuda.bindings.driver", "cuda-python"), device, context)
    package = imported("PyNvVideoCodec", "PyNvVideoCodec")
    shared = is_shared(cuda.free_bytes())
    unpacker, _ = compiled(Unpacker, cuda)
    return assemble_gpu(cuda, package, unpacker, wrong_pictures, is_shared=shared, sessions_enough=enough)


def assemble_gpu(
    cuda: Cuda,
    package: Any,
    unpacker: Unpacker | None,
    wrong_pictures: Callable[[], int],
    converter: Callable[[], SurfaceConverter] | None = None,
    *,
    packing: Callable[[], PackingKernels] | None = None,
    tensors: Callable[[], TensorKernels] | None = None,
    is_shared: bool = False,
    sessions_enough: int | None = None,
) -> OpenedGpu:
    """Make a GPU's memory pools, decoders and encoders.

    If ``unpacker`` is None, the host splits the planes. ``wrong_pictures`` returns how many wrong pictures were
    reported so far. If ``converter``, ``packing`` or ``tensors`` is None, the device's kernels do that work.
    ``is_shared`` leaves half of all memory to another process. While ``sessions_enough`` decoder sessions are in use,
    callers wait before more are opened.
    """
    part = _SHARED if is_shared else _ALONE
    budget = MemoryBudget(int(cuda.free_bytes() * USABLE_PART * part))
    # Pictures are reclaimed before sessions: a buffer is cheap to allocate again, but opening a session takes 0.1 s.
    pinned, memory = PinnedMemory(cuda, part=part), PicturePool(cuda, budget=budget)
    pool = NvdecPool(partial(NvdecSession, package, cuda), _IDLE_SESSIONS, budget, enough=sessions_enough)
    cannot = NvdecCapabilities(package, cuda).unsupported_reason

    def to_host(key: SessionKey) -> PictureFetcher:
        size = (key.width, key.height)
        return PictureFetcher(cuda, pinned, unpacker, format_=key.surface, size=size, pix_fmt=key.pix_fmt)

    tensor_makers: deque[CudaTensors] = deque()
    budget.reclaim_from(partial(free_idle, tensor_makers))
    return OpenedGpu(
        cuda=cuda,
        pool=pool,
        pictures=NvdecDecoder(pool, to_host, cannot, wrong_pictures),
        surfaces=NvdecDecoder(pool, partial(SurfaceKeeper, cuda, memory), cannot, wrong_pictures),
        nvenc=NvencDevice(package, free_bytes=cuda.free_bytes, cuda=cuda, budget=budget),
        budget=budget,
        pinned=pinned,
        memory=memory,
        converter=converter or _CompiledOnce(cuda, Converter),
        packing=packing or _CompiledOnce(cuda, CompiledPacking),
        tensors=tensors or _CompiledOnce(cuda, CompiledTensors),
        tensor_makers=tensor_makers,
        # If this kernel compiles, the others will too; they take longer, and are compiled on first use.
        converts=converter is not None or unpacker is not None,
        is_shared=is_shared,
    )


class _CompiledOnce(Generic[KernelsT]):
    def __init__(self, cuda: Cuda, make: Callable[[Any, Cuda], KernelsT]) -> None:
        self._cuda = cuda
        self._make = make
        self._lock = threading.Lock()
        self._compiled: KernelsT | None = None

    def __call__(self) -> KernelsT:
        with self._lock:
            if self._compiled is None:
                self._compiled, reason = compiled(self._make, self._cuda)
                if self._compiled is None:
                    raise EngineUnfit(reason, "Install NVRTC, or keep the size and the pixel format as they are.")
            return self._compiled


def imported(module: str, package: str) -> Any:
    """Import a package; ``EngineUnfit`` if it is missing, or does not load with this driver."""
    try:
        return importlib.import_module(module)
    except (ImportError, RuntimeError) as error:
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise EngineUnfit(f"{package} cannot be used here: {reason}", _FIX) from error

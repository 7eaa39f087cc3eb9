"""Makes tensors of pictures on the device, with the kernel of ``tensor_kernel``."""

from collections import OrderedDict, deque
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final

from ....errors import UsageError
from ...closing import undone_by
from ...media.values import Colour
from ...surfaces.device_frame import DevicePicture
from ...surfaces.formats import SurfaceFormat
from ...surfaces.frames_dlpack import CUDA, DeviceArray
from ...tensors.host_tensor import common_size
from ...tensors.tensor_format import ELEMENT_BYTES, TensorFormat
from ...tensors.tensor_maker import FrameGroup, TensorMaker
from ...tensors.tensor_memory import KINDS, checked, tensor_place
from ..cuda.context import Cuda
from ..cuda.device_memory import DevicePool
from ..cuda.memory import MemoryBudget
from .converting import upload
from .tensor_kernel import TensorKernels, TensorLaunch, TensorWork

if TYPE_CHECKING:
    from ...surfaces.frames import Frame

_KEPT_PLANS: Final = 16
_IDLE_MAKERS: Final = 4


class CudaTensors(TensorMaker):
    """Makes tensors on its own stream; the memory of the maker's weights is taken from ``budget``.

    ``close`` puts the maker into ``idle`` for reuse.
    """

    def __init__(
        self,
        cuda: Cuda,
        memory: DevicePool,
        kernels: TensorKernels,
        budget: MemoryBudget,
        idle: "deque[CudaTensors] | None" = None,
    ) -> None:
        self._cuda = cuda
        self._memory = memory
        self._kernels = kernels
        self._budget = budget
        self._idle = idle
        self._stream = cuda.stream()
        self._prepared: OrderedDict[TensorWork, tuple[TensorLaunch, int, int]] = OrderedDict()

    def make(
        self, frames: FrameGroup, format_: TensorFormat, out: object = None, places: Sequence[int] | None = None
    ) -> object:
        """Return a complete tensor of frames that are on this device."""
        frames = tuple(frames)
        if places is not None:
            of_place = dict(zip(places, frames, strict=True))
            frames = tuple(of_place[place] for place in range(len(frames)))
        shape = format_.shape(len(frames), common_size(frames, format_))
        pictures = [_on_device(frame) for frame in frames]
        with self._cuda.entered, self._cuda.watch.calling("CUDA", "making a tensor"):
            try:
                target, address, strides_bytes = self._target(out, format_, shape)
                first, *others = (step // format_.element_bytes for step in strides_bytes)
                order = (0, 1, 2) if format_.layout == "nchw" else (2, 0, 1)
                steps = first, others[order[0]], others[order[1]], others[order[2]]
                colours = [frame.format.colour for frame in frames]
                for (surface, size, colour), group in groupby(zip(pictures, colours, strict=True), _kind):
                    surfaces = [picture.address for picture, _ in group]
                    work = TensorWork(surface=surface, size=size, colour=colour, format=format_)
                    self._launch(work).begin(surfaces, address, steps, self._stream)
                    address += len(surfaces) * strides_bytes[0]
            finally:
                self._stream.wait()
        return target

    def close(self) -> None:
        """Put the maker into ``idle``, or free it if ``idle`` is None or full."""
        if self._idle is not None and len(self._idle) < _IDLE_MAKERS:
            self._idle.append(self)
        else:
            self.free()

    def free(self) -> None:
        """Free the maker's memory and its stream."""
        try:
            while self._prepared:
                self._forget_oldest()
        finally:
            self._stream.close()

    def _target(
        self, out: object, format_: TensorFormat, shape: tuple[int, ...]
    ) -> tuple[object, int, tuple[int, ...]]:
        item_bytes = ELEMENT_BYTES[format_.dtype]
        if out is None:
            strides = [item_bytes]
            for length in shape[:0:-1]:
                strides.insert(0, strides[0] * length)
            buffer = self._memory.acquire_for(self._stream, strides[0] * shape[0])
            array = DeviceArray(buffer.address, shape, item_bytes, buffer, KINDS[format_.dtype][0])
            return array, buffer.address, tuple(strides)
        place = checked(tensor_place(out, self._stream.number), format_, shape)
        if place.device[0] != CUDA or place.device[1] not in (-1, self._cuda.ordinal):
            message = f"out= is not on the CUDA device {self._cuda.ordinal}, where the frames are"
            raise UsageError(message, "Give memory of that device, or omit out=.")
        if place.stream is not None:
            self._cuda.wait_for(place.stream)
        return out, place.address, place.strides_bytes

    def _launch(self, work: TensorWork) -> TensorLaunch:
        if work not in self._prepared:
            while len(self._prepared) >= _KEPT_PLANS:
                self._stream.wait()  # kernels may still read the weights of the oldest entry
                self._forget_oldest()
            tables = work.tables()
            address = self._budget.spend(len(tables), partial(self._cuda.allocate, len(tables)))
            with undone_by(lambda: self._free(address, len(tables))):
                upload(self._cuda, address, tables)
                self._prepared[work] = self._kernels.prepare(work, address), address, len(tables)
        self._prepared.move_to_end(work)
        return self._prepared[work][0]

    def _forget_oldest(self) -> None:
        _, (_, address, size_bytes) = self._prepared.popitem(last=False)
        self._free(address, size_bytes)

    def _free(self, address: int, size_bytes: int) -> None:
        self._cuda.free(address)
        self._budget.give_back(size_bytes)


def free_idle(idle: deque[CudaTensors]) -> bool:
    """Free the tensor maker that has been idle longest; return whether there was one."""
    try:
        maker = idle.popleft()
    except IndexError:
        return False
    maker.free()
    return True


def _kind(picture: tuple[DevicePicture, Colour]) -> tuple[SurfaceFormat, tuple[int, int], Colour]:
    """Return the properties that all pictures of one launch share."""
    return picture[0].format, (picture[0].width, picture[0].height), picture[1]


def _on_device(frame: "Frame") -> DevicePicture:
    picture = frame.device_picture
    if picture is None:
        raise UsageError("a batch mixes frames on the host and on a device", 'Ask for place="host" or "device".')
    return picture

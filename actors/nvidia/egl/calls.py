"""CUDA's calls for EGL, and copies between the kinds of memory that hold EGL frames.

Source: CUDA Driver API, "EGL Interoperability" and cuMemcpy2D.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any, Final

import numpy as np
from av.video.frame import VideoFrame

from ....errors import DeviceError, EngineUnfit, UsageError
from ...media.values import Colour
from ...surfaces.device_frame import DevicePicture, DevicePlane
from ...surfaces.frames import plane_arrays
from ..convert.device_pictures import CudaMover, PicturePool
from ..cuda.context import Cuda, Stream, cuda_error
from ..cuda.memory import PinnedMemory
from ..gpu import imported
from .layout import EglLayout, stated_layout, surface_name

_ARRAY, _PITCH = 0, 1
_SEMIPLANAR: Final = 2


class EglMemory(IntEnum):
    """The kind of memory that a plane is in (CUmemorytype)."""

    HOST = 1
    DEVICE = 2
    ARRAY = 3


@dataclass(frozen=True, slots=True, eq=False)
class EglPlane:
    """One plane: the memory it is in, its address or CUarray, and its pitch."""

    memory: EglMemory
    address: Any
    pitch_bytes: int


Fill = Callable[[Sequence[EglPlane], Stream], None]
"""Writes a picture into a frame's planes in a CUDA stream; the picture's memory may change as soon as this returns."""


@dataclass(frozen=True, slots=True, eq=False)
class MappedFrame:
    """A frame as CUDA sees it: layout, stated colours, and the places of the planes in memory."""

    layout: EglLayout
    colour: Colour
    places: tuple[EglPlane, ...]


class EglCuda:
    """CUDA's calls for EGL on this process's device. Safe from any thread."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.cuda = Cuda(driver)
        self.pictures = PicturePool(self.cuda)
        self.pinned = PinnedMemory(self.cuda)
        self._turn = threading.Lock()
        self._mover: CudaMover | None = None

    def attempt(self, name: str, *arguments: object) -> tuple[int, Any]:
        """Call a function of the driver; return its code and its result (a tuple if there are several).

        ``EngineUnfit`` if this driver lacks the function, ``DeviceLost`` if the context is gone.
        """
        try:
            with self.cuda.entered, self.cuda.watch.calling("CUDA", name):
                code, *values = getattr(self.driver, name)(*arguments)
        except RuntimeError as error:  # the binding's own error: a function that this libcuda does not export
            reason = f"this driver has no {name}"
            raise EngineUnfit(reason, "Only Tegra's driver has all functions: docs/egl.md.") from error
        return int(code), values[0] if len(values) == 1 else tuple(values)

    def call(self, name: str, *arguments: object) -> Any:
        """Call a function of the driver; return its result.

        Raises the ``DeviceError`` that ``cuda_error`` makes from the code, if the call failed.
        """
        code, found = self.attempt(name, *arguments)
        if code:
            raise cuda_error(code, f"{name} failed with")
        return found

    def finish(self, stream: Stream) -> None:
        """Wait until a stream's work is done; ``DeviceError`` if it failed."""
        self.call("cuStreamSynchronize", stream.handle)

    def allocate(self, layout: EglLayout) -> tuple[EglPlane, ...]:
        """Allocate a frame's memory with ``cuMemAlloc``: the driver does not present memory from a pool (measured)."""
        address = int(self.call("cuMemAlloc", layout.size_bytes))
        return tuple(EglPlane(EglMemory.DEVICE, each.address, each.pitch_bytes) for each in layout.planes(address))

    def allocate_arrays(self, layout: EglLayout) -> tuple[EglPlane, ...]:
        """Allocate a frame's memory as CUDA arrays, one for each plane."""
        places: list[EglPlane] = []
        try:
            for row_bytes, rows in layout.plane_sizes:
                places.append(self._array(layout, row_bytes, rows, is_first=not places))
        except DeviceError:
            self.free(places)
            raise
        return tuple(places)

    def _array(self, layout: EglLayout, row_bytes: int, rows: int, *, is_first: bool) -> EglPlane:
        item, planes = layout.sample_bytes, len(layout.plane_sizes)
        in_pairs = planes == _SEMIPLANAR and not is_first
        channels = 2 if in_pairs else layout.channels
        wanted = self.driver.CUDA_ARRAY_DESCRIPTOR()
        wanted.Width, wanted.Height = row_bytes // (item * channels), rows
        # The unsigned integer formats of 8 and 16 bits have the numbers 1 and 2, which are also their sizes in bytes.
        wanted.Format, wanted.NumChannels = self.driver.CUarray_format(item), channels
        return EglPlane(EglMemory.ARRAY, self.call("cuArrayCreate", wanted), row_bytes)

    def free(self, places: Sequence[EglPlane]) -> None:
        """Free memory that ``allocate`` or ``allocate_arrays`` returned."""
        for number, place in enumerate(places):
            if place.memory is EglMemory.ARRAY:
                self.call("cuArrayDestroy", place.address)
            elif number == 0:
                self.call("cuMemFree", place.address)

    def frame_of(self, layout: EglLayout, places: Sequence[EglPlane]) -> Any:
        """Return CUDA's description of a frame (CUeglFrame)."""
        driver, found = self.driver, self.driver.CUeglFrame()
        is_array = places[0].memory is EglMemory.ARRAY
        found.width, found.height, found.depth = layout.width, layout.height, 0
        found.pitch, found.planeCount, found.numChannels = places[0].pitch_bytes, len(places), layout.channels
        found.frameType = driver.CUeglFrameType(_ARRAY if is_array else _PITCH)
        found.eglColorFormat = driver.CUeglColorFormat(layout.code)
        found.cuFormat = driver.CUarray_format(layout.sample_bytes)
        if is_array:
            found.frame.pArray = [*(each.address for each in places), *[driver.CUarray(0)] * (3 - len(places))]
        else:
            found.frame.pPitch = [*(each.address for each in places), *[0] * (3 - len(places))]
        return found

    def mapped(self, resource: Any, pix_fmt: str | None) -> MappedFrame:
        """Return the frame of an acquired or registered resource; ``pix_fmt`` overrides the format stated there.

        ``Unsupported`` if that format is not known here, ``DeviceError`` if the resource is not mapped.
        """
        frame = self.call("cuGraphicsResourceGetMappedEglFrame", resource, 0, 0)
        layout, colour = stated_layout(int(frame.eglColorFormat), int(frame.width), int(frame.height), pix_fmt)
        sizes = layout.plane_sizes
        if int(frame.frameType) == _ARRAY:
            # Read only one entry per plane: later entries are not initialised (measured).
            arrays = [self.driver.CUarray(int(each)) for each in frame.frame.pArray[: len(sizes)]]
            places = [EglPlane(EglMemory.ARRAY, each, size[0]) for each, size in zip(arrays, sizes, strict=True)]
        else:
            # Only the first plane's pitch is stated: narrower planes have a proportionally smaller pitch.
            pitches = [int(frame.pitch) * row_bytes // sizes[0][0] for row_bytes, _ in sizes]
            addresses = [int(each) for each in frame.frame.pPitch[: len(sizes)]]
            places = [EglPlane(EglMemory.DEVICE, each, pitch) for each, pitch in zip(addresses, pitches, strict=True)]
        return MappedFrame(layout, colour, tuple(places))

    def copy(self, layout: EglLayout, source: Sequence[EglPlane], target: Sequence[EglPlane], stream: Stream) -> None:
        """Begin to copy a frame's planes; the stream completes the copy."""
        for (row_bytes, rows), from_, to in zip(layout.plane_sizes, source, target, strict=True):
            copy = self.driver.CUDA_MEMCPY2D()
            copy.WidthInBytes, copy.Height = row_bytes, rows
            self._set(copy, "src", from_)
            self._set(copy, "dst", to)
            self.call("cuMemcpy2DAsync", copy, stream.handle)

    def _set(self, copy: Any, side: str, place: EglPlane) -> None:
        name = {EglMemory.HOST: "Host", EglMemory.DEVICE: "Device", EglMemory.ARRAY: "Array"}[place.memory]
        setattr(copy, f"{side}MemoryType", self.driver.CUmemorytype(place.memory))
        setattr(copy, f"{side}{name}", place.address)
        if place.memory is not EglMemory.ARRAY:
            setattr(copy, f"{side}Pitch", place.pitch_bytes)

    def copied_to_device(self, frame: MappedFrame, stream: Stream) -> DevicePicture | None:
        """Return a complete copy of a frame on the device; None if device pictures cannot have its layout."""
        surface = frame.layout.surface
        if surface is None:
            return None
        size = (frame.layout.width, frame.layout.height)
        with self.cuda.entered:
            found = self.pictures.picture(surface[0], size, surface[1], stream)
        self.copy(frame.layout, frame.places, device_places(found.frame.planes), stream)
        self.finish(stream)
        return found

    def copied_to_host(self, frame: MappedFrame, stream: Stream) -> VideoFrame:
        """Return a complete copy of a frame on the host, with the same bytes."""
        layout = frame.layout
        buffer = self.pinned.acquire(layout.size_bytes)
        self.copy(layout, frame.places, host_places(layout, buffer.address), stream)
        self.finish(stream)
        found, at, data = VideoFrame(layout.width, layout.height, layout.pix_fmt), 0, np.asarray(buffer)
        for plane in plane_arrays(found):
            plane[:] = data[at : at + plane.nbytes].view(plane.dtype).reshape(plane.shape)
            at += plane.nbytes
        return found

    def filling(self, layout: EglLayout, picture: DevicePicture | VideoFrame) -> "Fill":
        """Return a function that copies a picture from the device or the host into a frame, and waits for the copy.

        ``UsageError`` if the picture and the frame differ in size or format, ``Unsupported`` if no frame can have the
        picture's format.
        """
        if isinstance(picture, VideoFrame):
            own = EglLayout(picture.width, picture.height, picture.format.name)
        else:
            frame = picture.frame
            own = EglLayout(frame.width, frame.height, surface_name(frame.layout, frame.bits))
        if own != layout:
            raise UsageError(f"a picture of {own} does not fit a frame of {layout}", "Convert it first.")
        if isinstance(picture, VideoFrame):
            return lambda places, stream: self._upload(picture, layout, places, stream)
        return lambda places, stream: self._copy_within(picture, layout, places, stream)

    def _copy_within(
        self, picture: DevicePicture, layout: EglLayout, places: Sequence[EglPlane], stream: Stream
    ) -> None:
        self.copy(layout, device_places(picture.frame.planes), places, stream)
        self.finish(stream)

    def _upload(self, picture: VideoFrame, layout: EglLayout, places: Sequence[EglPlane], stream: Stream) -> None:
        buffer = self.pinned.acquire(layout.size_bytes)
        data, at = np.asarray(buffer), 0
        for plane in plane_arrays(picture):
            data[at : at + plane.nbytes] = np.ascontiguousarray(plane).view(np.uint8).reshape(-1)
            at += plane.nbytes
        self.copy(layout, host_places(layout, buffer.address), places, stream)
        self.finish(stream)

    def mover(self) -> CudaMover:
        """Open a mover between host and device, for one thread."""
        return CudaMover(self.cuda, self.pinned, self.pictures)

    def to_device(self, picture: VideoFrame) -> DevicePicture:
        """Copy a planar picture to the device as the surface of its format.

        Raises EngineUnfit: the device has no surface of this format. DeviceError: the copy failed.
        """
        with self._turn:
            return self._shared_mover().to_device(picture)

    def to_host(self, picture: DevicePicture) -> VideoFrame:
        """Copy a picture from the device; ``DeviceError`` if the copy failed."""
        with self._turn:
            return self._shared_mover().to_host(picture)

    def context_id(self) -> int:
        """Return a context's unique ID, which no later context gets; ``DeviceLost`` if the context is gone."""
        return int(self.call("cuCtxGetId", self.driver.CUcontext(self.cuda.context)))

    def _shared_mover(self) -> CudaMover:
        self._mover = self._mover or self.mover()
        return self._mover


def device_places(planes: Sequence[DevicePlane]) -> tuple[EglPlane, ...]:
    """Return the planes as ``EglPlane``s in device memory."""
    return tuple(EglPlane(EglMemory.DEVICE, each.address, each.pitch_bytes) for each in planes)


def host_places(layout: EglLayout, address: int) -> tuple[EglPlane, ...]:
    """Return the places of the planes of a host picture without padding."""
    return tuple(EglPlane(EglMemory.HOST, each.address, each.pitch_bytes) for each in layout.planes(address))


@cache
def egl_cuda() -> EglCuda:
    """Return this process's ``EglCuda``, opened once; ``EngineUnfit`` or ``DeviceError`` if opening fails."""
    return EglCuda(imported("cuda.bindings.driver", "cuda-python"))

"""EGLImages as pictures that CUDA reads and writes, once a trial with real pixels has shown that this works.

CUDA's return code does not say whether CUDA and OpenGL see the same pixels. The GPU waits for syncs if the driver
supports that (only Tegra's does); otherwise the host waits. Sources: CUDA for Tegra, sections 4.2 and 4.3;
EGL_KHR_image_base, EGL_KHR_fence_sync, EGL_EXT_image_dma_buf_import, EGL_NV_cuda_event.
"""

import ctypes
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, Self

import numpy as np
from av.video.frame import VideoFrame

from ....errors import DeviceMemory, EngineHung, EngineUnfit, Unsupported, UsageError
from ...closing import Closing, undone_by
from ...device.streams import HeldPicture
from ...surfaces.frames import Frame
from ..cuda.context import Stream
from .calls import EglCuda, egl_cuda
from .gles import GlesTexture
from .layout import layout_of
from .library import NONE, EglDisplay, attributes, device_display

if TYPE_CHECKING:
    from ...surfaces.device_frame import DevicePicture


_DMA_BUF: Final = 0x3270
_WIDTH, _HEIGHT, _FOURCC = 0x3057, 0x3056, 0x3271
_PLANE: Final = (0x3272, 0x3275, 0x3278)
"""The EGL attribute of each plane's descriptor; the attributes of its offset and its pitch have the next two numbers.
"""
_FOURCCS: Final = {"nv12": b"NV12", "p010le": b"P010", "rgba": b"AB24", "bgra": b"AR24", "gray": b"R8  "}
"""The format codes of drm_fourcc.h, keyed by FFmpeg's names."""
_TRIAL_SIDES: Final = (64, 48)
_ADVICE: Final = "docs/egl.md says where images work; on other machines, copy the pixels through the host."
_CUDA_EVENT: Final = "EGL_NV_cuda_event"
_SYNC_CUDA_EVENT, _CUDA_EVENT_HANDLE = 0x323C, 0x323B
_FLUSH: Final = 1
_EXPIRED: Final = 0x30F5
_LIMIT_NS: Final = 60_000_000_000
_DISABLE_TIMING: Final = 2


class EglImage(HeldPicture, Closing):
    """An EGLImage as a picture: ``codecfleet.encode`` and ``present`` accept it, and ``write`` changes it.

    It is registered with CUDA on first use.

    Args:
        handle: an EGLImageKHR that you made; destroy it yourself, after ``close``. ``display`` is its EGLDisplay, if
            this is not the display of the device.
        ready: a sync (EGLSyncKHR) to wait for before the image is read or written. Without a sync, finish drawing first
            (glFinish): images do not synchronise.
        pix_fmt: FFmpeg's name of the image's format, if CUDA reports a wrong format.
    """

    def __init__(
        self, handle: int, *, display: int | None = None, ready: int | None = None, pix_fmt: str | None = None
    ) -> None:
        self._handle = handle
        self._foreign_display = display
        self._ready = ready
        self._pix_fmt = pix_fmt
        self._is_own = False
        self._opened: _Registered | None = None

    @classmethod
    def of_dma_buf(
        cls, width: int, height: int, pix_fmt: str, planes: Sequence[tuple[int, int, int]], *, ready: int | None = None
    ) -> Self:
        """Make an image of the DMA buffers of a camera or decoder (EGL_EXT_image_dma_buf_import).

        Args:
            width: in samples.
            height: in samples.
            pix_fmt: ``nv12``, ``p010le``, ``rgba``, ``bgra`` or ``gray``.
            planes: (descriptor, offset, pitch) of each plane, the last two in bytes; the descriptors stay yours.
            ready: as for the class.

        Raises:
            Unsupported: pictures cannot have that format or size.
            UsageError: an image cannot have that format or those planes, or a descriptor is not of a DMA buffer.
            EngineUnfit: this EGL does not import memory.
        """
        layout = layout_of(width, height, pix_fmt)
        if pix_fmt not in _FOURCCS or len(planes) != len(layout.plane_sizes):
            message = f"an image of {pix_fmt} cannot be made from {len(planes)} planes"
            raise UsageError(message, f"Use {', '.join(_FOURCCS)}, with one descriptor for each plane.")
        display = device_display()
        display.require(["EGL_KHR_image_base", "EGL_EXT_image_dma_buf_import"])
        pairs = [(_WIDTH, width), (_HEIGHT, height), (_FOURCC, int.from_bytes(_FOURCCS[pix_fmt], "little"))]
        for first, numbers in zip(_PLANE, planes, strict=False):
            pairs += [(first + step, number) for step, number in enumerate(numbers)]
        try:
            handle = display.egl.call("eglCreateImageKHR", display.handle, None, _DMA_BUF, None, attributes(*pairs))
        except DeviceMemory as error:
            raise EngineUnfit(f"this EGL does not import that memory: {error.message}", _ADVICE) from error
        found = cls(int(handle), ready=ready, pix_fmt=pix_fmt)
        found._is_own = True
        return found

    def read(self) -> "DevicePicture | VideoFrame":
        """Return a copy of the image's picture, on the device if device pictures have such formats, or on the host.

        Raises:
            UsageError: the handle is not an image.
            Unsupported: the image's format is not known here.
            EngineUnfit: a trial showed that CUDA does not see an image's pixels on this machine.
            DeviceError: the driver failed.
        """
        opened = self._registered("reads")
        calls, frame = opened.calls, opened.frame
        self._wait(opened)
        return calls.copied_to_device(frame, opened.stream) or calls.copied_to_host(frame, opened.stream)

    def write(self, picture: "Frame | DevicePicture | VideoFrame") -> int | None:
        """Copy a picture into the image, which has the same size and format.

        Returns:
            A sync (EGLSyncKHR) that other interfaces wait for (eglWaitSyncKHR); destroy it yourself. None if this
            machine lacks EGL_NV_cuda_event: the copy is then complete.

        Raises:
            UsageError: the picture's size or format differs, or the handle is not an image.
            EngineUnfit: a trial showed that other interfaces do not see what CUDA writes on this machine.
            DeviceError: the driver failed.
        """
        opened = self._registered("writes")
        self._wait(opened)
        if isinstance(picture, Frame):
            picture = picture.device_picture or picture.to_video_frame()
        layout = opened.frame.layout
        if isinstance(picture, VideoFrame) and layout.surface and picture.format.name == layout.surface[1]:
            picture = opened.calls.to_device(picture)
        opened.calls.filling(layout, picture)(opened.frame.places, opened.stream)
        return sync_after(opened.calls, opened.display, opened.stream)

    def close(self) -> None:
        """Unregister the image from CUDA; destroy it if it was made here. Idempotent."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()
        if self._is_own:
            self._is_own = False
            display = device_display()
            display.egl.call("eglDestroyImageKHR", display.handle, self._handle)

    def _wait(self, opened: "_Registered") -> None:
        if self._ready is not None:
            wait_for_sync(opened.calls, opened.display, self._ready, opened.stream)

    def _registered(self, wanted: str) -> "_Registered":
        reason = pixels_seen().reason(wanted)
        if reason:
            raise EngineUnfit(reason, _ADVICE)
        if self._opened is None:
            self._opened = _Registered(egl_cuda(), self._own_display(), self._handle, self._pix_fmt)
        return self._opened

    def _own_display(self) -> EglDisplay:
        display = device_display()
        return display if self._foreign_display is None else EglDisplay(display.egl, self._foreign_display)


class _Registered:
    """An image that is registered with CUDA: the frame, and a stream for copies."""

    def __init__(self, calls: EglCuda, display: EglDisplay, image: int, pix_fmt: str | None) -> None:
        self.calls = calls
        self.display = display
        # The only flag is 0 (CUDA for Tegra, section 4.2.1).
        self._resource = calls.call("cuGraphicsEGLRegisterImage", calls.driver.EGLImageKHR(image), 0)
        with undone_by(lambda: calls.call("cuGraphicsUnregisterResource", self._resource)):
            self.frame = calls.mapped(self._resource, pix_fmt)
            self.stream = calls.cuda.stream()

    def close(self) -> None:
        """Wait for the image's copies, and unregister the image."""
        self.calls.finish(self.stream)
        self.stream.close()
        self.calls.call("cuGraphicsUnregisterResource", self._resource)


@dataclass(frozen=True, slots=True)
class PixelsSeen:
    """The result of a trial: whether CUDA reads what OpenGL wrote and vice versa, or why no trial was possible."""

    reads: bool
    writes: bool
    failure: str = ""

    def reason(self, wanted: str) -> str:
        """Return why images cannot be used for ``wanted`` (reads or writes); "" if they can."""
        if self.failure:
            return f"EGLImages cannot be tried on this machine: {self.failure}"
        if wanted == "reads" and not self.reads:
            return "CUDA registers an EGLImage here, but does not see the pixels that OpenGL wrote"
        if wanted == "writes" and not self.writes:
            return "CUDA registers an EGLImage here, but OpenGL does not see the pixels that CUDA wrote"
        return ""


@cache
def pixels_seen() -> PixelsSeen:
    """Try an image of a texture, once per process, in a thread that does not affect the caller's OpenGL."""
    with ThreadPoolExecutor(1, thread_name_prefix="codecfleet-egl-trial") as thread:
        try:
            return thread.submit(_tried, egl_cuda(), device_display()).result()
        except (EngineUnfit, Unsupported) as error:
            return PixelsSeen(reads=False, writes=False, failure=error.message)


def _tried(calls: EglCuda, display: EglDisplay) -> PixelsSeen:
    width, height = _TRIAL_SIDES
    first = np.random.default_rng(1).integers(0, 256, (height, width, 4), np.uint8)
    second = 255 - first
    with GlesTexture(display, width, height) as texture:
        texture.write(first)
        registered = _Registered(calls, display, texture.image, None)
        try:
            seen = calls.copied_to_host(registered.frame, registered.stream)
            reads = seen.format.name == "rgba" and np.array_equal(seen.to_ndarray(), first)
            if not reads:
                return PixelsSeen(reads=False, writes=False)
            picture = VideoFrame.from_ndarray(second, format="rgba")
            calls.filling(registered.frame.layout, picture)(registered.frame.places, registered.stream)
            return PixelsSeen(reads=True, writes=np.array_equal(texture.read(), second))
        finally:
            registered.close()


def wait_for_sync(calls: EglCuda, display: EglDisplay, sync: int, stream: Stream) -> bool:
    """Make a CUDA stream wait for a sync (EGLSyncKHR); return False if the host had to wait instead.

    Raises:
        UsageError: the handle is not a sync of that display.
        EngineHung: the sync's work did not end within a minute.
        DeviceError: the driver failed.
    """
    try:
        event = calls.call("cuEventCreateFromEGLSync", calls.driver.EGLSyncKHR(sync), 0)
    except EngineUnfit:
        if display.egl.call("eglClientWaitSyncKHR", display.handle, sync, _FLUSH, _LIMIT_NS) == _EXPIRED:
            message = "the work before an EGLSync did not end within a minute"
            raise EngineHung(message, "Check the program that made the sync.") from None
        return False
    try:
        calls.call("cuStreamWaitEvent", stream.handle, event, 0)
    finally:
        calls.call("cuEventDestroy", event)
    return True


def sync_after(calls: EglCuda, display: EglDisplay, stream: Stream) -> int | None:
    """Return a sync for all current work in a CUDA stream; None if the host has waited for the work instead."""
    if _CUDA_EVENT not in display.extensions:
        calls.finish(stream)
        return None
    event = calls.call("cuEventCreate", _DISABLE_TIMING)
    try:
        calls.call("cuEventRecord", event, stream.handle)
        wanted = (ctypes.c_ssize_t * 3)(_CUDA_EVENT_HANDLE, int(event), NONE)
        return int(display.egl.call("eglCreateSync64KHR", display.handle, _SYNC_CUDA_EVENT, wanted))
    finally:
        # CUDA destroys the event once its work is done; the sync does not need the event.
        calls.call("cuEventDestroy", event)

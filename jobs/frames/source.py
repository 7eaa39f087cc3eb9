"""Decides on a source's segments, formats and decoders before its first frame is decoded."""

import statistics
from dataclasses import dataclass, replace
from typing import Any, Final

from av.video.format import VideoFormat as PixelFormat

from ...actors.decode.decoding import SOFTWARE
from ...actors.decode.describe import StreamExtras
from ...actors.device.interface import WorkerDevice
from ...actors.media.values import VideoFormat
from ...actors.segment.decode_path import DecodePath, UploadingDecoder
from ...actors.surfaces.formats import surface_format
from ...cluster.machine import cores
from ...errors import DeviceError, EngineUnfit, Unsupported
from ..plan.track_ranges import TrackRanges
from ..source.source import SourceReading, SourceStamp
from .readings import READINGS
from .request import FrameRequest
from .selection import PartFrames

HOST_BYTES: Final = 2 << 30
DEVICE_SHARE: Final = 4  #: Frames may take the free memory of the device divided by this
DEVICE_THREADS: Final = 14  #: The number of sessions that fills a large GPU's engines (docs/nvdec.md)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSource:
    """A source that is ready to be decoded."""

    request: FrameRequest
    stamp: SourceStamp
    reading: SourceReading
    ranges: TrackRanges
    part: PartFrames  #: the frames of ``ranges``, by number
    format: VideoFormat  #: the format of decoded pictures
    output: VideoFormat | None  #: the format to which frames are converted; None for no conversion
    device: WorkerDevice | None
    on_device: bool  #: whether frames are in the device's memory
    gpu_refusal: str  #: why no GPU is used; "" if a GPU is used
    paths: tuple[DecodePath[Any], ...]  #: the ways to decode, best first
    threads: int  #: the most segments decoded at once
    limit_bytes: int  #: the most bytes decoded ahead
    segments_at_once: int  #: how many segments fit into ``limit_bytes``
    segment_bytes: int  #: the most bytes decoded ahead of each segment

    def frames_of(self, pictures: int) -> int:
        """Return how many frames come from ``pictures`` pictures, of which every ``every``-th is taken."""
        return pictures // self.request.every

    @property
    def frame_bytes(self) -> int:
        """The size in bytes of a frame as it is handed out, without padding."""
        return picture_bytes(self.output or self.format)

    @property
    def frames_held(self) -> int:
        """How many frames fit into ``limit_bytes``; at least 1."""
        return max(1, self.limit_bytes // self.frame_bytes)

    def paths_of(self, frames: int) -> tuple[DecodePath[Any], ...]:
        """Return the paths for a segment of ``frames`` frames, best first. Raises Unsupported: memory is too small."""
        fitting = tuple(path for path in self.paths if not path.whole or frames <= self.frames_held)
        if not fitting:
            message = f"{frames} pictures without an access point between them do not fit into the memory for frames"
            raise Unsupported(message, 'Give more memory_bytes, or use decoder="software".')
        if fitting == self.paths:
            return fitting
        reason = "the segment is too long to be held in memory while a device decodes it"
        return tuple(replace(path, reason=reason) for path in fitting)


def open_frame_source(request: FrameRequest, device: WorkerDevice, reading: SourceReading | None = None) -> FrameSource:
    """Read the source's index, decode its first picture, and decide how and where to decode the rest.

    With the ``reading`` of another process, the source is not read again.

    Raises:
        InputError: the source cannot be read or decoded.
        RequestError: the source has no such track, or its frames cannot have the requested form.
        EngineUnfit: the device is required, and cannot be used here.
        DeviceError: the device failed.
    """
    source = request.absolute_source
    stamp = SourceStamp.of(source)
    reading = READINGS.read(stamp, request.video_track) if reading is None else reading
    index = reading.index
    ranges = TrackRanges.cut(index, start_s=request.start_s, end_s=request.end_s, segment_s=request.segment_s)
    format_, extras = reading.described()
    output = _output(request, format_)
    gpu_refusal = _refusal(request, device)
    usable = not gpu_refusal
    on_device = usable and _goes_to_device(request, extras)
    if on_device:
        for picture in (format_, output or format_):
            _check_surface(picture)
    paths = _paths(request, device, usable=usable, on_device=on_device)
    limit_bytes = request.memory_bytes or (device.free_bytes() // DEVICE_SHARE if on_device else HOST_BYTES)
    threads = request.threads or (DEVICE_THREADS if usable and request.decoder != "software" else cores())
    frames_held = limit_bytes // picture_bytes(output or format_)
    whole = any(path.whole for path in paths)
    at_once = _segments_at_once(ranges, request.every, threads, frames_held, whole=whole)
    return FrameSource(
        request=request,
        stamp=stamp,
        reading=reading,
        ranges=ranges,
        part=PartFrames(ranges, request.every),
        format=format_,
        output=output,
        device=device if usable else None,
        on_device=on_device,
        gpu_refusal=gpu_refusal,
        paths=paths,
        threads=threads,
        limit_bytes=limit_bytes,
        segments_at_once=at_once,
        segment_bytes=max(1, limit_bytes // at_once),
    )


def _goes_to_device(request: FrameRequest, extras: StreamExtras) -> bool:
    if request.place == "auto":
        return request.decoder != "software" and not extras.device_unsupported_reason and not request.converts
    return request.place == "device"


def _segments_at_once(ranges: TrackRanges, every: int, threads: int, frames_held: int, *, whole: bool) -> int:
    """Return how many segments are decoded at once: at most one for each thread, and no more than fit into memory.

    If whole segments are held, at least one is decoded, even if it does not fit.
    """
    frames = [segment.frames // every for segment in ranges.segments]
    usual = statistics.median_low(frames)
    if whole:
        usual = max((each for each in frames if each <= frames_held), default=usual)
    return max(1, min(threads, len(frames), frames_held // max(1, usual)))


def picture_bytes(picture: VideoFormat) -> int:
    """Return the size in bytes of a picture without padding."""
    layout = PixelFormat(picture.pix_fmt, picture.width, picture.height)
    return sum(-(-component.bits // 8) * component.width * component.height for component in layout.components)


def _output(request: FrameRequest, format_: VideoFormat) -> VideoFormat | None:
    if not request.converts:
        return None
    width, height = request.size or (format_.width, format_.height)
    pix_fmt = request.pix_fmt or format_.pix_fmt
    try:
        known = PixelFormat(pix_fmt, width, height).components
    except ValueError:
        known = ()
    if not known:
        message = f"frames cannot have the pixel format {pix_fmt}"
        raise Unsupported(message, "Use rgb24, gray, yuv420p or another of FFmpeg's formats.")
    return replace(format_, width=width, height=height, pix_fmt=pix_fmt)


def _check_surface(picture: VideoFormat) -> None:
    """Check that the device can hold pictures of this size and format. Raises Unsupported if it cannot."""
    surface = surface_format(picture.pix_fmt)
    if surface is None or not surface.holds(picture.width, picture.height):
        message = f"frames on the device cannot be {picture.width}x{picture.height} {picture.pix_fmt}"
        raise Unsupported(message, 'Use yuv420p, yuv422p or yuv444p with even sides; or place="host".')


def _refusal(request: FrameRequest, device: WorkerDevice) -> str:
    """Try to open the device, and return why it is not used; "" if it is used."""
    wanted = request.decoder == "nvdec" or request.place == "device"
    if not wanted and request.decoder == "software":
        return "software was requested"
    try:
        device.open_mover().close()
    except DeviceError as error:
        if wanted:
            raise
        return error.message
    return ""


def _paths(
    request: FrameRequest, device: WorkerDevice, *, usable: bool, on_device: bool
) -> tuple[DecodePath[Any], ...]:
    paths: list[DecodePath[Any]] = []
    place = device if on_device else None
    if usable and request.decoder != "software":
        # With low latency, pictures are handed out before the whole segment has been checked.
        whole = not request.nvdec.keeps_coding_order
        paths.append(DecodePath(device.decoder_with(request.nvdec, on_device=on_device), place, whole=whole))
    if request.decoder != "nvdec":
        paths.append(DecodePath(UploadingDecoder(device.open_mover) if on_device else SOFTWARE, place))
    if not paths:
        raise EngineUnfit("this process has no GPU that decodes", 'Use decoder="software".')
    return tuple(paths)

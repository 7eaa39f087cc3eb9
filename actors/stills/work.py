"""Work on the pictures of one segment in host memory; the worker's device decodes them if that is faster."""

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from av.video.frame import VideoFrame

from ...errors import DeviceError
from ..decode.decoding import DecodeRange
from ..device.work import Work, WorkContext
from ..segment.decode_path import DecodePath, host_paths
from ..segment.walk import SegmentTally, decode_on_first


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SeenSegment:
    """The result of work on one segment's pictures."""

    segment: int
    frames_decoded: int  # includes pictures decoded before and after the segment
    tally: SegmentTally

    @property
    def is_complete(self) -> bool:
        """False if decoding from an earlier packet could add pictures to the result."""
        return True


SeenT = TypeVar("SeenT", bound=SeenSegment)


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureWork(Work[SeenT]):
    """Look at the pictures of ``decode`` whose time is in [``start_ticks``, ``end_ticks``); None is unbounded."""

    segment: int
    decode: DecodeRange
    start_ticks: int | None
    end_ticks: int | None
    require_device: bool = False  # whether to wait for a device's decoder, if there is one

    @property
    def file(self) -> str:
        """The path or address of the source."""
        return self.decode.source

    def run(self, context: WorkContext) -> SeenT:
        """Run in the calling thread.

        Raises:
            InputError: the source cannot be read any more.
            Unsupported: a picture cannot be converted.
            EncoderFailed: a picture's file cannot be made.
            DeviceError: the device is lost; software decodes what the device cannot.
            Cancelled: the work was cancelled.
        """
        frames_done = context.frames_done

        def start_over(error: DeviceError) -> None:
            del error
            context.start_over(frames_done)

        require_device = self.require_device or self.constraints.alone
        with host_paths(context.device, require_device=require_device, software=self.constraints.software) as paths:
            return decode_on_first(paths, partial(self.look, context), start_over)

    @abstractmethod
    def look(self, context: WorkContext, path: DecodePath[VideoFrame], fallback: str) -> SeenT:
        """Look at the pictures on one path; ``fallback`` says why a better path failed."""

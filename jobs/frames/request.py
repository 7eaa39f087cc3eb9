"""The request and the report of ``frames``."""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Literal, Self, TypeAlias, TypedDict

from pydantic import Field, InstanceOf, model_validator

from ...actors.decode.nvdec_options import PLAIN, NvdecOptions
from ...actors.media.location import absolute
from ..request.parts import CudaPlace, PixelSize, SourceRange

Place: TypeAlias = Literal["host", "device", "auto"]
Decoder: TypeAlias = Literal["auto", "software", "nvdec"]

#: The segments are short, since whole segments are decoded ahead into memory and a cut costs little
SEGMENT_S = Fraction(2)


class FrameOptions(TypedDict, total=False):
    """The options of ``frames``, before ``FrameRequest`` checks them."""

    place: Place
    decoder: Decoder
    start_s: Fraction | int | str | None
    end_s: Fraction | int | str | None
    video_track: int
    every: int
    size: tuple[int, int] | str | None
    pix_fmt: str | None
    threads: int | None
    memory_bytes: int | None
    strict: bool
    nvdec: NvdecOptions
    device: int | str | None
    context: int | None
    stream: int | None


class FrameRequest(SourceRange, CudaPlace):
    """The request for a track's frames in [``start_s``, ``end_s``), in seconds after its first picture."""

    source: InstanceOf[str]  #: or its subclass ``HeldSource``
    place: Place = "host"
    decoder: Decoder = "auto"
    every: Annotated[int, Field(ge=1)] = 1  #: the pictures 0, N, 2N ... of the part are taken
    size: PixelSize | None = None  #: (width, height) of frames; a device scales with other filters than software
    pix_fmt: str | None = None
    threads: Annotated[int, Field(ge=1)] | None = None  #: how many segments are decoded at once; None chooses
    memory_bytes: Annotated[int, Field(ge=1)] | None = None  #: the most bytes decoded ahead; None chooses
    segment_s: Fraction = SEGMENT_S
    strict: bool = False  #: whether damage is an error
    nvdec: InstanceOf[NvdecOptions] = PLAIN

    @model_validator(mode="after")
    def _check_nvdec(self) -> Self:
        if self.nvdec != PLAIN and self.decoder != "nvdec":
            raise ValueError(f'options for NVDEC need decoder="nvdec", and `decoder` is {self.decoder}')
        return self

    @model_validator(mode="after")
    def _check_cuda(self) -> Self:
        if self.names_cuda and self.decoder == "software" and self.place != "device":
            raise ValueError("device, context and stream apply only to a GPU, and software decodes to the host")
        return self

    @property
    def converts(self) -> bool:
        """Whether decoded frames are to be scaled or converted."""
        return self.size is not None or self.pix_fmt is not None

    @property
    def absolute_source(self) -> str:
        """The source with an absolute path."""
        return absolute(self.source)


@dataclass(slots=True)
class FramesReport:
    """The progress of a stream of frames; damage is counted as in a transcode's report."""

    frames_promised: int = 0  #: the number of frames in the index
    frames: int = 0  #: frames handed out
    segments: int = 0  #: the segments handed out; for chosen frames, the reads completed
    decoded: int = 0  #: the pictures decoded for chosen frames, in all tries
    on_device: bool = False
    gpu_refusal: str = ""  #: why no GPU is used; "" if a GPU is used
    decoded_by: dict[str, int] = field(default_factory=dict)  #: segments, by decoder
    fallbacks: list[str] = field(default_factory=list)  #: why segments were not decoded by NVDEC
    failed_packets: int = 0
    corrupt_frames: int = 0
    entry_moves: int = 0  #: how many times a segment was decoded again from further back
    held_bytes: int = 0  #: the size of the frames that are decoded ahead now
    held_bytes_max: int = 0


def count_held(report: FramesReport, size_bytes: int) -> None:
    """Count bytes that are decoded ahead; ``size_bytes`` is negative for released bytes."""
    report.held_bytes += size_bytes
    report.held_bytes_max = max(report.held_bytes_max, report.held_bytes)

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

SEGMENT_S = Fraction(2)
"""Short: a cut costs a few pictures decoded twice, and memory holds what is decoded ahead."""


class FrameOptions(TypedDict, total=False):
    """The options of ``frames``, as ``FrameRequest`` checks them."""

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
    """The frames of a track's [``start_s``, ``end_s``), in seconds after its first picture.

    ``every`` N takes the pictures 0, N, 2N ... of that part. ``size`` (width, height) and ``pix_fmt`` are what frames
    become; on the device by its own filters, whose samples are not software's. ``threads`` is how many segments are
    decoded at once, and ``memory_bytes`` bounds what is decoded ahead; None chooses. ``strict`` makes damage an error.
    ``nvdec`` are options of NVDEC's sessions. ``stream`` is the CUDA stream in which frames on the device are used.
    """

    source: str
    place: Place = "host"
    decoder: Decoder = "auto"
    every: Annotated[int, Field(ge=1)] = 1
    size: PixelSize | None = None
    pix_fmt: str | None = None
    threads: Annotated[int, Field(ge=1)] | None = None
    memory_bytes: Annotated[int, Field(ge=1)] | None = None
    segment_s: Fraction = SEGMENT_S
    strict: bool = False
    nvdec: InstanceOf[NvdecOptions] = PLAIN

    @model_validator(mode="after")
    def _check_nvdec(self) -> Self:
        if self.nvdec != PLAIN and self.decoder != "nvdec":
            raise ValueError(f'software has no NvdecOptions, and `decoder` is {self.decoder}: give decoder="nvdec"')
        return self

    @model_validator(mode="after")
    def _check_cuda(self) -> Self:
        if self.names_cuda and self.decoder == "software" and self.place != "device":
            raise ValueError("device, context and stream are a GPU's, and software decodes to the host")
        return self

    @property
    def converts(self) -> bool:
        """Whether frames become something else than what is decoded."""
        return self.size is not None or self.pix_fmt is not None

    @property
    def absolute_source(self) -> str:
        """The source, by a name that holds in any folder."""
        return absolute(self.source)


@dataclass(slots=True)
class FramesReport:
    """What happened so far. ``decoded_by`` counts segments by decoder, and ``fallbacks`` says why not NVDEC.

    Damage is counted as in a transcode's report: packets that did not decode, pictures that a decoder called wrong.
    """

    frames_promised: int = 0
    frames: int = 0
    segments: int = 0
    on_device: bool = False
    gpu_refusal: str = ""
    """Why no GPU took part; "" where one did."""
    decoded_by: dict[str, int] = field(default_factory=dict)
    fallbacks: list[str] = field(default_factory=list)
    failed_packets: int = 0
    corrupt_frames: int = 0
    entry_moves: int = 0
    """How often a segment was decoded again, because its first pictures were not those that came before it."""
    held_bytes: int = 0
    """What is decoded ahead now."""
    held_bytes_max: int = 0

"""What ``frames`` is asked for, checked; and what came of it."""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, TypeAlias, TypedDict

from ...actors.decode.nvdec_options import PLAIN, NvdecOptions
from ...actors.media.location import absolute
from ...errors import UsageError
from ..request.api_values import check_size, check_text, check_whole, exact

__all__ = ["Decoder", "FrameOptions", "FrameRequest", "FramesReport", "Place"]

Place: TypeAlias = Literal["host", "device", "auto"]
Decoder: TypeAlias = Literal["auto", "software", "nvdec"]

SEGMENT_S = Fraction(2)
"""Short: a cut costs a few pictures decoded twice, and memory holds what is decoded ahead."""


class FrameOptions(TypedDict, total=False):
    """The options of ``frames``, as ``FrameRequest`` checks them."""

    place: Place
    decoder: Decoder
    start_s: Fraction | None
    end_s: Fraction | None
    video_track: int
    every: int
    size: tuple[int, int] | None
    pix_fmt: str | None
    threads: int | None
    memory_bytes: int | None
    strict: bool
    nvdec: NvdecOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameRequest:
    """The frames of a track's [``start_s``, ``end_s``), in seconds after its first picture.

    ``every`` N takes the pictures 0, N, 2N ... of that part. ``size`` (width, height) and ``pix_fmt`` are what frames
    become; on the device by its own filters, whose samples are not software's. ``threads`` is how many segments are
    decoded at once, and ``memory_bytes`` bounds what is decoded ahead; None chooses. ``strict`` makes damage an error.
    ``nvdec`` is what is asked of NVDEC beside frames.

    Raises:
        UsageError: it makes no sense.
    """

    source: str
    place: Place = "host"
    decoder: Decoder = "auto"
    start_s: Fraction | None = None
    end_s: Fraction | None = None
    video_track: int = 0
    every: int = 1
    size: tuple[int, int] | None = None
    pix_fmt: str | None = None
    threads: int | None = None
    memory_bytes: int | None = None
    segment_s: Fraction = SEGMENT_S
    strict: bool = False
    nvdec: NvdecOptions = PLAIN

    def __post_init__(self) -> None:
        for name in ("start_s", "end_s"):
            object.__setattr__(self, name, exact(name, getattr(self, name)))
        for name, known in (("place", ("host", "device", "auto")), ("decoder", ("auto", "software", "nvdec"))):
            if (value := getattr(self, name)) not in known:
                message = f"{name} {value!r} is none of {', '.join(known)}"
                raise UsageError(message, f"Leave it out for {known[0]}.")
        if self.nvdec != PLAIN and self.decoder != "nvdec":
            message = f"software has no NvdecOptions, and decoder {self.decoder!r} lets it decode"
            raise UsageError(
                message, 'Give decoder="nvdec", or leave nvdec out; docs/frames.md says what software has.'
            )
        for name, least in (("every", 1), ("threads", 1), ("memory_bytes", 1), ("video_track", 0)):
            check_whole(name, getattr(self, name), least=least)
        for name in ("source", "pix_fmt"):
            check_text(name, getattr(self, name))
        if (self.start_s or 0) < 0:
            message = f"start_s must not be negative: {self.start_s}"
            raise UsageError(message, "Times count from the first picture.")
        if self.end_s is not None and self.end_s <= (self.start_s or 0):
            message = f"the end must come after the start: {self.start_s or 0} .. {self.end_s} s"
            raise UsageError(message, "The interval is half-open.")
        check_size("size", self.size)

    @property
    def converts(self) -> bool:
        """Whether frames become something else than what is decoded."""
        return self.size is not None or self.pix_fmt is not None

    @property
    def absolute_source(self) -> str:
        """The source by a name that holds in any folder."""
        return absolute(self.source)


@dataclass(slots=True)
class FramesReport:
    """What happened so far. ``decoded_by`` counts segments by what decoded them, and ``fallbacks`` says why not NVDEC.

    Damage is counted as a transcode's report does: packets that did not decode, pictures that a decoder called wrong.
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
    """What is decoded ahead just now."""
    held_bytes_max: int = 0

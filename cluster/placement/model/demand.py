"""The demands of jobs: frozen values, derived from plans and remaining segments."""

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from ...probes.report.engines import CodecCase, Direction, Engine, MediaCodec

PLAIN_FRAMES = 250
"""The assumed number of frames of a segment whose work is unknown."""
USUAL_THREADS = 2
"""The assumed number of threads of an encoder session."""
_PLAIN_CASE = CodecCase(MediaCodec.H264, Direction.DECODE)


class EncoderChoice(Enum):
    """Which encoders a job allows for its tracks."""

    AUTO = "auto"  #: whichever kind finishes first
    SOFTWARE = "software"
    NVENC = "nvenc"


@dataclass(frozen=True, slots=True)
class EncoderKind:
    """A kind of encoder. A track's bytes depend on the kind, so all workers on a track use the same kind."""

    implementation: str
    architecture: str = ""  # the architecture of the GPU that has the NVENC, such as ``ada``
    driver_branch: str = ""

    @property
    def is_nvenc(self) -> bool:
        """Whether the encoder is a GPU's NVENC."""
        return self.implementation == Engine.NVENC.value

    @property
    def place(self) -> str:
        """This kind of NVENC in words: ``ada, driver branch 580``."""
        return ", ".join([self.architecture, *([f"driver branch {self.driver_branch}"] if self.driver_branch else [])])


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendition:
    """One output track: size and encoder settings."""

    case: CodecCase
    width: int
    height: int
    software: str  # the software encoder that could encode the track (libx264 ...); "" for none
    preset: str = ""
    threads: int = USUAL_THREADS  # threads of one session of that software encoder; more threads take more memory
    kind: EncoderKind | None = None  # set when the track has begun: then only workers with this encoder kind may help


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The work that one job asks for."""

    job: str
    segments: tuple[int, ...]  # frames of each unfinished segment
    decode: CodecCase
    width: int
    height: int
    renditions: tuple[Rendition, ...]
    encoder: EncoderChoice = EncoderChoice.AUTO
    software_decode: str = ""  # why no GPU may decode the input; "" if a GPU may
    needs_gpu: bool = False  # whether the job requires a GPU
    dlas: tuple[int, ...] | None = None  # the DLAs that may run the job's network, () for any; None without a network
    has_filters: bool = False  # whether frames are filtered between decoder and encoder
    filter_bytes: int = 0  # memory that filters keep for each segment, besides the pictures
    frames_total: int = 0  # frames of the whole job, including finished frames; 0 if unknown
    priority: int = 0  # work of a higher priority goes first
    weight: Fraction = Fraction(1)  # weight in a fair share with other jobs of the same priority
    workers_max: int | None = None  # the most segments that run at a time
    pyav: str = ""  # the version of PyAV that the job's workers need; "" for any
    # The job is due this many seconds after it is first seen; None without a due time.
    finish_within_s: Fraction | None = None
    title: str = ""  # the displayed name of the job's input; "" without one

    @property
    def chooses_encoder(self) -> bool:
        """Whether the job may use NVENC, and has a track whose encoder kind is not chosen yet."""
        return self.encoder is not EncoderChoice.SOFTWARE and any(each.kind is None for each in self.renditions)

    @property
    def may_use_gpu(self) -> bool:
        """Whether a GPU or DLA may, or must, run a part of the job."""
        return self.needs_devices or self.encoder is not EncoderChoice.SOFTWARE or not self.software_decode

    @property
    def needs_devices(self) -> bool:
        """Whether the job needs a GPU or DLA: it runs a network, requires a GPU, or must be written by an NVENC."""
        if self.dlas is not None or self.needs_gpu or self.encoder is EncoderChoice.NVENC:
            return True
        return any(each.kind is not None and each.kind.is_nvenc for each in self.renditions)

    @property
    def longest_frames(self) -> int:
        """The frames of the longest segment, at most ``PLAIN_FRAMES``: longer segments take no more memory."""
        return min(max(self.segments, default=PLAIN_FRAMES), PLAIN_FRAMES)

    @property
    def about_frames(self) -> int:
        """The frames of the whole job, rounded down to a power of two; jobs of similar length are placed alike."""
        return 1 << self.frames_total.bit_length() - 1 if self.frames_total > 0 else 0


def plain_demand(job: str, segments: int, workers_max: int | None = None) -> Demand:
    """Return the demand of a job whose media is unknown: ``segments`` segments, all in software."""
    case = CodecCase(_PLAIN_CASE.codec, Direction.ENCODE)
    return Demand(
        job=job,
        segments=(PLAIN_FRAMES,) * segments,
        decode=_PLAIN_CASE,
        width=1920,
        height=1080,
        renditions=(Rendition(case=case, width=1920, height=1080, software="libx264"),),
        encoder=EncoderChoice.SOFTWARE,
        workers_max=workers_max,
    )

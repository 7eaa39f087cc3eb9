"""What jobs ask for: frozen values, a pure function of plans and of what is left to do."""

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from ...probes.report.engines import CodecCase, Direction, Engine, MediaCodec

PLAIN_FRAMES = 250
"""How many frames a piece of unknown work is taken to have: a usual segment."""
USUAL_THREADS = 2
"""Of an encoder's session."""
_PLAIN_CASE = CodecCase(MediaCodec.H264, Direction.DECODE)


class EncoderChoice(Enum):
    """Which encoders a job allows for its tracks."""

    AUTO = "auto"  #: whichever kind finishes first
    SOFTWARE = "software"
    NVENC = "nvenc"


@dataclass(frozen=True, slots=True)
class EncoderKind:
    """What an encoded track's bytes depend on: one kind per track, on every worker that helps with it.

    For software ``implementation`` is enough. For NVENC the architecture and the driver branch count too.
    """

    implementation: str
    architecture: str = ""
    driver_branch: str = ""

    @property
    def is_nvenc(self) -> bool:
        """Whether a GPU's NVENC writes it."""
        return self.implementation == Engine.NVENC.value

    @property
    def place(self) -> str:
        """Return which NVENCs are of this kind: ``ada, driver branch 580``."""
        return ", ".join([self.architecture, *([f"driver branch {self.driver_branch}"] if self.driver_branch else [])])


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendition:
    """One output track: how it is to be encoded, and what size it has."""

    case: CodecCase
    width: int
    height: int
    software: str
    """The software encoder that would do it (libx264 ...), "" for none."""
    preset: str = ""
    threads: int = USUAL_THREADS
    """Of a session of that encoder: more take more memory."""
    kind: EncoderKind | None = None
    """Set once the track has begun: only workers that can do this kind may help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What one job asks for.

    ``segments`` are the frame counts of the segments that are not done yet. ``weight`` is its part in a fair share
    against other jobs of the same ``priority`` (higher goes first). ``frames_total`` is
    how long the whole job is, however much of it is left; 0 where that is not known.
    ``workers_max`` bounds the segments in flight. ``finish_within_s`` is how long it may take at most, from when it is
    first heard of; None where its user does not say. ``has_filters`` says that frames are processed on the way,
    and ``filter_bytes`` what that keeps in each segment's memory beside the pictures.
    ``software_decode`` says why no GPU may decode the input, "" where one may. ``needs_gpu`` keeps the job away from
    processors that no GPU decodes or encodes for. ``dlas`` is for jobs that run a network and encode nothing: the
    numbers of the DLAs, on each machine, that it may run on, () for any. None is a job without a network. ``pyav`` is
    the version with which its bytes are made, "" for any. ``title`` is what people know the job by, the name of its
    input; "" where it has none. Nothing is decided by it.
    """

    job: str
    segments: tuple[int, ...]
    decode: CodecCase
    width: int
    height: int
    renditions: tuple[Rendition, ...]
    encoder: EncoderChoice = EncoderChoice.AUTO
    software_decode: str = ""
    needs_gpu: bool = False
    dlas: tuple[int, ...] | None = None
    has_filters: bool = False
    filter_bytes: int = 0
    frames_total: int = 0
    priority: int = 0
    weight: Fraction = Fraction(1)
    workers_max: int | None = None
    pyav: str = ""
    finish_within_s: Fraction | None = None
    title: str = ""

    @property
    def chooses_encoder(self) -> bool:
        """Whether one of its tracks may still be bound to software or to an NVENC."""
        return self.encoder is not EncoderChoice.SOFTWARE and any(each.kind is None for each in self.renditions)

    @property
    def may_use_gpu(self) -> bool:
        """Whether a GPU may decode or encode some of it, or has to."""
        return self.needs_devices or self.encoder is not EncoderChoice.SOFTWARE or not self.software_decode

    @property
    def needs_devices(self) -> bool:
        """Whether no processor can do it alone: it runs a network, requires a GPU, or an NVENC writes it."""
        kinds = [each.kind for each in self.renditions if each.kind is not None]
        require_device = self.needs_gpu or self.encoder is EncoderChoice.NVENC
        return self.dlas is not None or require_device or any(kind.is_nvenc for kind in kinds)

    @property
    def longest_frames(self) -> int:
        """How long its longest segment is, as far as the length makes a difference to the memory that it takes."""
        return min(max(self.segments, default=PLAIN_FRAMES), PLAIN_FRAMES)

    @property
    def about_frames(self) -> int:
        """How long the whole job is, rounded down to a power of two: jobs of about a length are placed alike."""
        return 1 << self.frames_total.bit_length() - 1 if self.frames_total > 0 else 0


def plain_demand(job: str, pieces: int, workers_max: int | None = None) -> Demand:
    """Return the demand of a job whose media is unknown: ``pieces`` segments of software work."""
    case = CodecCase(_PLAIN_CASE.codec, Direction.ENCODE)
    return Demand(
        job=job,
        segments=(PLAIN_FRAMES,) * pieces,
        decode=_PLAIN_CASE,
        width=1920,
        height=1080,
        renditions=(Rendition(case=case, width=1920, height=1080, software="libx264"),),
        encoder=EncoderChoice.SOFTWARE,
        workers_max=workers_max,
    )

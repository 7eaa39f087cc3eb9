"""The report of a job, as pydantic models."""

from collections.abc import Callable
from fractions import Fraction
from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from ...errors import redacted
from ..request.values import FPS_MAX, FPS_MIN

ShownName: TypeAlias = Annotated[str, AfterValidator(redacted)]  # a path or address without its secrets
_SIDE_MAX: Final = 1 << 20  # more than any codec allows
_Side: TypeAlias = Annotated[int, Field(ge=1, le=_SIDE_MAX)]
_Place: TypeAlias = Annotated[int, Field(ge=0, le=_SIDE_MAX)]
_Unit: TypeAlias = Annotated[int, Field(ge=-1, le=1)]


def _fraction(holds: Callable[[Fraction], bool]) -> AfterValidator:
    """Return a validator for text that is a fraction and meets a condition."""

    def checked(text: str) -> str:
        try:
            if holds(Fraction(text)):
                return text
        except ZeroDivisionError:
            pass
        raise ValueError("not an allowed fraction")

    return AfterValidator(checked)


_Number: TypeAlias = Annotated[str, _fraction(lambda _: True)]
_Span: TypeAlias = Annotated[str, _fraction(lambda value: value >= 0)]
_Ratio: TypeAlias = Annotated[str, _fraction(lambda value: value > 0)]
_Rate: TypeAlias = Annotated[str, _fraction(lambda value: FPS_MIN <= value <= FPS_MAX)]


class _Record(BaseModel):
    """A part of the report. Its validator is built when it is first used, which most commands never do."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Warning_(_Record):  # noqa: N801 - "Warning" is a builtin
    """Something lost, changed, repaired or damaged. ``code`` is stable, ``message`` is not."""

    code: str
    message: str
    checks: tuple[str, ...]  # the checks of ``verify`` that may fail for this reason, by name or prefix: ``audio.1``

    def explains(self, check: str) -> bool:
        """Return whether a check may fail because of this warning."""
        return any(check == name or check.startswith(f"{name}.") for name in self.checks)


class AttemptReport(_Record):
    """A failed attempt at a segment."""

    attempt: int
    # how the attempt ran: "beside other work", "in a separate process", "decoded in software", or the last two
    # together
    step: str
    where: str  # the worker; "" if the pool names none
    fault: str  # failed, full, unfit, hung, moved, lost, suspect, guilty or killed (docs/reliability.md)
    cause: str


class QualityReport(_Record):
    """The quality that was reached, in the unit of the target."""

    reached: float | None  # by the metric and summary of the target; None if there is no picture
    worst: float | None  # the quality of the worst picture
    encodes: int  # how many encodings there were, of whole segments and of samples of segments
    crfs: tuple[float, float]  # the lowest and the highest CRF


class TargetReport(QualityReport):
    """The quality of all pictures together, and what was asked for."""

    asked: str  # the option


class RateReport(_Record):
    """The bitrate of all pictures together, and what was asked for. The job chose the segments' CRFs to reach it."""

    asked: str  # the option
    # the average bitrate that the pictures may have at most: the requested bitrate, or what the requested size leaves
    wanted_bps: int
    reached_bps: int
    video_bytes: int
    encodes: int  # how many times a segment was encoded, in all passes
    crfs: tuple[float, float]  # the lowest and the highest CRF


class SegmentReport(_Record):
    """One segment, with times in ticks of the source's time base."""

    segment: int
    start_ticks: int | None
    end_ticks: int | None
    cut_reason: str
    frames_in: int
    frames_out: int
    first_pts_ticks: int | None
    last_pts_ticks: int | None
    payload_bytes: int
    payload_sha256: str
    damaged_packets: int
    damaged_frames: int = 0  # pictures that the decoder reported as damaged, or that were only partly decoded
    damaged_pts_ticks: tuple[int, ...] = ()  # the times of the first 16 damaged pictures
    entry_moves: int  # how many times decoding was moved to an earlier access point before the seam agreed
    attempts: int
    failures: tuple[AttemptReport, ...] = ()  # in order
    restored: bool = False  # whether an earlier run of the job encoded the segment
    decoded_by: str = "software"  # "software" or "nvdec"
    fallback: str = ""  # why software decoded the segment on a worker with a device; "" if the device decoded it
    decode_s: float
    encode_s: float
    wall_s: float
    quality: QualityReport | None = None  # None if the request has no target quality


class PictureReport(_Record):
    """How pictures were scaled to ``size``, then cropped, turned, scaled again and padded.

    Sizes are (width, height).
    """

    size: tuple[_Side, _Side]
    crop: tuple[_Side, _Side, _Place, _Place]  # the part that was kept, as width, height, x, y
    turn: tuple[_Unit, _Unit, _Unit, _Unit]  # a, b, c, d: (x, y) went to (a x + c y, b x + d y), y downwards
    scaled: tuple[_Side, _Side]
    padded: tuple[_Side, _Side]
    place: tuple[_Place, _Place]  # the position of the picture's upper left corner in the padded picture

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """Refuse a matrix that is not a turn, and parts that reach outside the picture."""
        a, b, c, d = self.turn
        inner = [(self.crop[:2], self.crop[2:], self.size), (self.scaled, self.place, self.padded)]
        sides = [side for part, place, whole in inner for side in zip(part, place, whole, strict=True)]
        if abs(a * d - b * c) != 1 or a * b or any(part + place > whole for part, place, whole in sides):
            raise ValueError("steps that do not fit together")
        return self


class ToneReport(_Record):
    """How HDR was mapped to SDR (the formula is in docs/filters.md)."""

    operator: Literal["bt2390", "hable"]
    transfer: Literal["pq", "hlg"]  # the source's transfer function
    peak_cd: _Ratio  # the brightest light that the mapping distinguishes, in cd/m², as a fraction


class OverlayReport(_Record):
    """The picture laid over every picture (the formula is in docs/filters.md)."""

    picture: ShownName
    sha256: str  # the digest of the picture's file
    place: tuple[_Place, _Place]  # the picture's upper left corner, in samples of the output
    opacity_percent: Annotated[int, Field(ge=0, le=100)]


class BurnReport(_Record):
    """The burnt-in subtitles, and the place of the source's whole picture in the output's picture."""

    source_index: int
    sha256: str  # the SHA-256 of everything that the track shows: samples, places and times
    screen: tuple[_Number, _Number, _Number, _Number]  # left, top, width, height in the output, as fractions
    source: tuple[_Side, _Side]  # the size of the source's picture, turned as in the output
    shape: _Ratio  # the output's sample aspect ratio, as a fraction
    font: ShownName | None = None  # the font file for text; None if the request names none


class TrackReport(_Record):
    """How the job treated one track of the source."""

    kind: str
    source_index: int
    codec: str
    language: str | None
    action: Literal["encoded", "copied", "converted", "dropped"]
    output_codec: str | None
    reason: str


class LoudnessReport(_Record):
    """The source's loudness by EBU R 128, in LUFS and dBTP (None for silence), and the gain of the track in dB."""

    source_index: int
    source_lufs: float | None
    source_true_peak_db: float | None
    gain_db: float

    @property
    def lufs(self) -> float | None:
        """The loudness of the track after the gain."""
        return None if self.source_lufs is None else self.source_lufs + self.gain_db


class Proof(_Record):
    """The results of the checks before and after the join."""

    frames_in: int
    frames_out: int
    # how many pictures an output with its own frame rate must show; None means as many as were taken
    frames_due: int | None = None
    first_pts_s: str
    last_pts_s: str
    seams: int
    seams_equal: int
    output_frames: int  # video packets with distinct presentation times, counted by reading the joined file back
    times_equal: bool
    output_sha256: str
    # hashes of the first source picture of the output, and of the first one after its end; "" if there is none
    seam_before: str = ""
    seam_after: str = ""


class Resumed(_Record):
    """The work that a job took over from an earlier run; numbers count planned segments."""

    restored: int  # segments that were finished, and not encoded again
    redone: int  # segments that were in flight when the earlier run ended, or whose payload is damaged
    published: bool = False  # whether the earlier run had published the output; if so, this is the report of that run


class Report(_Record, serialize_by_alias=True, validate_by_name=True):
    """The result of one job, as ``--report`` writes it."""

    schema_version: int = Field(default=1, alias="schema")
    job: str
    source: ShownName
    output: ShownName
    container: str
    codec: str
    start_s: _Span | None = None  # the requested start, in seconds after the first picture; None for the first picture
    end_s: _Span | None = None  # the requested end; None for the source's end
    video_track: int = Field(default=0, ge=0)
    encoder_kind: str  # the encoder, its version and every option on which the output's bytes depend
    width: int
    height: int
    pix_fmt: str
    time_base: str
    duration_s: str
    frames: int
    output_bytes: int
    workers: int
    segments: tuple[SegmentReport, ...]
    tracks: tuple[TrackReport, ...]
    loudness: tuple[LoudnessReport, ...] = ()  # the loudness of each track that was adjusted
    proof: Proof
    warnings: tuple[Warning_, ...]
    choices: tuple[Warning_, ...] = ()  # requested differences from the source, which cause no warning
    # the wall time of the stages (index, plan, startup, encode, gather, proof, publish) and in total
    timings_s: dict[str, float]
    fps: float  # frames per second in the encode stage: without start-up, join and proof
    resumed: Resumed | None = None  # None if the job continued no earlier run
    steps: PictureReport | None = None  # None if pictures were neither cropped, turned nor padded
    warm_fleet: int | None = None  # process id of the warm fleet; None if the job began on its own workers or a cluster
    tone: ToneReport | None = None  # None if colours were not mapped
    overlay: OverlayReport | None = None
    burnt: BurnReport | None = None  # subtitles burnt in after all other steps
    frame_rate: _Rate | None = None  # the requested frame rate, as a fraction; None if the source's times are kept
    # the options of FFmpeg's ``bilateral``, applied after all steps except the border; "" if pictures were not denoised
    denoise: str = Field(default="", pattern=r"^(sigmaS=[0-9.]+:sigmaR=[0-9.]+)?$")
    quality: TargetReport | None = None  # None if the request has no target quality
    rate: RateReport | None = None  # None if the job chose no CRFs to reach a bitrate or a size
    gpu_refusal: str = ""  # why no GPU worked for the job; "" if one worked, none exists, or the job wanted none

    @property
    def part_s(self) -> tuple[Fraction | None, Fraction | None]:
        """The start and end of the requested part of the source."""
        start_s, end_s = (None if each is None else Fraction(each) for each in (self.start_s, self.end_s))
        return start_s, end_s

    @property
    def used(self) -> tuple[float, float, int]:
        """The core time and the GPU time in seconds, and the output's size in bytes.

        Core time is the wall time of the segments that used cores, and GPU time that of the segments that used a GPU. A
        segment that a GPU decodes for a software encoder counts in both.
        """
        is_nvenc = self.encoder_kind.partition(" ")[0].endswith("_nvenc")
        core_s = sum(each.wall_s for each in self.segments if not is_nvenc or each.decoded_by == "software")
        gpu_s = sum(each.wall_s for each in self.segments if is_nvenc or each.decoded_by != "software")
        return core_s, gpu_s, self.output_bytes

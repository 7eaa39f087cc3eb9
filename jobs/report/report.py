"""What happened in a job, for people and for machines."""

from collections.abc import Callable
from fractions import Fraction
from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, Field, model_validator

from ...errors import redacted
from ..request.values import FPS_MAX, FPS_MIN

ShownName: TypeAlias = Annotated[str, AfterValidator(redacted)]  # a path or address as it is shown: without its secrets
_SIDE_MAX: Final = 1 << 20  # more than any codec has
_Side: TypeAlias = Annotated[int, Field(ge=1, le=_SIDE_MAX)]
_Place: TypeAlias = Annotated[int, Field(ge=0, le=_SIDE_MAX)]
_Unit: TypeAlias = Annotated[int, Field(ge=-1, le=1)]


def _fraction(holds: Callable[[Fraction], bool]) -> AfterValidator:
    """Return the validator of text that is a fraction for which something holds."""

    def checked(text: str) -> str:
        try:
            if holds(Fraction(text)):
                return text
        except ZeroDivisionError:
            pass
        raise ValueError("not a fraction that fits here")

    return AfterValidator(checked)


_Number: TypeAlias = Annotated[str, _fraction(lambda _: True)]
_Span: TypeAlias = Annotated[str, _fraction(lambda value: value >= 0)]
_Ratio: TypeAlias = Annotated[str, _fraction(lambda value: value > 0)]
_Rate: TypeAlias = Annotated[str, _fraction(lambda value: FPS_MIN <= value <= FPS_MAX)]


class Warning_(BaseModel, frozen=True, extra="forbid"):  # noqa: N801 - "Warning" is a builtin
    """Something lost, changed, repaired or damaged. ``code`` is stable, ``message`` is for people."""

    code: str
    message: str
    checks: tuple[str, ...]  # of ``verify`` that may fail because of it, by name or first words: ``audio.1``

    def explains(self, check: str) -> bool:
        """Return whether the check of that name may fail because of it."""
        return any(check == name or check.startswith(f"{name}.") for name in self.checks)


class AttemptReport(BaseModel, frozen=True, extra="forbid"):
    """An attempt at a segment that failed, and what ended it."""

    attempt: int
    step: str  # "beside other work", "in a process of its own", "decoded in software", or the last two together
    where: str  # the worker; "" where the pool names none
    fault: str  # failed, full, unfit, hung, lost, suspect, guilty or killed (docs/reliability.md)
    cause: str


class SegmentReport(BaseModel, frozen=True, extra="forbid"):
    """What one segment took from the source and gave to the output. Times are ticks of the source's time base."""

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
    damaged_frames: int = 0  # pictures that their decoder called wrong, or of which parts were never decoded
    damaged_pts_ticks: tuple[int, ...] = ()  # when the first 16 of them are shown
    entry_moves: int  # how often its access point had to move back before the seam agreed
    attempts: int
    failures: tuple[AttemptReport, ...] = ()  # those of them that failed, in order
    restored: bool = False  # whether an earlier run of the job encoded it
    decoded_by: str = "software"  # what decoded it: "software", or "nvdec"
    fallback: str = ""  # why software decoded it on a worker that has a device for it; "" where that was not so
    decode_s: float
    encode_s: float
    wall_s: float


class PictureReport(BaseModel, frozen=True, extra="forbid"):
    """How pictures were scaled to ``size``, cropped, turned, scaled and padded; sizes are (width, height)."""

    size: tuple[_Side, _Side]
    crop: tuple[_Side, _Side, _Place, _Place]  # the part that was kept: width, height, x, y
    turn: tuple[_Unit, _Unit, _Unit, _Unit]  # a, b, c, d: (x, y) went to (a x + c y, b x + d y), y downwards
    scaled: tuple[_Side, _Side]
    padded: tuple[_Side, _Side]
    place: tuple[_Place, _Place]  # of the picture's upper left corner on the padded one

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """Refuse a matrix that is no turn, and parts that lie outside."""
        a, b, c, d = self.turn
        inner = [(self.crop[:2], self.crop[2:], self.size), (self.scaled, self.place, self.padded)]
        sides = [side for part, place, whole in inner for side in zip(part, place, whole, strict=True)]
        if abs(a * d - b * c) != 1 or a * b or any(part + place > whole for part, place, whole in sides):
            raise ValueError("steps that do not fit together")
        return self


class ToneReport(BaseModel, frozen=True, extra="forbid"):
    """How HDR became SDR: docs/filters.md has the formula."""

    operator: Literal["bt2390", "hable"]
    transfer: Literal["pq", "hlg"]  # how the source codes light
    peak_cd: _Ratio  # the brightest light that is told apart, in cd/m², as a fraction


class OverlayReport(BaseModel, frozen=True, extra="forbid"):
    """What was laid over every picture: docs/filters.md has the formula."""

    picture: ShownName
    sha256: str  # of the picture's file
    place: tuple[_Place, _Place]  # where its upper left corner lies, in samples of the output
    opacity_percent: Annotated[int, Field(ge=0, le=100)]


class BurnReport(BaseModel, frozen=True, extra="forbid"):
    """Which subtitles were burnt in, and where the whole of the source's picture lies in the output's."""

    source_index: int
    sha256: str  # of all that the track shows: samples, places and times
    screen: tuple[_Number, _Number, _Number, _Number]  # left, top, width, height in the output, as fractions
    source: tuple[_Side, _Side]  # the size of the source's picture, turned as the output is
    shape: _Ratio  # the output's sample aspect ratio, as a fraction
    font: ShownName | None = None  # the file in which text was to be set; None where none was named


class TrackReport(BaseModel, frozen=True, extra="forbid"):
    """What became of one track of the source."""

    kind: str
    source_index: int
    codec: str
    language: str | None
    action: Literal["encoded", "copied", "converted", "dropped"]
    output_codec: str | None
    reason: str


class LoudnessReport(BaseModel, frozen=True, extra="forbid"):
    """How loud an encoded track was by EBU R 128, in LUFS and dBTP, and the gain that it got; None: silence."""

    source_index: int
    source_lufs: float | None
    source_true_peak_db: float | None
    gain_db: float

    @property
    def lufs(self) -> float | None:
        """How loud the track is after the gain."""
        return None if self.source_lufs is None else self.source_lufs + self.gain_db


class Proof(BaseModel, frozen=True, extra="forbid"):
    """What the gather step checked before and after the join."""

    frames_in: int
    frames_out: int
    frames_due: int | None = None  # pictures that the requested frame rate gives; None: one for each taken
    first_pts_s: str
    last_pts_s: str
    seams: int
    seams_equal: int
    output_frames: int  # video packets with a distinct presentation time, counted by reading the joined file back
    times_equal: bool
    output_sha256: str


class Resumed(BaseModel, frozen=True, extra="forbid"):
    """What a job had from an earlier run of itself, in planned segments."""

    restored: int  # they were finished, and were not encoded again
    redone: int  # they were in flight when that run ended, or their payload was damaged since
    published: bool = False  # the earlier run had published the output; the report is that run's


class Report(BaseModel, frozen=True, extra="forbid", serialize_by_alias=True, validate_by_name=True):
    """The whole story of one job."""

    schema_version: int = Field(default=1, alias="schema")
    job: str
    source: ShownName
    output: ShownName
    container: str
    codec: str
    start_s: _Span | None = None  # the requested part begins, after the first picture; None: with that picture
    end_s: _Span | None = None  # where it ends; None: with the source
    video_track: int = Field(default=0, ge=0)
    encoder_kind: str  # implementation, version and every option: what the output's bytes depend on besides the source
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
    loudness: tuple[LoudnessReport, ...] = ()  # of each track whose loudness was changed
    proof: Proof
    warnings: tuple[Warning_, ...]
    choices: tuple[Warning_, ...] = ()  # differences from the source that were asked for; no warning is given
    timings_s: dict[str, float]  # wall time of index, plan, startup, encode, gather, proof, publish; and total
    fps: float  # encoded frames a second of the encode stage, as in progress: without start-up, join and proof
    resumed: Resumed | None = None  # where the job went on after an earlier run of it; None where it began afresh
    steps: PictureReport | None = None  # how pictures were cropped, turned and padded; None where they were not
    warm_fleet: int | None = None  # process id of the warm fleet that it began on; None: own workers or a cluster
    tone: ToneReport | None = None  # how HDR became SDR; None where colours stayed what they were
    overlay: OverlayReport | None = None  # what was laid over the pictures; None: nothing
    burnt: BurnReport | None = None  # which subtitles were burnt in after all else; None: none
    frame_rate: _Rate | None = None  # requested pictures a second, as a fraction; None: the source's own times
    # Options of FFmpeg's ``bilateral``, applied after all steps but the border; "": pictures were not denoised.
    denoise: str = Field(default="", pattern=r"^(sigmaS=[0-9.]+:sigmaR=[0-9.]+)?$")
    gpu_refusal: str = ""  # why no GPU worked for the job; empty where one did, where there is none, or none was to

    @property
    def part_s(self) -> tuple[Fraction | None, Fraction | None]:
        """The part of the source that was asked for: its start and its end."""
        start_s, end_s = (None if each is None else Fraction(each) for each in (self.start_s, self.end_s))
        return start_s, end_s

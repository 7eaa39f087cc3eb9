"""What ``probe`` reports: docs/probe.md. Times are exact; in JSON, seconds are numbers and ratios strings."""

from fractions import Fraction
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, PlainSerializer

Seconds = Annotated[Fraction, PlainSerializer(lambda s: round(float(s), 6), return_type=float, when_used="json")]
Ratio = Annotated[Fraction, PlainSerializer(str, return_type=str, when_used="json")]


class Value(BaseModel):
    """A part of what is reported."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, defer_build=True)


class Oddity(Value):
    """Something unexpected. ``code`` is stable, ``message`` is for people; ``track`` None is the whole file."""

    code: str
    message: str
    track: int | None = None


class ChapterFacts(Value):
    """A named span of the source's clock."""

    start_s: Seconds
    end_s: Seconds
    title: str


class AudioFacts(Value):
    """How sound is sampled."""

    sample_rate: int
    channels: int
    layout: str
    priming_samples: int


class ColourFacts(Value):
    """H.273 code points (2: unspecified); ``range`` and ``chroma_location`` are FFmpeg's numbers (0: unspecified)."""

    range: int
    primaries: int
    transfer: int
    matrix: int
    chroma_location: int


class HdrFacts(Value):
    """Static HDR values: chromaticities as fractions of 1, luminance in cd/m²; None where the source has none."""

    red: tuple[Ratio, Ratio] | None = None
    green: tuple[Ratio, Ratio] | None = None
    blue: tuple[Ratio, Ratio] | None = None
    white: tuple[Ratio, Ratio] | None = None
    max_luminance: Ratio | None = None
    min_luminance: Ratio | None = None
    max_cll: int | None = None
    max_fall: int | None = None


RIDER_WORDS: Final = {
    "A53_CC": "closed captions",
    "AFD": "an active format description (AFD)",
    "ALPHA": "transparency (alpha)",
    "DOVI_RPU_BUFFER": "Dolby Vision's metadata",
    "DYNAMIC_HDR_PLUS": "HDR10+ metadata",
    "DYNAMIC_HDR_VIVID": "HDR Vivid's metadata",
    "DISPLAYMATRIX": "a rotation",
    "LCEVC": "an LCEVC enhancement",
    "STEREO3D": "two views",
    "VIEW_ID": "a second view",
}  # by ``RiderFacts.kind``


class RiderFacts(Value):
    """A kind of data that rides on pictures, and where it begins and ends, after the first picture."""

    kind: str  # FFmpeg's name of the pictures' side data, or ``ALPHA`` or ``LCEVC``
    first_s: Seconds | None  # when the first picture that has it is shown; None where that is not known
    last_s: Seconds | None  # when the last one is


class CropFacts(Value):
    """How many samples at each edge of a picture are not to be shown."""

    top: int
    bottom: int
    left: int
    right: int


class PictureFacts(Value):
    """What the pictures are."""

    width: int
    height: int
    pix_fmt: str | None
    sample_aspect_ratio: Ratio
    interlaced: bool
    field_order: str
    colour: ColourFacts
    hdr: HdrFacts | None
    rotation_degrees: int  # counter-clockwise
    mirrored: bool  # whether the display matrix flips as well
    display_matrix: tuple[int, ...] | None
    crop: CropFacts | None = None  # what the container says is not to be shown
    dolby_vision_profile: int | None
    spherical: str | None
    stereo3d: bool
    captions: bool
    side_data: tuple[str, ...]  # the kinds that any picture has, by FFmpeg's names
    riders: tuple[RiderFacts, ...] = ()  # of those, what the packets have, and from when to when
    decoded: bool  # whether the first picture was decoded; without it the header speaks alone


class RateFacts(Value):
    """The nominal frame rate, and what the times of the pictures say. Measured values are None for a single picture."""

    nominal_fps: Ratio
    measured_fps: Ratio | None = None
    shortest_s: Seconds | None = None
    typical_s: Seconds | None = None
    longest_s: Seconds | None = None
    constant: bool = True


class AccessPointFacts(Value):
    """Where decoding can begin."""

    packet: int
    time_ticks: int | None
    time_s: Seconds | None  # after the first picture; None where the packet has no time
    kind: str
    leading_pictures: int  # follow it in decoding order and are shown before it


class GopFacts(Value):
    """How many pictures lie between one access point and the next."""

    structure: Literal["closed", "open", "single", "none"]  # open: pictures need others from before their group
    shortest_frames: int | None = None
    median_frames: int | None = None
    longest_frames: int | None = None


class TimelineFacts(Value):
    """The index of a video track in numbers; packets are counted in the file's order, from 0."""

    time_base: Ratio
    packets: int
    pictures: int
    first_s: Seconds  # when the first picture is shown, on the source's own clock
    last_s: Seconds
    duration_s: Seconds
    discarded_packets: int
    corrupt_packets: int
    missing_pts: int
    missing_dts: int  # those before the first known one do not count, unless none is known
    repeated_pts: int
    backward_dts: int
    clock_resets: int
    unreliable_spans: tuple[tuple[int, int], ...]  # first and last packet of every span inside which no cut may fall
    flagged_packets: int  # packets that the container flags as keyframes
    unusable_keyframes: int  # those of them at which decoding cannot begin
    access_points: tuple[AccessPointFacts, ...]
    access_point_kinds: dict[str, int]
    gop: GopFacts
    rate: RateFacts


class CutFacts(Value):
    """Where ``transcode`` would cut by default, in seconds after the first picture."""

    time_s: Seconds
    reason: str


class VideoFacts(Value):
    """A video track; ``picture`` and ``timeline`` are None where nothing could be learnt of them."""

    picture: PictureFacts | None
    timeline: TimelineFacts | None = None
    cuts: tuple[CutFacts, ...] = ()
    segments: int = 0


class TrackFacts(Value):
    """One track, as the container describes it and as its packets show it."""

    index: int
    kind: str
    codec: str | None
    tag: str
    language: str | None
    language_tag: str | None = None  # BCP 47, where the container states one that says more: pt-BR, zh-Hans
    title: str | None
    dispositions: tuple[str, ...]
    decodable: bool
    start_s: Seconds | None
    duration_s: Seconds | None
    packets: int
    size_bytes: int
    audio: AudioFacts | None
    video: VideoFacts | None
    attachment: str | None  # file name and media type of an attachment

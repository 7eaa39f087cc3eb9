"""The values that ``probe`` reports (docs/probe.md).

Times are exact; in JSON, seconds are numbers and ratios are strings.
"""

from fractions import Fraction
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, PlainSerializer

Seconds = Annotated[Fraction, PlainSerializer(lambda s: round(float(s), 6), return_type=float, when_used="json")]
Ratio = Annotated[Fraction, PlainSerializer(str, return_type=str, when_used="json")]


class Value(BaseModel):
    """A part of the report."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, defer_build=True)


class Oddity(Value):
    """Something unexpected. ``code`` is stable, ``message`` is not; a ``track`` of None means the whole file."""

    code: str
    message: str
    track: int | None = None


class ChapterFacts(Value):
    """A named time span on the source's clock."""

    start_s: Seconds
    end_s: Seconds
    title: str


class AudioFacts(Value):
    """The sampling and the speaker layout of sound."""

    sample_rate: int
    channels: int
    layout: str
    priming_samples: int


class ColourFacts(Value):
    """H.273 code points (unspecified: 2); ``range`` and ``chroma_location`` are FFmpeg's numbers (unspecified: 0)."""

    range: int
    primaries: int
    transfer: int
    matrix: int
    chroma_location: int


class HdrFacts(Value):
    """Static HDR values: chromaticities from 0 to 1, luminance in cd/m²; None if the source has none."""

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
    "HDR10_PLUS_WINDOWS": "HDR10+ windows",
    "DYNAMIC_HDR_VIVID": "HDR Vivid's metadata",
    "DISPLAYMATRIX": "a rotation",
    "LCEVC": "an LCEVC enhancement",
    "STEREO3D": "two views",
    "VIEW_ID": "a second view",
}  # by ``RiderFacts.kind``


class RiderFacts(Value):
    """One kind of side data of pictures; times count from the first picture."""

    kind: str  # the kind of side data, by FFmpeg's name, or ``ALPHA`` or ``LCEVC``
    first_s: Seconds | None  # the time of the first picture with this side data; None if unknown
    last_s: Seconds | None  # the time of the last picture with this side data


class CropFacts(Value):
    """How many samples are hidden at each edge of a picture."""

    top: int
    bottom: int
    left: int
    right: int


class PictureFacts(Value):
    """The properties of a track's pictures: as the first decoded picture has them, or as the header states them."""

    width: int
    height: int
    pix_fmt: str | None
    sample_aspect_ratio: Ratio
    interlaced: bool
    field_order: str
    colour: ColourFacts
    hdr: HdrFacts | None
    rotation_degrees: int  # counter-clockwise
    mirrored: bool  # whether the display matrix also mirrors
    display_matrix: tuple[int, ...] | None
    crop: CropFacts | None = None  # the edges that the container hides
    dolby_vision_profile: int | None
    spherical: str | None
    stereo3d: bool
    captions: bool
    side_data: tuple[str, ...]  # the kinds that at least one picture has, by FFmpeg's names
    riders: tuple[RiderFacts, ...] = ()  # the kinds found in packets, and when each occurs
    decoded: bool  # whether the first picture was decoded; if not, only the header is described


class RateFacts(Value):
    """The nominal frame rate, and the measured steps between pictures (None for a single picture)."""

    nominal_fps: Ratio
    measured_fps: Ratio | None = None
    shortest_s: Seconds | None = None
    typical_s: Seconds | None = None
    longest_s: Seconds | None = None
    constant: bool = True


class AccessPointFacts(Value):
    """A packet at which decoding can start."""

    packet: int
    time_ticks: int | None
    time_s: Seconds | None  # the time after the first picture; None if the packet has no time
    kind: str
    leading_pictures: int  # pictures that are decoded after this access point but shown before it


class GopFacts(Value):
    """The number of pictures from one access point to the next."""

    # open: some pictures depend on an earlier group; single: one access point; none: no access point
    structure: Literal["closed", "open", "single", "none"]
    shortest_frames: int | None = None
    median_frames: int | None = None
    longest_frames: int | None = None


class TimelineFacts(Value):
    """Statistics of a video track; packets are numbered in the file's order, from 0."""

    time_base: Ratio
    packets: int
    pictures: int
    first_s: Seconds  # the first picture's time, on the source's own clock
    last_s: Seconds
    duration_s: Seconds
    discarded_packets: int
    corrupt_packets: int
    missing_pts: int
    missing_dts: int  # packets without a DTS after the first one with a DTS; all packets if none has one
    repeated_pts: int
    backward_dts: int
    clock_resets: int
    unreliable_spans: tuple[tuple[int, int], ...]  # the first and last packet of every span in which nothing may be cut
    flagged_packets: int  # packets that the container flags as keyframes
    unusable_keyframes: int  # flagged packets at which decoding cannot begin
    access_points: tuple[AccessPointFacts, ...]
    access_point_kinds: dict[str, int]
    gop: GopFacts
    rate: RateFacts


class CutFacts(Value):
    """Where ``transcode`` would cut by default, in seconds after the first picture."""

    time_s: Seconds
    reason: str


class VideoFacts(Value):
    """A video track; ``picture`` and ``timeline`` are None if they could not be read."""

    picture: PictureFacts | None
    timeline: TimelineFacts | None = None
    cuts: tuple[CutFacts, ...] = ()
    segments: int = 0


class TrackFacts(Value):
    """One track, described from the container's header and the packets."""

    index: int
    kind: str
    codec: str | None
    tag: str
    language: str | None
    language_tag: str | None = None  # the BCP 47 tag if it is more specific than ``language``: pt-BR, zh-Hans
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

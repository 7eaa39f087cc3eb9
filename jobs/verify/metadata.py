"""Checks metadata: colour, HDR, rotation, languages, titles, chapters, attachments and tags."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
from typing import TYPE_CHECKING, cast

import av.error
from av.codec.context import CodecContext
from av.container import InputContainer
from av.packet import Packet
from av.stream import Disposition, Stream
from av.video.format import VideoFormat as PixelFormat
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from ...actors.decode.describe import StreamExtras, axis_scales, describe_extras, describe_video, frame_side_data
from ...actors.media.av_stream import side_data
from ...actors.media.opening import open_source
from ...actors.media.values import (
    HdrStatic,
    MasteringDisplay,
    VideoFormat,
    content_light_from_bytes,
    mastering_display_from_bytes,
)
from .picture_life import UNSTATED, PictureTags
from .pictures import is_rgb
from .stated.facts import StatedCrop
from .streams import Alignment, audio_tracks, covers, data_tracks, only, subtitle_tracks, video_tracks
from .subtitles import check_chapters, check_timecode
from .verdict import Check, check, not_applicable

if TYPE_CHECKING:
    from av.video.codeccontext import VideoCodecContext

_SHAPE_NEAR = Fraction(1, 50)
_LEFT = 1
_SKEW = 1 / 1000
_UNKNOWN_COLOUR = frozenset({0, 2, 3})  # H.273: reserved, unspecified, reserved
_CHROMATICITY = Fraction(1, 25_000)  # AV1 keeps 16 bits per value, and HEVC keeps steps of 1/50000
_LUMINANCE = Fraction(1, 500)
_OWN_TAGS = frozenset(
    {"encoder", "major_brand", "minor_version", "compatible_brands", "duration", "creation_time", "software"}
    | {"handler_name", "handler", "encoding_tool", "encoded_by", "date_modified", "writing_app", "muxing_app"}
    # FLV's tags about the file itself
    | {"filesize", "audiochannels", "audiocodecid", "videocodecid", "audiodatarate", "videodatarate", "framerate"}
    | {"audiosamplerate", "audiosamplesize", "stereo", "width", "height", "timecode"}
)
_MP4_TAGS = frozenset(
    {"title", "artist", "album_artist", "album", "composer", "comment", "genre", "copyright", "date", "description"}
    | {"synopsis", "show", "episode_id", "network", "lyrics", "track", "disc", "grouping"}
)
# These languages have two codes in ISO 639-2; containers keep one of the two.
_CODES = (
    "bod:tib ces:cze cym:wel deu:ger ell:gre eus:baq fas:per fra:fre hye:arm isl:ice kat:geo mkd:mac mri:mao msa:may "
    "mya:bur nld:dut ron:rum slk:slo sqi:alb zho:chi"
)
_BIBLIOGRAPHIC = {pair[:3]: pair[4:] for pair in _CODES.split()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The properties of a video track, according to its container and its first picture."""

    format: VideoFormat
    extras: StreamExtras
    codec: str
    container_hdr: HdrStatic

    def shape(self, crop: StatedCrop | None) -> Fraction:
        """Return the display aspect ratio of pictures after a crop."""
        cut = crop or StatedCrop()
        width, height = self.format.width - cut.left - cut.right, self.format.height - cut.top - cut.bottom
        return self.format.sample_aspect_ratio * max(width, 1) / max(height, 1)


def video_facts(stream: VideoStream, first_frame: VideoFrame, earliest: VideoFrame | None = None) -> Facts:
    """Return a track's properties.

    ``first_frame`` is the first picture of the part, ``earliest`` the first picture of the track.
    """
    of_stream = side_data(stream)
    stated = describe_video(stream, first_frame)
    return Facts(
        format=stated if earliest is None else _of_part(stated, first_frame, earliest),
        extras=describe_extras(stream, first_frame),
        codec=stream.codec_context.codec.canonical_name,
        container_hdr=_hdr(of_stream.get("mastering_display_metadata"), of_stream.get("content_light_level")),
    )


def _of_part(stated: VideoFormat, frame: VideoFrame, earliest: VideoFrame) -> VideoFormat:
    """Return a track's format, updated with the properties in which ``frame`` differs from the first picture."""
    first, own = PictureTags.of(earliest), PictureTags.of(frame)
    values = {name: getattr(own, name) for name in UNSTATED if getattr(own, name) != getattr(first, name)}
    values = {name: value for name, value in values.items() if value not in UNSTATED[name]}
    samples = stated.sample_aspect_ratio if own.samples == first.samples else own.samples
    of_frame, kept = _frame_hdr(frame), _frame_hdr(earliest)
    # FFmpeg's decoders also attach HDR values to later pictures, even if a new sequence has no HDR values.
    unsaid = "transfer" in values and of_frame == kept
    hdr = HdrStatic() if unsaid else stated.hdr if of_frame == kept else of_frame
    return replace(stated, colour=replace(stated.colour, **values), sample_aspect_ratio=samples, hdr=hdr)


def _frame_hdr(frame: VideoFrame) -> HdrStatic:
    found = frame_side_data(frame)
    return _hdr(found.get("MASTERING_DISPLAY_METADATA"), found.get("CONTENT_LIGHT_LEVEL"))


def _hdr(mastering: bytes | None, light: bytes | None) -> HdrStatic:
    return HdrStatic(
        mastering=mastering_display_from_bytes(mastering) if mastering else None,
        light=content_light_from_bytes(light) if light else None,
    )


def check_metadata(source: str, output: str, was: Facts, now: Facts, alignment: Alignment) -> list[Check]:
    """Check that the output has all of the source's metadata that its container can hold."""
    checks = [*_check_picture(was, now, alignment), *_check_hdr(output, was, now, alignment)]
    if alignment.output_holds_tracks:
        with open_source(source) as left, open_source(output) as right:
            checks += _check_file(left, right, alignment)
    return checks


def _check_file(left: InputContainer, right: InputContainer, alignment: Alignment) -> Iterator[Check]:
    before, after = len(video_tracks(left)), len(video_tracks(right))
    if before > 1 or after > 1:
        yield check("tracks.video", before, after)
    if data := len(data_tracks(left)):
        yield check("tracks.data", data, len(data_tracks(right)))
    yield from _check_labels(left, right, alignment)
    yield check_chapters(left, right, alignment)
    pictures = ([_digest(bytes(packet)) for packet in only(each, *covers(each))] for each in (left, right))
    yield check("metadata.cover", *pictures)
    yield _check_tags(left, right, alignment)
    held, found = (
        [(each.name or "", each.mimetype or "", _digest(each.data or b"")) for each in file.streams.attachments]
        for file in (left, right)
    )
    nowhere = "only Matroska holds attachments" if held and not alignment.output_is_matroska else ""
    yield check("metadata.attachments", held, found, unless=nowhere)
    yield from check_timecode(left, right, alignment)


def _check_picture(was: Facts, now: Facts, alignment: Alignment) -> Iterator[Check]:
    before, after = was.format, now.format
    formats = alignment.pix_fmts or (before.pix_fmt,)
    lost = [each for each in formats if _family(each) != _family(after.pix_fmt) and not _holds(after.pix_fmt, each)]
    wanted = ", ".join(_family(each) for each in lost or formats)
    yield check("metadata.pixel-format", wanted, _family(after.pix_fmt), passed=not lost)
    yield _check_aspect(before, after, alignment)
    yield _check_colour("range", _stated_range(before), _stated_range(after), alignment)
    for name in ("primaries", "transfer"):
        yield _check_colour(name, getattr(before.colour, name), getattr(after.colour, name), alignment)
    yield _check_colour("matrix", _stated_matrix(before), _stated_matrix(after), alignment)
    yield _check_chroma(was, now)
    turned, turns = was.extras.display_matrix, now.extras.display_matrix
    unturned = turned is not None and turns is None
    holds_matrix = alignment.output_is_isobmff or alignment.output_is_matroska
    nowhere = "the container has no place for it" if unturned and not holds_matrix else ""
    yield check("metadata.rotation", turned, turns, passed=_turn(turned) == _turn(turns), unless=nowhere)
    for name in ("spherical", "stereo3d", "dovi_configuration"):
        if (value := getattr(was.extras, name)) is not None:
            given = getattr(now.extras, name)
            short = [hashlib.sha256(data).hexdigest()[:8] if data else "none" for data in (value, given)]
            yield check(f"metadata.{name.replace('_', '-')}", *short, passed=value == given)


def _family(pix_fmt: str) -> str:
    """Return a format's name, without the j of yuvj: another check compares the range."""
    return pix_fmt.replace("yuvj", "yuv")


def _holds(found: str, wanted: str) -> bool:
    """Return whether format ``found`` can hold every sample of ``wanted``."""
    target, source = PixelFormat(found), PixelFormat(wanted)
    colours, alpha = _components(source)
    return (
        is_rgb(target) == is_rgb(source)
        and max(c.bits for c in target.components) >= max(c.bits for c in source.components)
        and (colours == 1 or all(a >= b for a, b in zip(_chroma(target), _chroma(source), strict=True)))
        and all(a >= b for a, b in zip(_components(target), (colours, alpha), strict=True))
    )


def _components(pixel: PixelFormat) -> tuple[int, int]:
    alpha = sum(component.is_alpha for component in pixel.components)
    return (3 if pixel.has_palette else len(pixel.components) - alpha), alpha


def _chroma(pixel: PixelFormat) -> tuple[int, int]:
    return (64, 64) if is_rgb(pixel) else (pixel.chroma_width(64), pixel.chroma_height(64))


def _stated_range(picture: VideoFormat) -> int:
    limited, full = 1, 2
    return full if is_rgb(PixelFormat(picture.pix_fmt)) else picture.colour.range or limited


def _stated_matrix(picture: VideoFormat) -> int:
    return 0 if is_rgb(PixelFormat(picture.pix_fmt)) else picture.colour.matrix


def _check_aspect(before: VideoFormat, after: VideoFormat, alignment: Alignment) -> Check:
    wanted = before.sample_aspect_ratio * before.width / before.height
    found = after.sample_aspect_ratio * after.width / after.height
    if not alignment.output_holds_tracks and wanted != found and after.sample_aspect_ratio == 1:
        return not_applicable("metadata.aspect", "the container states none, and the bitstream need not state any")
    same_size = (before.width, before.height) == (after.width, after.height)
    passed = wanted == found if same_size else abs(found / wanted - 1) < _SHAPE_NEAR
    shapes_seen = alignment.seen.get("shape", ())
    passed = passed or (len(shapes_seen) > 1 and any(abs(found / each - 1) < _SHAPE_NEAR for each in shapes_seen))
    shapes = [f"{f.width}x{f.height}, samples {f.sample_aspect_ratio}" for f in (before, after)]
    return check("metadata.aspect", *shapes, passed=passed)


def _check_colour(name: str, before: int, after: int, alignment: Alignment) -> Check:
    """Compare a value of the first picture. If pictures change, the output may state the value of any picture."""
    # Matrix 0 is the identity of RGB, not a reserved value.
    unknown = {"matrix": _UNKNOWN_COLOUR - {0}, "range": frozenset()}.get(name, _UNKNOWN_COLOUR)
    seen = alignment.seen.get(name, ())
    passed = before == after or {before, after} <= unknown or (len(seen) > 1 and after in seen)
    return check(f"metadata.{name}", before, after, passed=passed)


def _check_chroma(was: Facts, now: Facts) -> Check:
    before, after = was.format.colour.chroma_location, now.format.colour.chroma_location
    both_left = {before, after} <= {0, _LEFT}
    nowhere = now.codec == "vp9" and after in (0, _LEFT) and not both_left
    unless = "a VP9 bitstream has no place for it" if nowhere else ""
    return check("metadata.chroma-location", before, after, passed=both_left or before == after, unless=unless)


def _turn(matrix: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Return how a display matrix turns and flips; players ignore translation and scale.

    A skew by at most a thousandth of the picture is ignored.
    """
    if matrix is None:
        return None
    a, b, _, c, d, *_ = matrix
    across, down = (scale or 1.0 for scale in axis_scales(matrix))
    values = (a / across, b / down, c / across, d / down)
    turn = tuple((value > _SKEW) - (value < -_SKEW) for value in values)
    return None if turn == (1, 0, 0, 1) else turn


def _check_hdr(output: str, was: Facts, now: Facts, alignment: Alignment) -> list[Check]:
    wanted = was.format.hdr
    if wanted == HdrStatic():
        found, held = now.format.hdr, "no HDR values appeared"
        return [check("hdr.none", "no HDR values", found, passed=found == HdrStatic(), held=held)]
    holds_hdr = alignment.output_is_isobmff or alignment.output_is_matroska
    nowhere = "" if holds_hdr else "the container has no place for HDR values"
    checks = [_check_static("hdr.container", wanted, now.container_hdr, unless=nowhere)]
    if now.codec in ("vp9", "vp8"):
        return [*checks, not_applicable("hdr.bitstream", "a VP9 bitstream has no place for HDR values")]
    return [*checks, _check_static("hdr.bitstream", wanted, _bitstream_hdr(output))]


def _check_static(name: str, wanted: HdrStatic, found: HdrStatic, *, unless: str = "") -> Check:
    mastering = _same_mastering(wanted.mastering, found.mastering)
    return check(name, wanted, found, passed=mastering and wanted.light == found.light, unless=unless)


def _same_mastering(wanted: MasteringDisplay | None, found: MasteringDisplay | None) -> bool:
    if wanted is None or found is None:
        return wanted is found
    names = ("red", "green", "blue", "white")
    points = [pair for name in names for pair in zip(getattr(wanted, name), getattr(found, name), strict=True)]
    lights = [(wanted.max_luminance, found.max_luminance), (wanted.min_luminance, found.min_luminance)]
    near = [abs(a - b) <= _LUMINANCE * max(a, Fraction(1, 5)) for a, b in lights]
    return all(near) and all(abs(a - b) <= _CHROMATICITY for a, b in points)


def _bitstream_hdr(output: str) -> HdrStatic:
    """Return the HDR values of the bitstream only; FFmpeg would add the container's values."""
    with open_source(output) as container:
        stream = video_tracks(container)[0]
        decoder = cast("VideoCodecContext", CodecContext.create(stream.codec_context.codec.name, "r"))
        decoder.extradata = stream.codec_context.extradata
        with suppress(av.error.FFmpegError):
            # If a film has a single picture, the decoder returns it only when flushed.
            for packet in chain(only(container, stream), [None]):
                bare = None
                if packet is not None:
                    bare = cast("Packet[VideoStream]", Packet(packet.size))
                    bare.update(bytes(packet))
                for frame in decoder.decode(bare):
                    return _frame_hdr(frame)
    return HdrStatic()


def _language(stream: Stream) -> str:
    """Return a track's language; "und" if the stated text cannot be a language code."""
    stated = stream.metadata.get("language", "")
    return stated if stated and stated.isascii() and stated.isprintable() else "und"


def _check_labels(left: InputContainer, right: InputContainer, alignment: Alignment) -> Iterator[Check]:
    audio = audio_tracks(left)
    if alignment.tracks is not None:
        audio = [audio[n] for n in alignment.tracks if n < len(audio)]
    pairs = [
        *_pairs("audio", audio, audio_tracks(right), alignment),
        *_pairs("subtitles", subtitle_tracks(left), subtitle_tracks(right), alignment),
    ]
    tags = {} if alignment.files is None else alignment.files.language_tags(alignment.tracks)
    for label, a, b in pairs:
        before, after = (_language(stream) for stream in (a, b))
        same = _BIBLIOGRAPHIC.get(before, before) == _BIBLIOGRAPHIC.get(after, after)
        tag, kept = tags.get(label, ("", ""))
        # A code of three letters can replace a code of two letters, but not a region or a script.
        held = tag.lower() == kept.lower() or "-" not in tag
        same = same or (held and before == tag)
        texts = (f"{before} {tag}".strip(), f"{after} {kept}".strip())
        yield check(f"metadata.language.{label}", *texts, passed=same and held)
        if (title := _title(a)) is not None:
            nowhere = "a transport stream has no place for titles" if alignment.output_is_ts else ""
            yield check(f"metadata.title.{label}", title, _title(b), unless=nowhere)
        yield _check_disposition(f"metadata.disposition.{label}", a, b, alignment)


def _pairs(
    kind: str, left: Sequence[Stream], right: Sequence[Stream], alignment: Alignment
) -> list[tuple[str, Stream, Stream]]:
    kept = [(f"{kind}-{n}", stream) for n, stream in enumerate(left) if stream.index not in alignment.dropped]
    return [(label, a, b) for (label, a), b in zip(kept, right, strict=False)]


def _title(stream: Stream) -> str | None:
    # FFmpeg calls the title of an mp4 track "name".
    return stream.metadata.get("title") or stream.metadata.get("name") or None


def _check_disposition(name: str, left: Stream, right: Stream, alignment: Alignment) -> Check:
    if alignment.output_is_ts:
        return not_applicable(name, "a transport stream has no place for dispositions")
    # mp4 has only an enabled flag, which is always set on the first track of a kind.
    kept = int(Disposition.default if alignment.output_is_isobmff else ~0)
    before, after = (int(stream.disposition) & kept for stream in (left, right))
    passed = before == after or (alignment.output_is_isobmff and after & before == before)
    return check(name, Disposition(before), Disposition(after), passed=passed)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _check_tags(left: InputContainer, right: InputContainer, alignment: Alignment) -> Check:
    nowhere = "a transport stream has no place for tags" if alignment.output_is_ts else ""
    keep: Callable[[str], bool] = _MP4_TAGS.__contains__ if alignment.output_is_isobmff else lambda _: True
    before = {key: value for key, value in _tags(left.metadata).items() if keep(key)}
    after = _tags(right.metadata)
    lost = sorted(key for key, value in before.items() if after.get(key) != value)
    found = f"lost or changed: {', '.join(lost) or 'none'}"
    return check("metadata.tags", f"{len(before)} tags", found, passed=not lost, unless=nowhere)


def _tags(metadata: Mapping[str, str]) -> dict[str, str]:
    tags = {key.lower(): value for key, value in metadata.items() if key.lower() not in _OWN_TAGS}
    # FFmpeg returns an mp4 tag with a language twice: as "location" and as "location-eng".
    return {key: value for key, value in tags.items() if tags.get(key.rpartition("-")[0]) != value}

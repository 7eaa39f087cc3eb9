"""Decides the picture format of the output and the filters before the encoder, from the source and the spec. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from ...actors.decode.describe import StreamExtras
from ...actors.encode.pix_fmt import choose_pix_fmt, is_rgb
from ...actors.encode.settings import Codec
from ...actors.media.values import Colour, HdrStatic, VideoFormat
from ...actors.segment.filtering import FilterSettings
from ...actors.segment.steps import PictureSteps, Size
from ...actors.segment.tone import ToneMap
from ...actors.settle.software import codes_interlaced
from ...errors import Unsupported
from ..carry.changes import change_losses, conversions, hdr_picture
from ..report.report import Warning_
from ..request.spec import TranscodeSpec
from ..source.life import UNCHANGING, PictureLife
from .overlay import settle_burn, settle_overlay
from .pace import SourcePart
from .reads import Reads
from .steps import Framing, canvas, settle_framing, settle_steps, stated_losses, step_choices
from .tone import settle_tone

_FORMAT_CHECKS = ("metadata.pixel-format", "metadata.range", "metadata.matrix")
_FIELD_CHECKS = ("pictures.interlaced",)
_LIMITED, _FULL = 1, 2
_IDENTITY, _BT709, _SMPTE170M, _BT2020 = 0, 1, 6, 9
_HD_LINES = 720  #: From this height on, RGB that is not BT.2020 gets BT.709's matrix
SVT_NARROW, SVT_SHORT = 24, 64  #: SVT-AV1 4 returns no data if one side is at most 24 and the other is over 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledFilters:
    """The filters before the encoder, and their effects."""

    filters: FilterSettings
    extras: StreamExtras  #: The side data of the output's video track
    changes: tuple[Warning_, ...]  #: Unrequested differences
    losses: tuple[Warning_, ...]
    choices: tuple[Warning_, ...]  #: Differences that were requested


@dataclass(frozen=True, slots=True)
class SettledPicture:
    """The output's picture format, and the steps that produce it."""

    format: VideoFormat
    steps: PictureSteps | None
    changes: tuple[Warning_, ...]  #: Unrequested differences
    tone: ToneMap | None = None


def settle_filters(reads: Reads, part: SourcePart, spec: TranscodeSpec, codec: Codec) -> SettledFilters:
    """Return the filters for a part of the source.

    Raises InputError: an overlay or subtitles could not be read; Unsupported: the options conflict with the pictures,
    or with each other.
    """
    source, extras, reading = part.format, part.extras, part.reading
    framing = settle_framing(source, extras, spec, reads.picture.get().region)
    settled = settle_picture(source, spec, codec, framing, reading.life)
    overlay = settle_overlay(reads.overlay, settled.format, spec)
    burn, losses = settle_burn(reads.subtitles, reading.index, source, settled.format, settled.steps)
    losses += change_losses(
        reading.life,
        source,
        reading.index,
        settled.tone,
        codes_fields=codes_interlaced(codec, settled.format),
    )
    filters = FilterSettings(
        settled.format,
        spec.deinterlace,
        first_field=extras.unflagged_field,
        steps=settled.steps,
        tone=settled.tone,
        denoise=spec.denoise,
        overlay=overlay,
        rate=part.rate,
        burn=burn,
        by_picture=bool(reading.index.colours),
    )
    return SettledFilters(
        filters=filters,
        extras=framing.extras(extras),
        changes=(*settled.changes, *conversions(reading.life, source, reading.index)),
        losses=(*stated_losses(source, extras, framing.stated), *losses),
        choices=(*step_choices(settled.steps, framing, extras), *filter_choices(filters)),
    )


def filter_choices(filters: FilterSettings) -> Iterator[Warning_]:
    """Yield a note on each requested filter.

    ``verify`` applies these filters to the reference too, so the note excuses no failed check.
    """
    for code, step, message in (
        ("tone-mapping", filters.tone, "the pictures are {0.words}, without HDR values"),
        ("overlay", filters.overlay, "the pictures are {0.words}"),
        ("frame-rate", filters.rate, "the pictures are {0.words}"),
        ("subtitles-burnt", filters.burn, "the subtitles of {0.track} are burnt into the pictures"),
    ):
        if step is not None:
            yield Warning_(code=code, message=message.format(step), checks=())


def settle_picture(
    source: VideoFormat, spec: TranscodeSpec, codec: Codec, framing: Framing, life: PictureLife = UNCHANGING
) -> SettledPicture:
    """Return the output's picture format and steps, for the given framing.

    Raises Unsupported: the encoder does not support the size or format; the border does not fit; ``--denoise`` would
    mix fields; or HDR that is not BT.2020 cannot be tone mapped.
    """
    if spec.denoise != "off" and source.interlaced and spec.deinterlace == "off":
        message = "the pictures are interlaced: --denoise would mix their fields"
        raise Unsupported(message, "Add --deinterlace on.")
    framed = framing.framed(source)
    scaled = _size(framed, spec)
    shape = _aspect_ratio(framed, *scaled)
    width, height = canvas(scaled, shape, spec.pad)
    if codec is Codec.AV1 and min(width, height) <= SVT_NARROW and max(width, height) > SVT_SHORT:
        message = f"libsvtav1 cannot encode pictures as narrow as {width}x{height}"
        raise Unsupported(message, "Use --scale, or choose another --codec.")
    changes = []
    pix_fmt, reason = choose_pix_fmt(
        codec, spec.pix_fmt or source.pix_fmt, width=width, height=height, asked=spec.pix_fmt is not None
    )
    if reason is not None:
        checks = _FORMAT_CHECKS if is_rgb(source.pix_fmt) else _FORMAT_CHECKS[:1]
        changes.append(Warning_(code="pixel-format", message=reason, checks=checks))
    tone = settle_tone(hdr_picture(source, life), spec)
    if spec.tonemap is not None and tone is None:
        message = "--tonemap has no effect: the source's pictures are not marked as HDR"
        changes.append(Warning_(code="not-hdr", message=message, checks=()))
    interlaced = source.interlaced and spec.deinterlace == "off"
    settled = replace(source, width=width, height=height, pix_fmt=pix_fmt, sample_aspect_ratio=shape)
    settled = replace(settled, colour=_colour(source, pix_fmt, height), interlaced=interlaced)
    settled = replace(settled, frame_rate=spec.fps or source.frame_rate)
    if tone is not None:
        settled = _in_sdr(settled)
    steps = settle_steps(source, framing, scaled, settled, spec)
    return SettledPicture(settled, steps, tuple(changes), tone)


def _colour(source: VideoFormat, pix_fmt: str, height: int) -> Colour:
    colour = source.colour
    if source.pix_fmt.startswith("yuvj"):
        # These old formats have full range, which only their names state.
        colour = replace(colour, range=_FULL)
    return _colour_of_rgb(colour, pix_fmt, height) if is_rgb(source.pix_fmt) else colour


def _in_sdr(picture: VideoFormat) -> VideoFormat:
    matrix = _IDENTITY if is_rgb(picture.pix_fmt) else _BT709
    colour = replace(picture.colour, primaries=_BT709, transfer=_BT709, matrix=matrix)
    return replace(picture, colour=colour, hdr=HdrStatic())


def _colour_of_rgb(colour: Colour, pix_fmt: str, height: int) -> Colour:
    """Return the colour for pictures that were RGB: full-range RGB, or limited-range YUV with the usual matrix."""
    if is_rgb(pix_fmt):
        return replace(colour, range=_FULL, matrix=_IDENTITY)
    if colour.primaries == _BT2020:
        return replace(colour, range=_LIMITED, matrix=_BT2020)
    return replace(colour, range=_LIMITED, matrix=_BT709 if height >= _HD_LINES else _SMPTE170M)


def picture_choices(source: VideoFormat, spec: TranscodeSpec, output: VideoFormat) -> tuple[Warning_, ...]:
    """Return the requested changes of pixel format and size, deinterlacing and denoising."""
    found = []
    if spec.pix_fmt is not None and output.pix_fmt != source.pix_fmt:
        message = f"{output.pix_fmt} was requested; the source has {source.pix_fmt}"
        found.append(Warning_(code="pixel-format", message=message, checks=_FORMAT_CHECKS))
    if spec.scale is not None and (output.width, output.height) != (source.width, source.height):
        message = f"{output.width}x{output.height} was requested; the source has {source.width}x{source.height}"
        found.append(Warning_(code="size", message=message, checks=("metadata.aspect",)))
    if source.interlaced and not output.interlaced:
        found.append(Warning_(code="deinterlaced", message="the pictures are deinterlaced", checks=_FIELD_CHECKS))
    if spec.denoise != "off":
        message = f"the pictures are denoised ({spec.denoise})"
        found.append(Warning_(code="denoise", message=message, checks=()))
    return tuple(found)


def _size(source: VideoFormat, spec: TranscodeSpec) -> Size:
    if spec.scale is None:
        return source.width, source.height
    width, height = spec.scale
    if width is None:
        # Keep the shape, but make the width even: nearly every player needs an even width for 4:2:0 chroma.
        width = max(2, 2 * round(Fraction(source.width * height, source.height) / 2))
    return width, height


def _aspect_ratio(source: VideoFormat, width: int, height: int) -> Fraction:
    """Return the sample aspect ratio that keeps the display shape of the source after scaling."""
    display = source.sample_aspect_ratio * source.width / source.height
    ratio = display * height / width
    # Rounding to an even width must not make square samples 1281:1280.
    return source.sample_aspect_ratio if abs(ratio / source.sample_aspect_ratio - 1) < Fraction(1, 200) else ratio

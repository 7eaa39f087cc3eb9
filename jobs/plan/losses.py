"""Finds the properties that the output's video loses because of its encoder, its codec or its container."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ...actors.bitstream.riders import (
    AFD,
    ALPHA,
    CAPTIONS,
    DOLBY_VISION,
    HDR10_PLUS,
    HDR10_PLUS_WINDOWS,
    HDR_VIVID,
    LCEVC,
    ROTATION,
    SECOND_VIEW,
    STEREO,
)
from ...actors.decode.describe import StreamExtras
from ...actors.encode.settings import Codec, EncoderSettings
from ...actors.media.values import Colour, VideoFormat
from ...actors.segment.filtering import FilterSettings
from ...actors.settle.software import codes_interlaced
from ...errors import InputDamaged, Unsupported, WouldLose
from ..carry.containers import Container, SampleShape
from ..report.report import Warning_
from ..request.spec import TranscodeSpec
from ..source.source import SourceReading

_WITH_CAPTIONS = frozenset({Codec.H264, Codec.HEVC})
_WITH_HDR_IN_BITSTREAM = frozenset({Codec.H264, Codec.HEVC, Codec.AV1})
#: The range in which an SEI message can state a mastering display's peak, in cd/m² (H.264 D.2.29)
LOWEST_PEAK, HIGHEST_PEAK = 5, 10_000
_ALPHA_CHECKS = ("metadata.alpha", "metadata.pixel-format")
_LARGEST_SHAPE_TERM = (1 << 16) - 1
_DOVI_WITHOUT_BASE_LAYER = 5  #: The profile of Dolby Vision in which colours are wrong without the metadata
_DOVI_OVER_BASE_LAYER = 8


def picture_losses(extras: StreamExtras, encoder: EncoderSettings, container: Container) -> tuple[Warning_, ...]:
    """Return a warning for each property of the video track that the output loses."""
    return tuple(
        Warning_(code=code, message=message, checks=tuple(checks))
        for code, message, *checks in _losses(extras, encoder, container)
    )


def _losses(extras: StreamExtras, encoder: EncoderSettings, container: Container) -> Iterator[tuple[str, ...]]:
    """Yield each loss: its code, its message, and the checks of ``verify`` that may fail because of it."""
    codec, output = encoder.codec, encoder.format
    is_repaced = dict(encoder.options).get("a53cc") == "0"
    if extras.captions and (codec not in _WITH_CAPTIONS or encoder.on_device or is_repaced):
        writer = "NVENC writes none" if encoder.on_device else f"codecfleet does not write them in {codec}"
        writer = "at another frame rate, letters would be repeated or missing" if is_repaced else writer
        message = f"closed captions{_since(extras, CAPTIONS)} are lost: {writer}"
        yield "captions-dropped", message, "metadata.captions"
    if output.interlaced and (encoder.on_device or not codes_interlaced(codec, output)):
        message = "interlaced pictures are encoded as whole frames, without their field order"
        yield "interlace-flag", message, "pictures.interlaced"
    has_dolby_vision = extras.dovi_configuration is not None or DOLBY_VISION in extras.frame_kinds
    if has_dolby_vision and not encoder.dolby_vision:
        message = f"Dolby Vision's metadata{_since(extras, DOLBY_VISION)} is lost; the base layer is kept"
        yield "dovi-dropped", message, "metadata.dovi-configuration", "metadata.dovi-rpu"
    for kind, (code, what, why, *checks) in _UNWRITTEN.items():
        if kind in extras.frame_kinds:
            yield code, f"{what}{_since(extras, kind)} is lost{why}", *checks
    for kind, code, what, stated in (
        (STEREO, "stereo3d-dropped", "the arrangement of the two views", extras.stereo3d),
        (ROTATION, "rotation-dropped", "the rotation", extras.display_matrix),
    ):
        if stated is None and (since := _since(extras, kind)) and kind in extras.frame_kinds:
            yield code, f"{what}{since} is lost: a container states one value for all pictures"
    yield from _container_losses(output, codec, container)


_NO_WRITER = ": the encoders do not write it"
_UNWRITTEN = {
    HDR_VIVID: ("hdr-vivid-dropped", "HDR Vivid's dynamic metadata", _NO_WRITER),
    LCEVC: ("lcevc-dropped", "the LCEVC enhancement", "; the base layer is kept"),
    SECOND_VIEW: ("second-view-dropped", "the second view of the stereo video", "; the first one is kept"),
    ALPHA: ("alpha-dropped", "the transparency (alpha)", ": the encoders have no place for it", *_ALPHA_CHECKS),
}
"""The side data that no encoder writes: warning code, name, reason, and the checks that fail."""


def message_losses(
    extras: StreamExtras, codec: Codec, filters: FilterSettings, source: VideoFormat
) -> dict[str, Warning_]:
    """Return a warning for each kind of message, such as HDR10+, that is lost; ``source`` is the source's format."""
    output = filters.output
    is_scaled = (output.width, output.height) != (source.width, source.height)
    found = {}
    for kind, (code, what, codecs, *checks) in _MESSAGES.items():
        if kind not in extras.frame_kinds:
            continue
        if kind not in {rider.kind for rider in extras.riders}:
            reason = "it is not read from packets of this codec"
        elif codec not in codecs:
            reason = f"codecfleet does not write it in {codec}"
        elif not filters.keeps_colours:
            reason = "the pictures that it describes are changed"
        elif kind == HDR10_PLUS and is_scaled and HDR10_PLUS_WINDOWS in extras.frame_kinds:
            reason = "it names places in the pictures, whose size changes"
        else:
            continue
        message = f"{what}{_since(extras, kind)} is lost: {reason}"
        found[kind] = Warning_(code=code, message=message, checks=tuple(checks))
    return found


_MESSAGES: Final[Mapping[str, tuple[str, str, frozenset[Codec], *tuple[str, ...]]]] = {
    AFD: ("afd-dropped", "the active format description (AFD)", frozenset({Codec.H264, Codec.HEVC}), "metadata.afd"),
    HDR10_PLUS: (
        "hdr10plus-dropped",
        "HDR10+ dynamic metadata",
        frozenset({Codec.HEVC, Codec.AV1}),
        "metadata.hdr10plus",
        "metadata.hdr10plus-message",
    ),
}
"""The messages that we write: warning code, name, the codecs that can have them, and the checks that fail."""


def _since(extras: StreamExtras, kind: str) -> str:
    """Return ", from N s on," if this kind of side data starts after the first picture; otherwise ""."""
    begins = next((rider.first_s for rider in extras.riders if rider.kind == kind), None)
    return f", from {float(begins):.3f} s on," if begins else ""


def _container_losses(output: VideoFormat, codec: Codec, container: Container) -> Iterator[tuple[str, ...]]:
    name = f".{container.name}"
    if not container.has_header:
        if (output.hdr.mastering is not None or output.hdr.light is not None) and codec not in _WITH_HDR_IN_BITSTREAM:
            message = f"HDR10 values are lost: neither {codec} nor {name} can hold them"
            yield "hdr-dropped", message, "hdr.container", "hdr.bitstream"
        if codec is Codec.VP9 and output.colour != Colour():
            reason = f"neither VP9 nor {name} can hold"
            yield "primaries-dropped", f"the colour primaries are lost: {reason} them", "metadata.primaries"
            yield "transfer-dropped", f"the transfer function is lost: {reason} it", "metadata.transfer"
    if _rounds_shape(output, codec, container):
        yield "aspect-rounded", f"the sample aspect ratio is rounded: {name} is less precise", "metadata.aspect"
    if output.sample_aspect_ratio != 1 and not container.holds_tracks and codec in (Codec.AV1, Codec.VP9):
        message = f"the sample aspect ratio is lost: neither {codec} nor {name} can hold it"
        yield "aspect-dropped", message, "metadata.aspect"
    peak = 0 if output.hdr.mastering is None else output.hdr.mastering.max_luminance
    if codec in (Codec.H264, Codec.HEVC) and peak and not LOWEST_PEAK <= peak <= HIGHEST_PEAK:
        message = "the mastering display's luminance is outside the range of HEVC and H.264"
        yield "bitstream-luminance", message, "hdr.bitstream"
    if codec is Codec.AV1 and output.hdr.mastering is not None and not output.hdr.mastering.max_luminance:
        message = (
            "the mastering display's colours are lost in the bitstream: the AV1 encoder writes them only with luminance"
        )
        yield "bitstream-luminance", message, "hdr.bitstream"
    if not container.carries_times:
        yield "times-dropped", f"presentation times are lost: {name} holds only the pictures, in order"


def _rounds_shape(output: VideoFormat, codec: Codec, container: Container) -> bool:
    """Return whether the sample aspect ratio is rounded: to whole pixels in Matroska, to 16 bits in H.264 and HEVC."""
    shape = output.sample_aspect_ratio
    if container.sample_shape is SampleShape.EXACT:
        return False
    if codec in (Codec.H264, Codec.HEVC):
        return max(shape.numerator, shape.denominator) > _LARGEST_SHAPE_TERM
    return container.sample_shape is SampleShape.PIXELS and (output.width * shape).denominator != 1


def check_dolby_vision(extras: StreamExtras, spec: TranscodeSpec) -> None:
    """Raise Unsupported for Dolby Vision profile 5, unless the job has ``force``."""
    if extras.dovi_profile == _DOVI_WITHOUT_BASE_LAYER and not spec.force:
        message = f"{spec.source} is Dolby Vision profile 5: its colours would be wrong after re-encoding"
        raise Unsupported(message, "Use --force to encode the film anyway.")


def check_nothing_is_lost(losses: Sequence[Warning_], reading: SourceReading) -> None:
    """Check a job with ``--strict``.

    Raises WouldLose: the output loses something; InputDamaged: the source is damaged, or its times were repaired.
    """
    if losses:
        message = "; ".join(loss.message for loss in losses)
        raise WouldLose(message, "Leave out --strict to accept this, or choose another container or codec.")
    index = reading.index
    if reading.is_cut_short:
        advice = "Get the whole file, or leave out --strict to encode the part that can be read."
        raise InputDamaged(f"{index.source} is cut short", advice)
    if index.shifts or index.states_too_long:
        resets = f"the source's clock was reset {len(index.shifts)} times"
        lasting = f"the last picture would be shown for {index.stated_last_words}"
        raise InputDamaged(resets if index.shifts else lasting, "Leave out --strict to repair the timestamps.")


def keeps_dolby_vision(extras: StreamExtras, codec: Codec, picture: VideoFormat, container: Container) -> bool:
    """Return whether Dolby Vision's metadata is kept: profile 8 as 10-bit HEVC, in a container that can declare it."""
    fits = codec is Codec.HEVC and picture.pix_fmt == "yuv420p10le"
    return extras.dovi_profile == _DOVI_OVER_BASE_LAYER and fits and container.dolby_vision

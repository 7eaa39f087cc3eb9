"""What of the pictures themselves cannot be carried into the output, named one by one.

Tracks, tags and chapters are ``carry``'s; this is about what rides on the video track: captions, dynamic HDR, a second
view, field coding, and what the container has no place for.
"""

from collections.abc import Iterator

from ..actors.describe import StreamExtras
from ..actors.encoder_settings import Codec, EncoderSettings
from ..actors.encoder_tables import codes_interlaced
from ..actors.media import Colour, VideoFormat
from .containers import Container
from .report import Warning_

__all__ = ["picture_losses"]

_WITH_CAPTIONS = frozenset({Codec.H264, Codec.HEVC})
_WITH_HDR_IN_BITSTREAM = frozenset({Codec.H264, Codec.HEVC, Codec.AV1})
LOWEST_PEAK, HIGHEST_PEAK = 5, 10_000
"""Peak luminance of a mastering display, in cd/m², that an SEI message can state."""
_SECOND_VIEW = "VIEW_ID"


def picture_losses(extras: StreamExtras, encoder: EncoderSettings, container: Container) -> tuple[Warning_, ...]:
    """Return a warning for everything on the video track that the output cannot hold."""
    return tuple(
        Warning_(code=code, message=message, checks=tuple(checks))
        for code, message, *checks in _losses(extras, encoder, container)
    )


def _losses(extras: StreamExtras, encoder: EncoderSettings, container: Container) -> Iterator[tuple[str, ...]]:
    """Yield the code, the message, and the checks of ``verify`` that may fail because of it."""
    codec, output = encoder.codec, encoder.format
    boxed = container.is_isobmff or container.is_matroska
    if extras.captions and (codec not in _WITH_CAPTIONS or encoder.on_device):
        writer = "NVENC writes none" if encoder.on_device else f"{codec} has no place for them here"
        yield "captions-dropped", f"closed captions are lost: {writer}", "metadata.captions"
    if "AFD" in extras.frame_kinds:
        yield "afd-dropped", "the active format description (AFD) is lost: the encoders do not write it", "metadata.afd"
    if output.interlaced and (encoder.on_device or not codes_interlaced(codec, output)):
        yield "interlace-flag", "interlaced pictures are coded as they are, as whole frames, without their field order"
    if "DYNAMIC_HDR_PLUS" in extras.frame_kinds:
        yield "hdr10plus-dropped", "HDR10+ dynamic metadata is lost: the encoders do not write it", "metadata.hdr10plus"
    if extras.dovi_configuration is not None and not encoder.dolby_vision:
        message = "Dolby Vision's metadata is lost; the base layer is kept"
        yield "dovi-dropped", message, "metadata.dovi-configuration", "metadata.dovi-rpu"
    if _SECOND_VIEW in extras.frame_kinds:
        yield "second-view-dropped", "the second view of the stereo video is lost; the first one is kept"
    yield from _container_losses(output, extras, codec, container, boxed=boxed)


def _container_losses(
    output: VideoFormat, extras: StreamExtras, codec: Codec, container: Container, *, boxed: bool
) -> Iterator[tuple[str, ...]]:
    name = f".{container.name}"
    if not boxed:
        if extras.display_matrix is not None:
            yield "rotation-dropped", f"the rotation is lost: {name} has no place for it", "metadata.rotation"
        if extras.spherical is not None:
            yield "spherical-dropped", f"spherical metadata is lost: {name} has no place for it", "metadata.spherical"
        if extras.stereo3d is not None:
            message = f"the arrangement of the two views is lost: {name} has no place for it"
            yield "stereo3d-dropped", message, "metadata.stereo3d"
        if _has_hdr(output) and codec not in _WITH_HDR_IN_BITSTREAM:
            message = f"HDR10 values are lost: neither {codec} nor {name} has a place for them"
            yield "hdr-dropped", message, "hdr.container", "hdr.bitstream"
        if codec is Codec.VP9 and output.colour != Colour():
            message = f"the colour primaries are lost: neither VP9 nor {name} has a place for them"
            yield "primaries-dropped", message, "metadata.primaries"
            message = f"the transfer function is lost: neither VP9 nor {name} has a place for it"
            yield "transfer-dropped", message, "metadata.transfer"
    if container.muxer == "webm" and (output.width * output.sample_aspect_ratio).denominator != 1:
        message = f"the sample aspect ratio is rounded: {name} states the shape in whole pixels"
        yield "aspect-rounded", message, "metadata.aspect"
    if codec in (Codec.H264, Codec.HEVC) and not _fits_sei(output):
        message = "the mastering display's luminance is outside what HEVC and H.264 can state"
        yield "bitstream-luminance", message, "hdr.bitstream"
    if not container.carries_times:
        yield "times-dropped", f"presentation times are lost: {name} holds pictures in order, and nothing else"


def _fits_sei(output: VideoFormat) -> bool:
    """Tell whether the mastering display's peak lies in the range of the SEI message (H.264 D.2.29: 5 to 10,000)."""
    mastering = output.hdr.mastering
    return mastering is None or LOWEST_PEAK <= mastering.max_luminance <= HIGHEST_PEAK


def _has_hdr(output: VideoFormat) -> bool:
    return output.hdr.mastering is not None or output.hdr.light is not None

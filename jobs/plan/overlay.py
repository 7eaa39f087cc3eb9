"""The picture that is laid over the film's: where it lies, settled from the request and the output's pictures."""

from typing import TYPE_CHECKING, Final

from ...actors.media.values import VideoFormat
from ...actors.segment.overlay import Overlay
from ...actors.segment.overlay_colours import takes_overlay
from ...actors.segment.steps import Size
from ...errors import Unsupported
from ..report.report import Warning_
from ..request.spec import TranscodeSpec
from ..source.overlay_file import OverlayFile

if TYPE_CHECKING:
    from ..request.values import Corner

MARGIN_SHARE: Final = 40
"""A picture in a corner keeps this part of the film's width from both edges."""


def settle_overlay(output: VideoFormat, spec: TranscodeSpec) -> Overlay | None:
    """Return what is laid over pictures in ``output``'s format; None where nothing is.

    Raises:
        InputError: its file cannot be read.
        Unsupported: it does not fit the pictures, or they are interlaced or of colours that it cannot be coded in.
    """
    if spec.overlay is None:
        return None
    if output.interlaced:
        message = "the pictures are interlaced: --overlay would mix their fields"
        raise Unsupported(message, "Add --deinterlace on.")
    if not takes_overlay(output):
        colours = f"{output.pix_fmt} by matrix {output.colour.matrix} of H.273"
        raise Unsupported(f"--overlay cannot be laid on pictures in {colours}", "Use --pix-fmt yuv420p.")
    file = OverlayFile.read(spec.overlay)
    width, height = file.size
    x, y = placed(file.size, (output.width, output.height), spec.overlay_at)
    if not width or not height or x + width > output.width or y + height > output.height:
        message = f"the overlay picture of {width}x{height} at {x}:{y} reaches outside {output.width}x{output.height}"
        raise Unsupported(message, "Make it smaller, or place it with --overlay-at.")
    # Only a picture that can be decoded is sent.
    file.samples()
    return Overlay(
        width=width,
        height=height,
        x=x,
        y=y,
        opacity=spec.overlay_opacity,
        sha256=file.sha256,
        png=file.content,
    )


def placed(size: Size, outer: Size, at: "tuple[int, int] | Corner") -> tuple[int, int]:
    """Return where the upper left corner of a picture lies in an ``outer`` one: as given, or in a corner by name."""
    if not isinstance(at, str):
        return at
    room = [max(0, whole - own) for own, whole in zip(size, outer, strict=True)]
    if at == "center":
        return room[0] // 2, room[1] // 2
    margin = outer[0] // MARGIN_SHARE
    near = [min(margin, each) for each in room]
    far = [each - edge for each, edge in zip(room, near, strict=True)]
    return (far if at.endswith("right") else near)[0], (far if at.startswith("bottom") else near)[1]


def overlay_choices(overlay: Overlay | None) -> tuple[Warning_, ...]:
    """Return what was asked for; ``verify`` lays the same on its reference, so no check may fail."""
    if overlay is None:
        return ()
    return (Warning_(code="overlay", message=f"the pictures are {overlay.words}", checks=()),)

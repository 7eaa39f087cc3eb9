"""Cropping, turning and padding: decides the picture steps from the request and the source. Pure."""

from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Final, cast

from ...actors.decode.describe import StreamExtras, axis_scales
from ...actors.media.values import VideoFormat
from ...actors.segment.steps import (
    CLOCKWISE,
    MIRRORED,
    UPRIGHT,
    UPSIDE_DOWN,
    PictureSteps,
    Region,
    Size,
    Turn,
    chroma_step,
    combined,
    turned_size,
)
from ...errors import Unsupported
from ..report.report import Warning_
from ..request.spec import TranscodeSpec

_TILT: Final = 1 / 256  #: How far a display matrix may deviate from a quarter turn
_FLIPS: Final = {None: UPRIGHT, "h": MIRRORED, "v": UPSIDE_DOWN}
_TYPE_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Framing:
    """How each picture is cropped and turned, before it is scaled."""

    crop: Region  #: The part of the decoded picture to keep
    turn: Turn  #: How to turn the part
    replaces_matrix: bool  #: Whether the turn includes the source's display matrix; then the output omits the matrix
    stated: Region  #: The part that the source's container shows; by default all of the decoded picture

    def framed(self, source: VideoFormat) -> VideoFormat:
        """Return the format that pictures of ``source`` have once cropped and turned."""
        width, height = turned_size((self.crop.width, self.crop.height), self.turn)
        shape = source.sample_aspect_ratio
        return replace(source, width=width, height=height, sample_aspect_ratio=shape if self.turn[0] else 1 / shape)

    def extras(self, extras: StreamExtras) -> StreamExtras:
        """Return the side data of the output's track, without a display matrix that the turn replaces."""
        return replace(extras, display_matrix=None) if self.replaces_matrix else extras


def settle_framing(
    source: VideoFormat, extras: StreamExtras, spec: TranscodeSpec, found: Region | None = None
) -> Framing:
    """Return how pictures are cropped and turned; ``found`` is the region that ``--crop auto`` keeps, if any.

    Raises Unsupported: the crop does not fit; spherical or stereo pictures would be changed, or interlaced pictures
    turned; the display matrix is not a quarter turn, or would turn an overlay or subtitles.
    """
    stated = stated_region(source, extras, rows=row_step(source, spec))
    crop = found or stated
    if spec.crop not in (None, "auto"):
        width, height, x, y = cast("tuple[int, int, int, int]", spec.crop)
        _check_crop(source, stated, Region(width, height, x, y), rows=row_step(source, spec))
        crop = Region(width, height, stated.x + x, stated.y + y)
    is_turned, turn = _turns(spec), asked_turn(extras, spec)
    lays = spec.overlay is not None or spec.burn_subtitles is not None
    if (crop != stated or turn != UPRIGHT or spec.pad is not None or lays) and (what := _projection(extras)):
        message = f"{what} cannot be cropped, padded, turned or overlaid: players would show them wrongly"
        flags = "--crop, --pad, --rotate, --flip, --overlay and --burn-subtitles"
        raise Unsupported(message, f"Leave out {flags}.")
    if lays and not is_turned and _is_shown_turned(extras):
        what = "the overlay" if spec.overlay is not None else "the subtitles"
        message = f"the source states a rotation, which would turn {what} too"
        raise Unsupported(message, "Add --rotate 0 to apply the rotation to the pictures.")
    if (turn[0] == 0 or turn[3] < 0) and source.interlaced and spec.deinterlace == "off":
        message = "the pictures are interlaced: turning them would mix or swap their fields"
        raise Unsupported(message, "Add --deinterlace on.")
    return Framing(crop, turn, is_turned, stated)


def stated_region(source: VideoFormat, extras: StreamExtras, *, rows: int = 1) -> Region:
    """Return the part of each picture that the container shows, aligned to chroma; ``rows`` comes from ``row_step``.

    That is the whole picture if the container states no crop or an empty crop, or if the picture is spherical or has
    two views.
    """
    size = source.width, source.height
    asked = _asked_region(source, extras)
    across, down = chroma_step(source.pix_fmt)
    region = fitted(asked, size, (across, down * rows))
    is_usable = asked.width > 0 < asked.height and region.width > 0 < region.height and not _projection(extras)
    return region if is_usable else Region(*size, 0, 0)


def _asked_region(source: VideoFormat, extras: StreamExtras) -> Region:
    top, bottom, left, right = extras.crop or (0, 0, 0, 0)
    return Region(source.width - left - right, source.height - top - bottom, left, top)


def stated_losses(source: VideoFormat, extras: StreamExtras, stated: Region) -> tuple[Warning_, ...]:
    """Return warnings about a crop in the container that the output cannot keep exactly."""
    asked = _asked_region(source, extras)
    if asked == stated:
        return ()
    if (stated.width, stated.height) == (source.width, source.height):
        why = f"{what} are not cropped" if (what := _projection(extras)) else "it would leave nothing of the pictures"
        message = f"the source's crop is lost: {why}"
        checks = ("metadata.crop", "pictures.alike", "metadata.aspect")
        return (Warning_(code="crop-dropped", message=message, checks=checks),)
    shown = f"{stated.width}x{stated.height} of {asked.width}x{asked.height}"
    message = f"the source's crop cuts through chroma: {shown} are shown"
    return (Warning_(code="crop-rounded", message=message, checks=("metadata.crop", "metadata.aspect")),)


def row_step(source: VideoFormat, spec: TranscodeSpec) -> int:
    """Return the step, in rows, at which a picture may be cropped: 2 if it stays interlaced, otherwise 1."""
    return 2 if source.interlaced and spec.deinterlace == "off" else 1


def _check_crop(source: VideoFormat, shown: Region, crop: Region, *, rows: int) -> None:
    """Refuse a crop that reaches outside ``shown`` or cuts through chroma. The crop is relative to ``shown``."""
    asked = f"--crop {crop.width}:{crop.height}:{crop.x}:{crop.y}"
    right, bottom = crop.x + crop.width, crop.y + crop.height
    if right > shown.width or bottom > shown.height:
        message = f"{asked} reaches outside the {shown.width}x{shown.height} pictures"
        raise Unsupported(message, "Write W:H:X:Y with X + W and Y + H within the picture, or --crop auto.")
    across, down = chroma_step(source.pix_fmt)
    fitting = fitted(crop, (shown.width, shown.height), (across, down * rows))
    if crop != fitting:
        message = f"{asked} cuts through chroma: {source.pix_fmt} can be cut at multiples of {across}x{down * rows}"
        near = f"{fitting.width}:{fitting.height}:{fitting.x}:{fitting.y}"
        raise Unsupported(message, f"Use {near}." if fitting.width and fitting.height else "Use a larger crop.")


def fitted(region: Region, size: Size, step: Size) -> Region:
    """Return the largest region inside ``region`` with edges at multiples of ``step`` or at the picture's own edges."""
    (left, width), (top, height) = (
        _fitted_axis(begin, length, whole, each)
        for begin, length, whole, each in zip(
            (region.x, region.y), (region.width, region.height), size, step, strict=True
        )
    )
    return Region(width, height, left, top)


def _fitted_axis(begin: int, length: int, whole: int, step: int) -> tuple[int, int]:
    end = begin + length
    first, last = step * ceil(begin / step), end if end == whole else end // step * step
    return first, max(0, last - first)


def _turns(spec: TranscodeSpec) -> bool:
    return spec.rotate is not None or spec.flip is not None


def asked_turn(extras: StreamExtras, spec: TranscodeSpec) -> Turn:
    """Return the requested turn: the display matrix first, then ``rotate``, then ``flip``.

    Raises Unsupported: the display matrix does more than quarter turns and mirroring.
    """
    if not _turns(spec):
        return UPRIGHT
    turn = UPRIGHT if extras.display_matrix is None else _matrix_turn(extras.display_matrix)
    for _ in range(int(spec.rotate or 0) // 90):
        turn = combined(turn, CLOCKWISE)
    return combined(turn, _FLIPS[spec.flip])


def _is_shown_turned(extras: StreamExtras) -> bool:
    return extras.display_matrix is not None and _matrix_turn(extras.display_matrix) != UPRIGHT


def _matrix_turn(matrix: tuple[int, ...]) -> Turn:
    a, b, _, c, d, *_ = matrix
    across, down = (scale or 1.0 for scale in axis_scales(matrix))
    exact = (a / across, b / down, c / across, d / down)
    near = tuple(round(value) for value in exact)
    is_quarter = near[0] * near[3] - near[1] * near[2] in (1, -1) and near[0] * near[1] == 0
    if not is_quarter or any(abs(value - whole) > _TILT for value, whole in zip(exact, near, strict=True)):
        message = "the source's display matrix is not a quarter turn"
        raise Unsupported(message, "Leave out --rotate and --flip: the matrix is then copied unchanged.")
    return cast("Turn", near)


def _projection(extras: StreamExtras) -> str:
    if extras.spherical is not None:
        return "spherical pictures"
    # AVStereo3D begins with a type; 0 is a single view (libavutil, stereo3d.h).
    return "pictures of two views" if extras.stereo3d and any(extras.stereo3d[:_TYPE_BYTES]) else ""


def canvas(scaled: Size, shape: Fraction, pad: Size | Fraction | None) -> Size:
    """Return the size with the border: ``pad``, or the smallest of aspect ratio ``pad``; a side that grows is even.

    ``shape`` is the sample aspect ratio. Raises Unsupported: the picture is larger than ``pad``.
    """
    width, height = scaled
    if pad is None:
        return scaled
    if isinstance(pad, Fraction):
        if width * shape / height < pad:
            return max(width, 2 * ceil(height * pad / shape / 2)), height
        return width, max(height, 2 * ceil(width * shape / pad / 2))
    if width > pad[0] or height > pad[1]:
        message = f"--pad {pad[0]}x{pad[1]} is smaller than the {width}x{height} picture"
        raise Unsupported(message, "Make the picture smaller with --scale, or pad to a larger size.")
    return pad


def settle_steps(
    source: VideoFormat, framing: Framing, scaled: Size, padded: VideoFormat, spec: TranscodeSpec
) -> PictureSteps | None:
    """Return all steps; None if pictures are only scaled. ``padded`` is the format including the border.

    Raises Unsupported: the picture's edge would lie inside a chroma sample of the border.
    """
    across, down = chroma_step(padded.pix_fmt)
    down *= row_step(source, spec)
    whole = Region(source.width, source.height, 0, 0)
    is_padded = scaled != (padded.width, padded.height)
    if is_padded and (scaled[0] % across or scaled[1] % down):
        message = f"a picture of {scaled[0]}x{scaled[1]} in {padded.pix_fmt} cannot be padded"
        why = f"its width must be a multiple of {across}, and its height of {down}"
        raise Unsupported(f"{message}: {why}", "Use another --scale or --pix-fmt.")
    if framing.crop == whole and framing.turn == UPRIGHT and not is_padded:
        return None
    place = tuple(
        (outer - inner) // 2 // step * step
        for outer, inner, step in zip((padded.width, padded.height), scaled, (across, down), strict=True)
    )
    return PictureSteps(
        size=(source.width, source.height),
        crop=framing.crop,
        turn=framing.turn,
        scaled=scaled,
        padded=(padded.width, padded.height),
        place=(place[0], place[1]),
    )


def step_choices(steps: PictureSteps | None, framing: Framing, extras: StreamExtras) -> tuple[Warning_, ...]:
    """Return notes on the requested steps. ``verify`` applies the steps too, so pictures must still match."""
    choices = []
    if steps is not None:
        choices.append(Warning_(code="picture-steps", message=f"the pictures are {steps.words}", checks=()))
        if (framing.stated.width, framing.stated.height) != steps.size:
            message = "the source's crop is applied to the pictures; the output states none"
            choices.append(Warning_(code="container-crop", message=message, checks=()))
    if framing.replaces_matrix and extras.display_matrix is not None:
        message = "the source's rotation is applied to the pictures; the output states none"
        choices.append(Warning_(code="rotation", message=message, checks=("metadata.rotation",)))
    return tuple(choices)

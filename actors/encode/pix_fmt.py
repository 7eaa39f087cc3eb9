"""Chooses the pixel format to encode: the source's format if the encoder has it, or the format that loses least."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from av.video.format import VideoFormat as PixelFormat

from ...errors import Unsupported
from ..media.values import BYTE_BITS
from .profiles import PROFILES, SoftwareProfile
from .settings import Codec

_SAMPLINGS: Final = {(1, 1): "420", (1, 0): "422"}
"""FFmpeg's names of samplings by chroma shifts; formats with other shifts are replaced by 4:4:4."""
_USUAL: Final = "Use yuv420p, which nearly every player supports."


@dataclass(frozen=True, slots=True)
class _Shape:
    """The properties of a pixel format. Chroma shifts are log2 of the subsampling; None if there is no chroma."""

    depth_bits: int
    chroma_shifts: tuple[int, int] | None
    rgb: bool
    alpha: bool


def choose_pix_fmt(
    codec: Codec, wanted: str, *, width: int, height: int, asked: bool = False
) -> tuple[str, str | None]:
    """Return the pixel format in which pictures of format ``wanted`` are encoded, and why that format differs.

    The reason is None if the samples are unchanged (``yuvj420p`` is ``yuv420p`` with full range, ``nv12`` is
    ``yuv420p`` in another order), or lose only alpha. ``asked`` means that the user requested this format, so that
    nothing may be lost, not even alpha.

    ``Unsupported`` if there is no such pixel format, or the encoder lacks the requested format, or has no format for
    this size.
    """
    profile = PROFILES[codec]
    source = _shape(wanted)
    _check_size(profile, width, height)
    fitting = [name for name in profile.pix_fmts if _fits(profile, _shape(name), width, height)]
    if wanted in fitting:
        return wanted, None

    def losses(name: str) -> tuple[int, ...]:
        return _losses(source, _shape(name))

    chosen = min(fitting, key=losses)
    odd = chosen != min(profile.pix_fmts, key=losses)
    reason = _reason(profile, wanted, chosen, odd=odd, asked=asked)
    if asked and reason is not None:
        other = "change the size with --scale" if odd else "use another --codec"
        raise Unsupported(reason, f"Use {chosen}, or {other}.")
    return chosen, reason


def finest_pix_fmt(names: Sequence[str]) -> str:
    """Return a format that holds the pictures of all these formats without loss: RGB or YUV, like the first format."""
    shapes = [_shape(name) for name in names]
    rgb = shapes[0].rgb
    depth_bits = max(shape.depth_bits for shape in shapes)
    chromas = [shape.chroma_shifts for shape in shapes if shape.chroma_shifts is not None]
    chroma = (min(across for across, _ in chromas), min(down for _, down in chromas)) if chromas else None
    for name, shape in zip(names, shapes, strict=True):
        if (shape.depth_bits, shape.chroma_shifts, shape.rgb) == (depth_bits, chroma, rgb):
            return name
    depth = f"{depth_bits}le" if depth_bits > BYTE_BITS else ""
    sampling = "444" if chroma is None else _SAMPLINGS.get(chroma, "444")
    return f"gbrp{depth}" if rgb else f"yuv{sampling}p{depth}"


def is_rgb(name: str) -> bool:
    """Return whether a pixel format holds RGB or an RGB palette; ``Unsupported`` if there is no such format."""
    return _shape(name).rgb


@cache
def _shape(name: str) -> _Shape:
    try:
        known = PixelFormat(name)
    except ValueError:
        raise Unsupported(f"FFmpeg knows no pixel format {name!r}", _USUAL) from None
    components = known.components
    if not components:
        raise Unsupported(f"{name} names a device's memory, not a layout of samples", _USUAL)
    rgb = known.is_rgb or known.has_palette
    colours = sum(not component.is_alpha for component in components)
    # A side of 64 is divisible by every subsampling.
    halvings = [(64 // side).bit_length() - 1 for side in (known.chroma_width(64), known.chroma_height(64))]
    shifts = (halvings[0], halvings[1]) if colours > 1 else None
    return _Shape(
        depth_bits=max(component.bits for component in components),
        chroma_shifts=(0, 0) if rgb else shifts,
        rgb=rgb,
        alpha=any(component.is_alpha for component in components),
    )


def _check_size(profile: SoftwareProfile, width: int, height: int) -> None:
    if min(width, height) < profile.shortest_side:
        least = profile.shortest_side
        message = f"{profile.implementation} cannot encode {width}x{height}: no side may be shorter than {least}"
        raise Unsupported(message, "Scale the pictures up with --scale, or use another --codec.")


def _fits(profile: SoftwareProfile, shape: _Shape, width: int, height: int) -> bool:
    if not profile.whole_chroma or shape.chroma_shifts is None:
        return True
    across, down = shape.chroma_shifts
    return width % (1 << across) == 0 and height % (1 << down) == 0


def _losses(source: _Shape, target: _Shape) -> tuple[int, ...]:
    """Return a sort key for ``target``: the conversion's losses, worst kind first, then needless samples and bits."""
    depth = target.depth_bits - source.depth_bits
    wanted, given = source.chroma_shifts, target.chroma_shifts
    if wanted is None:
        lost, wasted = 0, 0 if given is None else 4 - sum(given)
    elif given is None:
        lost, wasted = 9, 0
    else:
        lost = max(0, given[0] - wanted[0]) + max(0, given[1] - wanted[1])
        wasted = max(0, wanted[0] - given[0]) + max(0, wanted[1] - given[1])
    return max(0, -depth), lost, int(source.rgb != target.rgb), wasted, max(0, depth)


def _reason(profile: SoftwareProfile, wanted: str, chosen: str, *, odd: bool, asked: bool) -> str | None:
    """Return why a format is replaced by another; None if only alpha is lost, which has its own warning."""
    source, target = _shape(wanted), _shape(chosen)
    depth, chroma, rgb, *_ = _losses(source, target)
    lost = [
        text
        for happened, text in (
            (depth > 0, f"{source.depth_bits} bits become {target.depth_bits}"),
            (chroma > 0, "chroma loses resolution"),
            (rgb > 0, "RGB becomes YUV" if source.rgb else "YUV becomes RGB"),
            (source.alpha and asked, "alpha is lost"),
        )
        if happened
    ]
    head = f"{wanted} is encoded as {chosen}"
    if odd:
        why = f"{profile.codec} cannot state an odd size with subsampled chroma"
        return f"{head}: {'; '.join([why, *lost])}"
    return f"{head}, as {profile.implementation} has no {wanted}: {'; '.join(lost)}" if lost else None

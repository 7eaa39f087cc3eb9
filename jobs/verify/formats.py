"""Pixel formats as a viewer sees them: what can hold what, and what RGB states by being RGB."""

from av.video.format import VideoFormat as PixelFormat

from ...actors.media.values import VideoFormat

_LIMITED, _FULL = 1, 2


def family(pix_fmt: str) -> str:
    """Return a format's name here: FFmpeg's yuvj formats are the yuv ones at full range, which is checked apart."""
    return pix_fmt.replace("yuvj", "yuv")


def holds(found: str, wanted: str) -> bool:
    """Return whether every sample of format ``wanted`` has its place in ``found``, if under another name or layout."""
    target, source = PixelFormat(found), PixelFormat(wanted)
    colours, alpha = _components(source)
    return (
        _is_rgb(target) == _is_rgb(source)
        and max(c.bits for c in target.components) >= max(c.bits for c in source.components)
        and (colours == 1 or all(a >= b for a, b in zip(_chroma(target), _chroma(source), strict=True)))
        and all(a >= b for a, b in zip(_components(target), (colours, alpha), strict=True))
    )


def _components(pixel: PixelFormat) -> tuple[int, int]:
    alpha = sum(component.is_alpha for component in pixel.components)
    return (3 if pixel.has_palette else len(pixel.components) - alpha), alpha


def _chroma(pixel: PixelFormat) -> tuple[int, int]:
    return (64, 64) if _is_rgb(pixel) else (pixel.chroma_width(64), pixel.chroma_height(64))


def _is_rgb(pixel: PixelFormat) -> bool:
    return bool(pixel.is_rgb or pixel.has_palette)


def stated_range(picture: VideoFormat) -> int:
    """Return the range of a picture's levels: RGB is of full range, and unspecified counts as limited."""
    return _FULL if _is_rgb(PixelFormat(picture.pix_fmt)) else picture.colour.range or _LIMITED


def stated_matrix(picture: VideoFormat) -> int:
    """Return the matrix by which a picture's colours are coded: RGB is its own, whatever is stated."""
    return 0 if _is_rgb(PixelFormat(picture.pix_fmt)) else picture.colour.matrix

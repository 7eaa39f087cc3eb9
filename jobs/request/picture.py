"""The options for processing pictures (docs/filters.md)."""

from fractions import Fraction
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from .options import CROP, FPS, PAD, PLACE, SIZE, TRACK, Option
from .parts import PATH, PICTURE, Part, Side
from .values import FPS_MAX, FPS_MIN, SIDE_MAX, Corner

_Place = Annotated[int, Field(ge=0, le=SIDE_MAX)]


def _degrees(value: object) -> object:
    return str(value) if isinstance(value, int) else value


class FramingOptions(Part):
    """Which part of a picture is shown, and how it is turned. ``crop`` is (width, height, x, y)."""

    crop: Annotated[
        tuple[Side, Side, _Place, _Place] | Literal["auto"] | None,
        Field(description="Keep only this part of each picture; auto removes black borders: docs/filters.md."),
        Option("--crop", PICTURE, default="the whole picture", example='"auto"', kind=CROP),
    ] = None
    rotate: Annotated[
        Literal["0", "90", "180", "270"] | None,
        Field(
            description="Rotate the pictures clockwise, relative to how players show them. The output then states no "
            "rotation: docs/filters.md."
        ),
        Option("--rotate", PICTURE, default="as stored; the output states the source's rotation", example="90"),
        BeforeValidator(_degrees),
    ] = None
    flip: Annotated[
        Literal["h", "v"] | None,
        Field(description="Mirror the pictures horizontally (h) or vertically (v), after --rotate."),
        Option("--flip", PICTURE, default="as stored", example='"h"'),
    ] = None


class _Steps(FramingOptions):
    """The steps, in the order in which they apply (docs/filters.md). ``pad`` is a size or the display shape."""

    pad: Annotated[
        tuple[Side, Side] | Fraction | None,
        Field(description="Add black borders up to this size or display aspect ratio, after --scale."),
        Option("--pad", PICTURE, default="no border", example='"16:9"', kind=PAD),
    ] = None

    @model_validator(mode="after")
    def _check_pad(self) -> Self:
        if isinstance(self.pad, Fraction) and self.pad <= 0:
            raise ValueError(f"the shape of `pad` must be positive: {self.pad}")
        return self


class _Overlay(Part):
    overlay: Annotated[
        str | None,
        Field(min_length=1, description="Draw this PNG over every output picture, pixel for pixel: docs/filters.md."),
        Option("--overlay", PICTURE, default="none", example='"logo.png"', metavar="PICTURE.png"),
        PATH,
    ] = None
    overlay_at: Annotated[
        tuple[_Place, _Place] | Corner,
        Field(
            description="Position of the overlay's upper left corner, or a corner of the picture: top-left, top-right, "
            "bottom-left, bottom-right; or center."
        ),
        Option("--overlay-at", PICTURE, kind=PLACE),
    ] = "bottom-right"
    overlay_opacity: Annotated[
        int,
        Field(ge=1, le=100, description="Opacity of the overlay in percent, multiplied by the picture's own opacity."),
        Option("--overlay-opacity", PICTURE, metavar="PERCENT"),
    ] = 100


class _Burn(Part):
    burn_subtitles: Annotated[
        int | str | None,
        Field(
            description="Burn this subtitle track into the pictures: its number, counted from 0, or a language, for "
            "the first track in that language: docs/filters.md."
        ),
        Option("--burn-subtitles", PICTURE, default="none", example='"eng"', kind=TRACK),
    ] = None

    subtitle_font: Annotated[
        str | None,
        Field(min_length=1, description="TrueType or OpenType font file for the text of --burn-subtitles."),
        Option("--subtitle-font", PICTURE, default="none", example='"DejaVuSans.ttf"', metavar="FONT.ttf"),
        PATH,
    ] = None

    @model_validator(mode="after")
    def _check_burn(self) -> Self:
        if isinstance(self.burn_subtitles, int) and self.burn_subtitles < 0:
            raise ValueError(f"`burn_subtitles` counts from 0: {self.burn_subtitles}")
        return self


class ConversionOptions(Part):
    """How the pictures are converted, whatever their size."""

    tonemap: Annotated[
        Literal["bt2390", "hable"] | None,
        Field(description="Convert HDR (PQ or HLG) to SDR with BT.2390's curve or Hable's: docs/filters.md."),
        Option("--tonemap", PICTURE, default="HDR stays HDR", example='"bt2390"'),
    ] = None
    denoise: Annotated[
        Literal["off", "light", "medium", "strong"],
        Field(description="Reduce noise within each picture: docs/filters.md."),
        Option("--denoise", PICTURE),
    ] = "off"
    deinterlace: Annotated[
        Literal["off", "auto", "on"],
        Field(
            description="Deinterlace never (off), only pictures that the source marks as interlaced (auto), or always "
            "(on)."
        ),
        Option("--deinterlace", PICTURE),
    ] = "off"
    fps: Annotated[
        Fraction | None,
        Field(
            ge=FPS_MIN,
            le=FPS_MAX,
            description="Convert to exactly this many frames per second: docs/filters.md.",
        ),
        Option("--fps", PICTURE, default="every frame of the source at its own time", example="25", kind=FPS),
    ] = None


class Picture(ConversionOptions, _Burn, _Overlay, _Steps):
    """How pictures are processed. ``scale`` is (width, height); a width of None keeps the display shape."""

    scale: Annotated[
        tuple[int | None, int] | None,
        Field(description="Picture size in pixels, or a height."),
        Option(
            "--scale",
            PICTURE,
            default="the source's; the largest if it changes: docs/timeline.md",
            example='"720p"',
            kind=SIZE,
        ),
    ] = None
    pix_fmt: Annotated[
        str | None,
        Field(description="Pixel format, by FFmpeg's name, such as yuv420p10le."),
        Option("--pix-fmt", PICTURE, default="the source's", example='"yuv420p10le"'),
    ] = None

    @model_validator(mode="after")
    def _check_scale(self) -> Self:
        if self.scale is not None and any(side is not None and side <= 0 for side in self.scale):
            raise ValueError(f"the size of `scale` must be positive: {self.scale}")
        return self

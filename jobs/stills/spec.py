"""The request of ``codecfleet stills``."""

from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Self

from pydantic import Field, model_validator

from ...actors.media.location import absolute
from ...actors.stills.look import StillFormat
from ..request.options import GRID, SIZE, Option
from ..request.parts import PATH, PICTURE, RULES, JobRequest, Part, Source, SourceRange
from ..request.running import MachineOptions, Reaching, Segmenting, WaitOptions
from ..request.values import SIDE_MAX

if TYPE_CHECKING:
    from os import PathLike

WHICH: Final = "Which pictures"
STILLS_MOST: Final = 100_000  # the most stills; enough for 14 stills per second in a film of two hours
SHEET_WIDTH: Final = 160  # the default width of a still on a sheet
QUALITY: Final = 90
_SHORTEST_S: Final = Fraction(1, 1000)  # a tick of WebVTT's clock


class _Which(Part):
    source: Source
    output: Annotated[
        str,
        Field(description="The folder to write: it appears complete, or not at all."),
        Option("DIR"),
        PATH,
    ]
    every_s: Annotated[
        Fraction | None,
        Field(ge=_SHORTEST_S, description="Take the picture on screen at each multiple of this time."),
        Option("--every", WHICH),
    ] = None
    count: Annotated[
        int | None,
        Field(ge=1, le=STILLS_MOST, description="Take this many pictures, from the middles of equal parts."),
        Option("--count", WHICH),
    ] = None
    scene: Annotated[bool, Field(description="Take the first picture of each scene."), Option("--scene", WHICH)] = False
    scene_threshold: Annotated[
        int,
        Field(
            ge=1,
            le=100,
            description="How much a picture must differ from the previous picture to begin a scene, 1 to 100: "
            "docs/stills.md.",
        ),
        Option("--scene-threshold", WHICH, metavar="PERCENT"),
    ] = 10
    scene_shortest_s: Annotated[
        Fraction,
        Field(ge=0, description="The shortest length of a scene."),
        Option("--scene-seconds", WHICH, default="0.5"),
    ] = Fraction(1, 2)

    @model_validator(mode="after")
    def _check_which(self) -> Self:
        asked = [self.every_s is not None, self.count is not None, self.scene]
        if sum(asked) != 1:
            raise ValueError("give exactly one of `every_s`, `count` and `scene`")
        return self


class _Looks(Part):
    width: Annotated[
        int | None,
        Field(ge=1, le=SIDE_MAX, description="Width of a still in pixels; the height follows."),
        Option("--width", PICTURE, default=f"as a player shows it; {SHEET_WIDTH} with --sheet"),
    ] = None
    scale: Annotated[
        tuple[int | None, int] | None,
        Field(description="Size of a still in pixels, or its height, instead of a width."),
        Option("--scale", PICTURE, kind=SIZE),
    ] = None
    format: Annotated[
        StillFormat, Field(description="Kind of the picture files."), Option("--format", PICTURE, default="jpg")
    ] = StillFormat.JPG
    quality: Annotated[
        int | None,
        Field(ge=1, le=100, description="Quality of jpg and webp, 1 to 100, higher is better."),
        Option("--quality", PICTURE, default=str(QUALITY)),
    ] = None
    sheet: Annotated[
        tuple[int, int] | None,
        Field(description="Write sprite sheets: files with this many stills in a row, and this many rows."),
        Option("--sheet", PICTURE, default="a file for each still", kind=GRID),
    ] = None

    @model_validator(mode="after")
    def _check_looks(self) -> Self:
        if self.width is not None and self.scale is not None:
            raise ValueError("`width` and `scale` exclude each other: give one of them")
        sides = [*(self.scale or ()), *(self.sheet or ())]
        if any(side is not None and not 0 < side <= SIDE_MAX for side in sides):
            raise ValueError(f"the sides of `scale` and `sheet` are 1 to {SIDE_MAX}: {self.scale}, {self.sheet}")
        if self.quality is not None and self.format is StillFormat.PNG:
            raise ValueError("`quality` is for jpg and webp: png is lossless")
        return self


# The fields of a later base class come first.
class StillsSpec(JobRequest, WaitOptions, Reaching, MachineOptions, Segmenting, SourceRange, _Looks, _Which):
    """A request for stills of one video track. docs/stills.md lists the fields.

    Text is read as on the command line: ``every_s="0.5"``, ``scale="180p"``, ``sheet="10x10"``.
    """

    command: ClassVar[str] = "stills"

    if TYPE_CHECKING:
        # Type checkers would require the types that the fields hold; the fields accept further types.
        def __init__(
            self, *, source: "str | PathLike[str]", output: "str | PathLike[str]", **options: object
        ) -> None: ...

    overwrite: Annotated[
        bool,
        Field(description="Replace the folder, if it holds nothing but the stills of an earlier run."),
        Option("--overwrite", RULES, default="refuse"),
    ] = False

    def resolved(self) -> Self:
        """Make local paths absolute, because workers may run in another folder; return the new request."""
        return self.model_copy(update={"source": absolute(self.source), "output": absolute(self.output)})

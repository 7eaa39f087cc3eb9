"""The request of ``codecfleet ladder``."""

from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Self

from pydantic import Field, model_validator

from ...actors.media.location import absolute
from ..package.values import Layout
from ..request.carried import SoundAndSubtitles
from ..request.options import TITLE, Option
from ..request.parts import PATH, RULES, VIDEO, JobRequest, Keyframes, Part, Source, SourceRange, Strict
from ..request.picture import ConversionOptions, FramingOptions
from ..request.running import Reaching, Restarting, RunOptions, Segmenting, WaitOptions
from ..request.spec import TranscodeSpec

if TYPE_CHECKING:
    from os import PathLike

PACKAGE: Final = "The package"
DEFAULT_PRESET: Final = "hls-h264"
PRESET_SUFFIX: Final = ".toml"  #: The end of a preset's name if the preset is a file of the user's own


class _Which(Part):
    source: Source
    output: Annotated[
        str,
        Field(description="The folder to write. A local folder appears complete, or not at all."),
        Option("DIR"),
        PATH,
    ]
    preset: Annotated[
        str,
        Field(
            min_length=1,
            description="The renditions: hls-h264, cmaf-av1-hevc-h264, or your own file NAME.toml (docs/ladder.md).",
        ),
        Option("--preset", VIDEO, metavar="NAME|FILE.toml"),
        PATH,
    ] = DEFAULT_PRESET
    per_title: Annotated[
        str | None,
        Field(
            description="Choose sizes and bitrates from trial encodes of this film, measured by xpsnr, vmaf, psnr or "
            "ssim; a value is the first rendition's target: docs/ladder.md."
        ),
        Option("--per-title", VIDEO, example='"vmaf:94"', kind=TITLE),
    ] = None
    packaged_s: Annotated[
        Fraction,
        Field(gt=0, description="Length of a segment of the package, a multiple of the keyframe interval."),
        Option("--packaged-seconds", PACKAGE, metavar="S"),
    ] = Fraction(6)
    thumbnails_s: Annotated[
        Fraction | None,
        Field(ge=Fraction(1, 1000), description="Also write sprite sheets with a thumbnail every S seconds."),
        Option("--thumbnails", PACKAGE, default="none", metavar="S"),
    ] = None
    follow: Annotated[
        bool,
        Field(
            description="The input still grows: publish each segment when it is complete, until the input stops "
            "growing: docs/ladder.md."
        ),
        Option("--follow", PACKAGE, default="the input is finished"),
    ] = False
    quiet_s: Annotated[
        Fraction,
        Field(gt=0, description="With --follow, the input is finished when it has not grown for this long."),
        Option("--quiet-seconds", PACKAGE, metavar="S"),
    ] = Fraction(30)
    keys: Annotated[
        str | None,
        Field(min_length=1, description="Encrypt pictures and sound with the keys in this file: docs/ladder.md."),
        Option("--keys", PACKAGE, default="no encryption", metavar="FILE"),
        PATH,
    ] = None
    layout: Annotated[
        Layout,
        Field(description="Write one file per track (ranges), or one file per segment (files)."),
        Option("--layout", PACKAGE, default="ranges"),
    ] = Layout.RANGES


# The fields of a later base class come first.
class LadderSpec(
    JobRequest,
    Restarting,
    WaitOptions,
    Reaching,
    RunOptions,
    Segmenting,
    SoundAndSubtitles,  # not Carried: the preset may choose the sound's codec
    SourceRange,
    ConversionOptions,
    FramingOptions,
    Keyframes,
    _Which,
):
    """A request for several renditions of one video track, and a package of them. docs/cli.md lists the fields.

    Text is read as on the command line: ``start_s="1:30"``, ``packaged_s="4"``.
    """

    command: ClassVar[str] = "ladder"

    if TYPE_CHECKING:
        # Type checkers would require the types that the fields hold; the fields accept further types.
        def __init__(
            self, *, source: "str | PathLike[str]", output: "str | PathLike[str]", **options: object
        ) -> None: ...

    overwrite: Annotated[
        bool,
        Field(description="Replace the folder, if it holds nothing but an earlier ladder."),
        Option("--overwrite", RULES, default="refuse"),
    ] = False
    strict: Strict = False

    @model_validator(mode="after")
    def _check_per_title(self) -> Self:
        if self.per_title is not None and self.follow:
            raise ValueError("`per_title` and `follow` exclude each other: a film that grows cannot be sampled")
        return self

    @property
    def for_each(self) -> dict[str, Any]:
        """The fields that were set and that apply to each rendition, by their names in ``TranscodeSpec``."""
        own = {*_Which.model_fields, "overwrite", "restart"}
        return {
            name: getattr(self, name)
            for name in self.model_fields_set
            if name in TranscodeSpec.model_fields and name not in own
        }

    def resolved(self) -> Self:
        """Make local paths absolute, because workers may run in another folder; return the new request."""
        places = {"source": absolute(self.source), "output": absolute(self.output)}
        own = {"preset": absolute(self.preset)} if self.preset.endswith(PRESET_SUFFIX) else {}
        keys = {} if self.keys is None else {"keys": absolute(self.keys)}
        return self.model_copy(update=places | own | keys)

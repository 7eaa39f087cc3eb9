"""Plans overlays: the picture or subtitles drawn over the film, and their position in the output. Pure."""

from fractions import Fraction
from typing import TYPE_CHECKING, Final

from ...actors.media.values import VideoFormat
from ...actors.segment.burn import BurntSubtitles, Screen
from ...actors.segment.overlay import Overlay, takes_overlay
from ...actors.segment.steps import PictureSteps, Region, Size, turned_box, turned_size
from ...cluster.grouping import counted
from ...errors import Unsupported
from ..report.report import Warning_
from ..request.spec import TranscodeSpec
from ..source.drawn.burnt_track import BurntTrack, ReadBitmaps, ReadText
from ..source.drawn.overlay_file import OverlayFile
from ..source.drawn.read_result import ReadResult

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..request.values import Corner
    from ..source.index import TrackIndex

MARGIN_SHARE: Final = 40  #: In a corner, an overlay's distance from both edges is the film's width divided by this


def settle_overlay(read: ReadResult[OverlayFile] | None, output: VideoFormat, spec: TranscodeSpec) -> Overlay | None:
    """Return the overlay for pictures in ``output``'s format, if any.

    Raises InputError: the file could not be read; Unsupported: the overlay does not fit, or the film's pictures are
    interlaced or have colours into which the overlay cannot be converted.
    """
    if read is None:
        return None
    _check_pictures(output, "--overlay")
    file = read.get()
    width, height = file.size
    x, y = placed(file.size, (output.width, output.height), spec.overlay_at)
    if not width or not height or x + width > output.width or y + height > output.height:
        message = f"the {width}x{height} overlay picture at {x}:{y} does not fit into {output.width}x{output.height}"
        raise Unsupported(message, "Make the picture smaller, or move it with --overlay-at.")
    file.samples()  # raises an error now if the file does not decode, instead of later in each worker
    return Overlay(
        width=width,
        height=height,
        x=x,
        y=y,
        opacity=spec.overlay_opacity,
        sha256=file.sha256,
        png=file.content,
    )


def _check_pictures(output: VideoFormat, flag: str) -> None:
    if output.interlaced:
        raise Unsupported(f"the pictures are interlaced: {flag} would mix their fields", "Add --deinterlace on.")
    if not takes_overlay(output):
        colours = f"{output.pix_fmt} by matrix {output.colour.matrix} of H.273"
        raise Unsupported(f"{flag} does not support pictures in {colours}", "Use --pix-fmt yuv420p.")


def placed(size: Size, outer: Size, at: "tuple[int, int] | Corner") -> tuple[int, int]:
    """Return where a picture's upper left corner is in an ``outer`` picture; ``at`` is a position or a corner."""
    if not isinstance(at, str):
        return at
    room = [max(0, whole - own) for own, whole in zip(size, outer, strict=True)]
    if at == "center":
        return room[0] // 2, room[1] // 2
    margin = outer[0] // MARGIN_SHARE
    near = [min(margin, each) for each in room]
    far = [each - edge for each, edge in zip(room, near, strict=True)]
    return (far if at.endswith("right") else near)[0], (far if at.startswith("bottom") else near)[1]


def settle_burn(
    read: ReadResult[ReadBitmaps | ReadText | None],
    index: "TrackIndex",
    source: VideoFormat,
    output: VideoFormat,
    steps: PictureSteps | None,
) -> tuple[BurntSubtitles | None, tuple[Warning_, ...]]:
    """Return the subtitles to burn into pictures in ``output``'s format, if any, and warnings about losses in them.

    Raises:
        InputError: the track could not be read, or its subtitles are too large.
        Unsupported: there is no such track, its text cannot be rendered, the source's clock is reset, or the pictures
            are interlaced or have colours into which subtitles cannot be converted.
    """
    subtitles = read.get()
    if subtitles is None:
        return None, ()
    track = subtitles.track
    _check_pictures(output, "--burn-subtitles")
    if index.shifts or index.untimed:
        message = f"the clock of {index.source} is reset or missing: the times of subtitles are unknown"
        raise Unsupported(message, "Copy the film into mkv with FFmpeg first, or leave out --burn-subtitles.")
    if isinstance(subtitles, ReadText):
        source, steps = output, None  # text is rendered for the final picture, including its border
    screen = screen_of(source, output, steps, square_samples=track.codec == "hdmv_pgs_subtitle")
    found = subtitles.burnt(screen.source, screen.shape)
    burnt = BurntSubtitles(
        source_index=track.index, track=track.name, sha256=found.sha256, screen=screen, subtitles=found.subtitles
    )
    return burnt, tuple(_burn_losses(found, track.name))


def _burn_losses(found: BurntTrack, name: str) -> "Iterator[Warning_]":
    if found.failed:
        message = f"{counted(found.failed, 'packet')} of {name} cannot be decoded and are not burnt in"
        yield Warning_(code="subtitle-damaged", message=message, checks=())
    if not found.subtitles:
        yield Warning_(code="subtitle-empty", message=f"{name} is empty: nothing is burnt in", checks=())


def screen_of(source: VideoFormat, output: VideoFormat, steps: PictureSteps | None, *, square_samples: bool) -> Screen:
    """Return the position of the source's whole picture in the output's picture; cropped parts are outside."""
    whole, size = Region(source.width, source.height, 0, 0), (source.width, source.height)
    scaled, place = (output.width, output.height), (0, 0)
    if steps is not None:
        size, scaled, place = (steps.crop.width, steps.crop.height), steps.scaled, steps.place
        beyond = Region(*steps.size, -steps.crop.x, -steps.crop.y)
        whole, size = turned_box(beyond, size, steps.turn), turned_size(size, steps.turn)
    wide, high = Fraction(scaled[0], size[0]), Fraction(scaled[1], size[1])
    return Screen(
        left=place[0] + whole.x * wide,
        top=place[1] + whole.y * high,
        width=whole.width * wide,
        height=whole.height * high,
        source=(whole.width, whole.height),
        shape=output.sample_aspect_ratio,
        square_samples=square_samples,
    )

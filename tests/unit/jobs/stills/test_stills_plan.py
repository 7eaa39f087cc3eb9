"""What stills look like, and how they are requested."""

from fractions import Fraction
from typing import Any

import pytest
from pydantic import ValidationError

from codecfleet.actors.decode.describe import Crop, StreamExtras
from codecfleet.actors.media.values import Colour, VideoFormat
from codecfleet.actors.segment.steps import Region, nearest_turn
from codecfleet.actors.segment.tone import Operator
from codecfleet.cluster.placement.assign import place
from codecfleet.cluster.placement.build import inventory_of_fleet
from codecfleet.cluster.placement.model import Policy
from codecfleet.cluster.placement.rates import start_rates
from codecfleet.cluster.simulated.fleet_file import load_fleet
from codecfleet.errors import Unsupported
from codecfleet.jobs.plan.tone import tone_of
from codecfleet.jobs.stills.plan import look_of, look_warnings, plan_stills, settled_colour
from codecfleet.jobs.stills.spec import StillsSpec

from .conftest import StillsBench

FULL = 2
ONE = 1 << 16
QUARTER_TURN = (0, ONE, 0, -ONE, 0, 0, 0, 0, 1 << 30)
SD = {"width": 720, "height": 576, "sample_aspect_ratio": Fraction(64, 45)}


def _spec(**changes: Any) -> StillsSpec:
    return StillsSpec(source="film.mkv", output="stills", every_s=10, **changes)


def _format(width: int = 1920, height: int = 1080, **changes: Any) -> VideoFormat:
    return VideoFormat(width, height, **{"pix_fmt": "yuv420p", "frame_rate": Fraction(25), **changes})


@pytest.mark.parametrize(
    ("changes", "source", "extras", "size"),
    [
        ({}, {}, {}, (1920, 1080)),
        ({"width": 320}, {}, {}, (320, 180)),
        ({"scale": "360p"}, {}, {}, (640, 360)),
        ({"scale": (100, 100)}, {}, {}, (100, 100)),
        ({"sheet": "10x10"}, {}, {}, (160, 90)),
        ({"sheet": (10, 10), "width": 200}, {}, {}, (200, 112)),
        ({"width": 1}, {}, {}, (1, 1)),
        # Edges that the container hides are not on a still, but chroma is not cut.
        ({}, {}, {"crop": Crop(top=131, bottom=131, left=0, right=8)}, (1912, 816)),
        # The width is that of the picture on screen: upright, with square pixels.
        ({"width": 288}, SD, {"display_matrix": QUARTER_TURN}, (288, 512)),
    ],
)
def test_the_size_is_what_was_asked_for(
    changes: dict[str, Any], source: dict[str, Any], extras: dict[str, Any], size: tuple[int, int]
) -> None:
    """One side gives the other by the shape on screen; stills on sheets are small; turn and crop apply."""
    look = look_of(_spec(**changes), _format(**source), StreamExtras(**extras))
    assert (look.width, look.height) == size
    assert (look.format is None) == ("sheet" in changes)
    assert look.turn == nearest_turn(extras.get("display_matrix"))
    assert look.crop == (((1920, 1080), Region(1912, 816, 0, 132)) if "crop" in extras else None)


def test_an_unspecified_matrix_is_chosen_as_players_do() -> None:
    """An unspecified matrix is BT.709 from HD on and BT.601 below; a stated one is kept."""
    stated = (_format(720, 576, colour=Colour(matrix=9)), _format(720, 576, pix_fmt="gbrp", colour=Colour(matrix=0)))
    formats = (_format(), _format(720, 576), _format(720, 577), *stated)
    assert [settled_colour(each).matrix for each in formats] == [1, 6, 1, 9, 0]
    assert settled_colour(_format(pix_fmt="yuvj420p")).range == FULL


def test_colours_that_would_be_wrong_are_refused() -> None:
    """A matrix that FFmpeg cannot convert, and Dolby Vision without a base layer, are refused in one line."""
    with pytest.raises(Unsupported, match="matrix is number 8"):
        settled_colour(_format(colour=Colour(matrix=8)))
    configuration = bytes([1, 0, 5, 6, 1, 0, 1, 0])
    with pytest.raises(Unsupported, match="profile 5"):
        look_of(_spec(), _format(), StreamExtras(dovi_configuration=configuration))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "exactly one of"),
        ({"every_s": 1, "count": 2}, "exactly one of"),
        ({"scene": True, "count": 2}, "exactly one of"),
        ({"every_s": 0}, "every_s"),
        ({"count": 0}, "count"),
        ({"count": 1, "quality": 101}, "quality"),
        ({"count": 1, "quality": 50, "format": "png"}, "png is lossless"),
        ({"count": 1, "width": 5, "scale": "5p"}, "exclude each other"),
        ({"count": 1, "sheet": (0, 1)}, "sheet"),
        ({"count": 1, "format": "gif"}, "format"),
    ],
)
def test_senseless_requests_are_refused(fields: dict[str, Any], problem: str) -> None:
    """Each senseless request is refused before anything is read."""
    with pytest.raises(ValidationError, match=problem):
        StillsSpec(source="film.mkv", output="stills", **fields)


@pytest.mark.parametrize(
    ("colour", "said"),
    [
        (Colour(), ""),
        (Colour(transfer=16, primaries=9, matrix=9), "the stills are tone mapped from PQ of up to 1000 cd/m²"),
        (Colour(transfer=18, primaries=9), "the stills are tone mapped from HLG of up to 1000 cd/m²"),
        (Colour(transfer=16, primaries=12, matrix=9), "HDR (PQ) in colours other than BT.2020's"),
    ],
)
def test_hdr_is_mapped_and_said(colour: Colour, said: str) -> None:
    """A warning says that HDR was mapped, and how."""
    picture = _format(colour=colour)
    warnings = look_warnings(picture, tone_of(picture, Operator.BT2390))
    assert [said in each for each in warnings] == [True] * bool(said)


@pytest.mark.parametrize("fleet", ["laptop", "h200-l40s", "mixed-200"])
def test_decoding_alone_has_a_place(bench: StillsBench, fleet: str) -> None:
    """A job that encodes no video is placed on every fleet, even on processors."""
    demand = plan_stills(bench.spec()).demand("job", [60, 60])
    placed = place([demand], inventory_of_fleet(load_fleet(fleet)), start_rates(), Policy())
    assert sum(lane.sessions for lane in placed.lanes) > 0

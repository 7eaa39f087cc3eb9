"""Stills of real footage are upright, in shape, and equal to the pictures of a sequential decode."""

import json
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from codecfleet.actors.segment.steps import nearest_turn
from codecfleet.actors.stills.look import StillLook
from codecfleet.actors.stills.taking import Painter
from codecfleet.jobs.fleet import Fleet
from codecfleet.jobs.source.source import read_source
from codecfleet.jobs.stills.job import StillsReport
from codecfleet.jobs.stills.plan import settled_colour
from codecfleet.jobs.stills.spec import StillsSpec
from codecfleet.testing import LocalPool
from tests.unit.jobs.stills.conftest import decoded, on_screen

Rgb = NDArray[np.uint8]
TURNS = list(product((False, True), repeat=3))
"""Exchanges rows and columns, left and right, top and bottom."""


async def _stills(source: Path, output: Path, **options: Any) -> StillsReport:
    async with Fleet(pool=LocalPool(2)) as fleet:
        return await fleet.stills(StillsSpec(source=source, output=output, format="png", **options))


def _rgb(path: Path) -> Rgb:
    with av.open(str(path)) as container:
        return np.asarray(next(container.decode(video=0)).to_ndarray(format="rgb24"), dtype=np.uint8)


def _turned(rgb: Rgb, turn: tuple[bool, bool, bool]) -> Rgb:
    swaps, across, down = turn
    rgb = rgb.transpose(1, 0, 2) if swaps else rgb
    return rgb[:: -1 if down else 1, :: -1 if across else 1]


@pytest.mark.parametrize(
    ("file", "turn"),
    [
        ("rot90_iphone.mov", (True, True, False)),
        ("rot90_480p_dropframe.mp4", (True, False, True)),
        ("rot_and_reflect.mp4", (True, False, False)),
    ],
)
async def test_phones_films_are_upright(
    shared_media: Path, tmp_path: Path, file: str, turn: tuple[bool, bool, bool]
) -> None:
    """Of all eight ways to turn the stored picture, the still is nearest to the one that FFmpeg's player shows."""
    source = shared_media / file
    await _stills(source, tmp_path / "stills", count=1, end_s=Fraction(1, 100))
    found = _rgb(tmp_path / "stills" / "00001.png").astype(int)
    stored = _rgb(source)
    errors = {
        each: float(np.abs(found - turned).mean())
        for each in TURNS
        if (turned := _turned(stored, each)).shape == found.shape
    }
    best = min(errors, key=errors.__getitem__)
    assert best == turn, errors
    assert errors[best] < min(error for each, error in errors.items() if each != best) / 2


@pytest.mark.parametrize(
    "file",
    [
        "derived_h264_opengop_360p_aac.mp4",
        "derived_hevc10_opengop_cra_rasl_360p.mp4",
        "derived_av1_svt_multigop_360p_opus.mkv",
        "cam_h264_interlaced_opengop_360i.mp4",
    ],
)
async def test_groups_are_passed_and_pictures_stay_the_same(shared_media: Path, tmp_path: Path, file: str) -> None:
    """Each still equals the picture of a sequential decode bit for bit, even with open groups."""
    source, every_s = shared_media / file, Fraction(7, 2)
    report = await _stills(source, tmp_path / "stills", every_s=every_s)
    format_, extras = read_source(str(source)).described()
    turn = nearest_turn(extras.display_matrix)
    look = StillLook(report.width, report.height, turn, settled_colour(format_), None, 90)
    pictures = decoded(source)
    index = json.loads((tmp_path / "stills" / "index.json").read_text())
    assert len(index["stills"]) == report.stills > 1
    for number, entry in enumerate(index["stills"]):
        expected = Painter(look).paint(on_screen(pictures, every_s * number))
        np.testing.assert_array_equal(_rgb(tmp_path / "stills" / entry["file"]), expected, err_msg=entry["file"])

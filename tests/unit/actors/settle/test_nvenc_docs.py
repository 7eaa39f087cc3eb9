"""Compares docs/nvenc.md with the model: every setting, refusal, preset and surface."""

import re
from fractions import Fraction
from pathlib import Path

import pytest

from codecfleet.actors.encode.profiles import NVENC_PROFILES
from codecfleet.actors.encode.settings import Codec
from codecfleet.actors.media.values import VideoFormat
from codecfleet.actors.nvidia.nvenc.device import NvencDevice
from codecfleet.actors.settle.nvenc import nvenc_request
from codecfleet.actors.settle.nvenc_options import REFUSED, SETTINGS, settings_to_options
from codecfleet.actors.settle.request import settle
from codecfleet.testing.nvidia.fake_nvenc import FakeNvenc


@pytest.fixture(scope="module")
def page() -> str:
    """The page's text."""
    return (Path(__file__).resolve().parents[4] / "docs" / "nvenc.md").read_text(encoding="utf-8")


def section(page: str, heading: str) -> str:
    """Return the text under a heading."""
    return page.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def rows(text: str, columns: int) -> list[list[str]]:
    """Return the rows of tables with this number of cells, without heads."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return [row for row in cells if len(row) == columns and not set("".join(row)) <= set("-")]


def test_every_setting_has_its_row(page: str) -> None:
    """The table of settings has each of the model's settings once, and no others."""
    shown = re.findall(r"`([^`]+)`", "".join(row[0] for row in rows(section(page, "Settings"), 3)))
    assert sorted(shown) == sorted(SETTINGS)


def test_every_refusal_is_listed(page: str) -> None:
    """The page lists every setting that is refused by name."""
    shown = re.findall(r"`([^`]+)`", "".join(row[0] for row in rows(section(page, "Refused"), 3)))
    assert sorted(shown) == sorted(REFUSED)


@pytest.mark.parametrize("codec", NVENC_PROFILES)
def test_every_preset_is_as_shown(page: str, codec: Codec) -> None:
    """The table shows the settings that a capable device gets for each preset."""
    capabilities = NvencDevice(FakeNvenc()).capabilities(codec)
    picture = VideoFormat(128, 96, "yuv420p", Fraction(25))
    shown = rows(section(page, "From request to settings"), 6)[1:]
    assert [row[0] for row in shown] == [str(preset) for preset in range(1, 8)]
    for row in shown:
        settled = settle(nvenc_request(codec, preset=int(row[0])), picture, Fraction(1, 25), capabilities).nvenc
        assert settled is not None
        options = dict(settings_to_options(settled))
        keys = ("preset", "bf", "multipass", "lookahead", "aq")
        assert row[1:] == [options.get(key, "none") for key in keys]
        assert settled.codec is codec


def test_default_qualities_are_as_shown(page: str) -> None:
    """The defaults in the text are those of the profiles."""
    for codec, profile in NVENC_PROFILES.items():
        assert f"{profile.default_quality} ({codec})" in page

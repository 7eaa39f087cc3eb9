"""Small files that state much are refused with one line and exit code 3, unless a limit is raised."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .attacks import Attack, attack, clip, put
from .bombs import matroska_tracks, mov, png

__all__ = ["attack", "clip"]

pytestmark = pytest.mark.timeout(120)

LARGE = png(16_384, 16_384)
SMALL = png(64, 64)
BOMBS: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "declared pictures": ("a.mov", lambda: mov(16_384, 16_384, LARGE), "pictures of 16384x16384; max_pixels"),
    "many tracks in mov": ("a.mov", lambda: mov(64, 64, SMALL, tracks=1_100), "more than 1000 tracks"),
    "many tracks in mkv": ("a.mkv", lambda: matroska_tracks(1_100), "at least 1001 tracks; max_tracks"),
    "one picture again and again": (
        "a.mov",
        lambda: mov(9_500, 9_500, png(9_500, 9_500), chunks=4_000),
        "for each of its",
    ),
    "a rate beyond any camera": ("a.mov", lambda: mov(64, 64, SMALL, rate=1_000_000, chunks=4), "max_frame_rate"),
}


@pytest.mark.parametrize("case", BOMBS)
def test_a_bomb_is_one_line(case: str, attack: Attack) -> None:
    """A bomb is refused by every command in one line, with the key that would allow it."""
    name, build, words = BOMBS[case]
    source = put(attack.folder / name, build())
    attack.source_refused(3, words, "in the configuration", source=source)
    attack.refused(3, words, arguments=["plan", source])
    attack.refused(3, words, arguments=["probe", source])


def test_a_header_that_belittles_its_pictures(attack: Attack) -> None:
    """If a picture is larger than the container says, no decoder allocates memory for it."""
    source = put(attack.folder / "a.mov", mov(64, 64, LARGE))
    attack.source_refused(3, "no picture", source=source)


MEASURED = """
import resource, sys
from codecfleet.cli.app import run
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
code = run(["plan", sys.argv[1]])
print(code, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


@pytest.mark.parametrize("sample", ["declared", "hidden"])
def test_a_bomb_takes_no_memory(sample: str, tmp_path: Path) -> None:
    """A picture of 800 MB is refused with the memory that planning any film takes."""
    side = 16_384 if sample == "declared" else 64
    source = put(tmp_path / "a.mov", mov(side, side, LARGE))
    assert source.stat().st_size < 1_000
    command = [sys.executable, "-c", MEASURED, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    code, grown_mib = done.stdout.split()
    assert code == "3"
    assert int(grown_mib) < 200


def test_a_limit_may_be_raised_or_lowered(attack: Attack, clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit in the environment replaces the default, in both directions."""
    monkeypatch.setenv("CODECFLEET_MAX_PIXELS", "100")
    attack.source_refused(3, "max_pixels allows 100", source=clip)
    monkeypatch.setenv("CODECFLEET_MAX_PIXELS", "1000000")
    monkeypatch.setenv("CODECFLEET_MAX_DURATION_S", "1")
    attack.transcodes(clip)
    monkeypatch.setenv("CODECFLEET_MAX_FRAME_RATE", "24")
    attack.refused(3, "max_frame_rate allows 24", arguments=["plan", clip])

"""``codecfleet stills`` as a user runs it, on the bundled film."""

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.unit.jobs.stills.conftest import decoded, on_screen


def _stills(film: Path, output: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "codecfleet", "stills", str(film), str(output), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=output.parent)


def _rgb(path: Path) -> NDArray[np.uint8]:
    with av.open(str(path)) as container:
        return np.asarray(next(container.decode(video=0)).to_ndarray(format="rgb24"), dtype=np.uint8)


@pytest.mark.slow
def test_stills_of_the_bundled_film(film: Path, tmp_path: Path) -> None:
    """The command fills a folder with the pictures on screen, says what it decoded, and leaves nothing beside it."""
    output = tmp_path / "thumbs"
    done = _stills(film, output, "--count", "2", "--scale", "90p", "--format", "png", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert (report["stills"], report["width"], report["height"]) == (2, 160, 90)
    assert report["frames_decoded"] < report["frames"] == 240
    assert [each.name for each in tmp_path.iterdir()] == ["thumbs"]
    pictures = decoded(film)
    for entry in json.loads((output / "index.json").read_text())["stills"]:
        frame = on_screen(pictures, Fraction(entry["at_s"]))
        # FFmpeg's other scaler, and its own rounding: near, and nearer than to any picture half a second away.
        expected = np.asarray(frame.to_ndarray(format="rgb24", width=160, height=90), dtype=np.uint8)
        assert np.abs(_rgb(output / entry["file"]).astype(int) - expected).mean() < 8
    again = _stills(film, output, "--count", "2")
    assert again.returncode == 4
    assert "exists already. Use --overwrite" in again.stderr


@pytest.mark.slow
def test_scenes_on_a_sheet(film: Path, tmp_path: Path) -> None:
    """The film's two cuts are found, and its three scenes are on one sheet with WebVTT that names their places."""
    done = _stills(film, tmp_path / "scenes", "--scene", "--sheet", "3x1", "--width", "320")
    assert done.returncode == 0, done.stderr
    index = json.loads((tmp_path / "scenes" / "index.json").read_text())
    assert [entry["time_s"] for entry in index["stills"]] == [0.0, 0.875, 4.75]
    assert [(sheet["width"], sheet["height"]) for sheet in index["sheets"]] == [(960, 180)]
    cues = (tmp_path / "scenes" / "sprites.vtt").read_text()
    assert "00:00:04.750 --> 00:00:10.000\nsheet-00001.jpg#xywh=640,0,320,180" in cues

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
    """The folder has only the pictures on screen at each time, and the command says how many pictures it decoded."""
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
        # FFmpeg's own scaler rounds differently, but the still is near its picture.
        expected = np.asarray(frame.to_ndarray(format="rgb24", width=160, height=90), dtype=np.uint8)
        assert np.abs(_rgb(output / entry["file"]).astype(int) - expected).mean() < 8
    again = _stills(film, output, "--count", "2")
    assert again.returncode == 4
    assert "exists already. Use --overwrite" in again.stderr

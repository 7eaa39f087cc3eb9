"""A stream that breaks its decoder's process does not harm six good films beside it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from codecfleet.testing.clips import Clip, constant_times, make_clip

from .scenario import Action, Fault, Scenario, machine
from .simulated_driver import needs, simulated_environment

pytestmark = [
    pytest.mark.ray,
    needs("PyNvVideoCodec"),
]

FRAMES = 96
GOOD, POISON = (320, 176), (208, 128)


def film(path: Path, size: tuple[int, int], first: int = 0) -> Path:
    """Make a film of 4 s, in which each second may be a segment; another ``first`` time gives another film."""
    times = tuple(first + tick for tick in constant_times(FRAMES))
    options = (("x264-params", "keyint=24:scenecut=0"),)
    return make_clip(path, Clip(times=times, width=size[0], height=size[1], options=options))


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_six_good_films_end_well_beside_one_that_breaks_nvdec(tmp_path: Path, repository: Path) -> None:
    """NVDEC decodes the six films, the poison ends in software, two processes are lost, and all bytes are right."""
    poison = film(tmp_path / "poison.mp4", POISON)
    good = [film(tmp_path / f"good-{number}.mp4", GOOD, number) for number in range(6)]
    breaks = Fault(function="cuvidDecodePicture@{}x{}".format(*POISON), action=Action.BREAK, call=6, onwards=True)
    scenario = Scenario(machine=machine("rtx-4090"), faults=(breaks,))
    command = [sys.executable, "benchmarks/poison.py", "--poison", poison, "--good", *good]
    done = subprocess.run(
        [*map(str, command), "--segment-seconds", "2", "--workers", "8"],
        env={**os.environ, **simulated_environment(scenario, tmp_path, shared_state=True)},
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "poison poison.mp4: ended well, decoded by {'software': 2}" in done.stdout
    assert "'alone': 1}" in done.stdout, "it broke a process of its own"

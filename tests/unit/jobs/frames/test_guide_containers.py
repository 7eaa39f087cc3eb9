"""The containers that PyNvVideoCodec's guide names."""

from pathlib import Path

import pytest

from codecfleet.testing.clips import Clip, constant_times, make_clip

from ..frame_streams import GOPS, reference, stream, taken, told


@pytest.mark.parametrize("name", ["film.mp4", "film.avi", "film.mkv"])
def test_every_container_of_the_guide_is_opened(tmp_path: Path, name: str) -> None:
    """Section 2.1's .mp4, .avi and .mkv: every frame of a sequential decode, once, at its time."""
    path = make_clip(tmp_path / name, Clip(times=constant_times(24), options=GOPS))
    frames = stream(path)
    assert told(taken(frames)) == reference(path)
    assert frames.report.frames == 24

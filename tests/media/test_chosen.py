"""Frames by number, slice and time over a few files of the shared footage; ``make chosen`` has all."""

from pathlib import Path

import pytest

from .chosen import differences

pytestmark = [pytest.mark.media, pytest.mark.timeout(120)]

FILES = ["derived_h264_opengop_360p_aac.mp4", "vp9_odd_161x121.webm", "hevc_ibi_elst_ends_betn_b_and_i.mp4"]


@pytest.mark.parametrize("name", FILES)
def test_chosen_frames_are_those_of_an_iteration(shared_media: Path, name: str) -> None:
    """Frames at random numbers and times, in slices both ways, and every sixth, equal those of an iteration."""
    assert differences(shared_media / name, "software") == []

from pathlib import Path

import pytest

from tests.sweeps import swept

from .damage import Counts, compare

pytestmark = [pytest.mark.media, pytest.mark.timeout(300)]

PLACES = 1


@pytest.mark.parametrize(
    "name", swept(["vp9_odd_161x121.webm", "hevc_ibi_elst_ends_betn_b_and_i.mp4", "mpeg2_sony_ct3_interlaced.m2v"])
)
def test_damaged_films_give_the_same_bytes(shared_media: Path, name: str) -> None:
    """A film that is cut short or has broken bits gives the same bytes with any workers, in any process."""
    counts = Counts()
    compare(shared_media / name, PLACES, counts)
    assert counts.films == 2 * PLACES
    assert counts.encoded > 0
    assert counts.unequal == []

"""Limits of the boxes of fragments and segments."""

import pytest

from codecfleet.errors import Unsupported
from codecfleet.jobs.package.boxes.fragments import Reference, SampleRun, fragment_head, index_size, segment_index


def test_an_index_has_the_size_that_was_reserved() -> None:
    """The writer leaves room for the index before it knows the segments."""
    segments = [Reference(9, 8)] * 3
    assert len(segment_index(1, 0, segments)) == index_size(3)


def test_what_a_segment_index_cannot_name_is_refused() -> None:
    """Sizes have 31 bits, and the number of segments 16."""
    assert segment_index(1, 0, [Reference((1 << 31) - 1, 1)])
    with pytest.raises(Unsupported, match="2 GiB"):
        segment_index(1, 0, [Reference(1 << 31, 1)])
    assert index_size(0xFFFF)
    with pytest.raises(Unsupported, match="not 65536"):
        index_size(0x10000)


def test_a_fragment_larger_than_its_box_is_refused() -> None:
    """``mdat`` states its size in 32 bits."""
    run = SampleRun(decode=0, durations=[1, 1], sizes_bytes=[1 << 31, 1 << 31], offsets=[0, 0], is_video=True)
    with pytest.raises(Unsupported, match="a fragment of"):
        fragment_head(1, run)

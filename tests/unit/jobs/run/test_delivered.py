"""The encoded segments of a job once some are encoded again with other bounds."""

from pathlib import Path

import numpy as np
import pytest

from codecfleet.actors.segment.encoding import EncodedSegment
from codecfleet.actors.segment.walk import SegmentTally
from codecfleet.jobs.board.events import Run
from codecfleet.jobs.join.spool import Spool
from codecfleet.jobs.run.delivered import DeliveredSegments


def encoded(segment: int, frames: int) -> EncodedSegment:
    """Return an encoded segment of as many pictures, of a byte each."""
    return EncodedSegment(
        segment=segment,
        pts_ticks=np.arange(frames, dtype=np.int64),
        sizes_bytes=np.ones(frames, dtype=np.int64),
        keyframes=np.zeros(frames, dtype=np.bool_),
        payload=np.full(frames, segment, dtype=np.uint8),
        extradata=b"",
        tally=SegmentTally(frames=frames),
        resized={},
        encode_s=0.0,
        wall_s=0.0,
    )


@pytest.mark.parametrize(
    ("runs", "left", "frames"),
    [
        ([(0, 0), (1, 1), (2, 2), (0, 1)], [0, 2], 30),
        ([(0, 2), (1, 1)], [1], 10),
        ([(0, 1), (0, 0), (1, 1), (2, 2)], [0, 1, 2], 30),
    ],
)
def test_each_picture_is_in_one_segment(
    runs: list[tuple[int, int]], left: list[int], frames: int, tmp_path: Path
) -> None:
    """What overlaps the newest segment is gone, with its file: it would count pictures twice."""
    spool = Spool(tmp_path / "work", str(tmp_path / "out.mp4"))
    spool.open(continues=True)
    delivered = DeliveredSegments(spool)
    for first, until in runs:
        delivered.put(Run(first, until, 0, 1), spool.put(encoded(first, 10 * (until - first + 1))))
    assert sorted(delivered.spooled) == sorted(delivered.runs) == left
    assert delivered.frames(without=()) == frames
    assert delivered.restored([*left, 9]) == {9}
    paths = {each.path for each in delivered.spooled.values()}
    assert {each for each in spool.payloads.iterdir() if each.suffix == next(iter(paths)).suffix} == paths

"""How long the last picture is shown, according to the container."""

from fractions import Fraction

import numpy as np
import pytest

from codecfleet.actors.media.headers import TrackEnd
from codecfleet.jobs.source.last_picture import stated_duration

TICK = Fraction(1, 1000)
IN_ORDER = ((0, 0, 500), (500, 500, 1500), (2000, 2000, 5000))
REORDERED = ((0, -500, 500), (2000, 0, 500), (500, 500, 1500))
"""Packets in decoding order: PTS, DTS and duration. The samples last 2.5 s."""


def stated(
    packets: tuple[tuple[int, int, int], ...],
    muxer: str = "mov,mp4",
    end: TrackEnd | None = None,
    *,
    hides_packets: bool = False,
    lacks_packets: bool = False,
) -> Fraction | None:
    """Return the stated duration of the last picture, in milliseconds."""
    pts, dts, durations = np.array(packets, np.int64).reshape(-1, 3).T
    return stated_duration(
        muxer,
        pts,
        dts,
        durations,
        tick_s=TICK,
        track_end=lambda: end,
        hides_packets=hides_packets,
        lacks_packets=lacks_packets,
    )


def ends(end_ms: int) -> TrackEnd:
    """Return the end of an edit list whose movie counts milliseconds."""
    return TrackEnd(end_ms * TICK, TICK)


@pytest.mark.parametrize(
    ("packets", "muxer", "end", "expected"),
    [
        (IN_ORDER, "mov,mp4", None, 5000),
        (IN_ORDER, "mov,mp4", ends(7001), 5000),
        (IN_ORDER, "mov,mp4", ends(4000), 2000),
        (IN_ORDER, "mov,mp4", ends(9000), 5000),
        (REORDERED, "mov,mp4", ends(7000), 5000),
        (REORDERED, "mov,mp4", ends(1000), 500),
        (REORDERED, "mov,mp4", None, 500),
        (REORDERED, "matroska,webm", None, 500),
        (IN_ORDER, "matroska,webm", None, 5000),
        (IN_ORDER, "mpegts", None, None),
        (((0, 0, 40), (40, 40, 1)), "mov,mp4", None, None),
        (((0, 0, 40), (40, 40, 0)), "matroska,webm", None, None),
        (((7, 7, 9000),), "matroska,webm", None, 9000),
        (((7, 7, 0),), "matroska,webm", None, None),
        ((), "mov,mp4", None, None),
    ],
)
def test_what_a_container_states(
    packets: tuple[tuple[int, int, int], ...], muxer: str, end: TrackEnd | None, expected: int | None
) -> None:
    """Edit lists end a picture, and decide if pictures are reordered; less than half a picture is not believed."""
    assert stated(packets, muxer, end) == expected


@pytest.mark.parametrize(("end_ms", "hides_packets", "expected"), [(180, True, 40), (180, False, 60), (240, True, 120)])
def test_an_edit_list_that_begins_within_a_picture(end_ms: int, *, hides_packets: bool, expected: int) -> None:
    """An edit list that begins within a picture ends late by a part of it, because FFmpeg moves what is shown."""
    packets = ((0, -40, 40), (120, 0, 40), (40, 40, 40), (80, 80, 40))
    assert stated(packets, end=ends(end_ms), hides_packets=hides_packets) == expected


@pytest.mark.parametrize(("end_ms", "expected"), [(7000, 500), (2300, 300)])
def test_an_edit_list_that_ends_behind_missing_packets_says_nothing(end_ms: int, expected: int) -> None:
    """An edit list that ends after missing packets proves nothing, but may end within the last picture."""
    assert stated(REORDERED, end=ends(end_ms), lacks_packets=True) == expected

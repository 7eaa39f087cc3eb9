"""Bitmap subtitles: the bitmap, position and time of each packet."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, cast

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.tracks.bitmaps import BitmapDecoder, Showing, trimmed
from codecfleet.errors import InputTooLarge
from codecfleet.testing.clips import Clip, constant_times, make_clip
from tests.subtitle_tracks import INK, Cue, bars, dvb_packet, pgs_packet, vobsub_packet, with_subtitles

if TYPE_CHECKING:
    from av.subtitles.stream import SubtitleStream

CANVAS = (128, 96)
VOBSUB_HEADER = b"size: 128x96\npalette: 000000, ffffff, ff0000, 0000ff" + b", 000000" * 12 + b"\n"


def showings(
    folder: Path, decoder: str, cues: Sequence[Cue], *, extradata: bytes = b"", tick_s: Fraction = Fraction(1, 1000)
) -> tuple[list[Showing], int]:
    """Return a track's showings, and how many of its packets could not be decoded."""
    film = make_clip(folder / "film.mp4", Clip(times=constant_times(2)))
    path = with_subtitles(film, folder / "both.mkv", [(decoder, "eng", cues)], extradata=extradata, tick_s=tick_s)
    with av.open(str(path)) as container:
        stream = cast("SubtitleStream", container.streams[1])
        found = BitmapDecoder(stream, (64, 48))
        return [
            each for packet in container.demux(stream) if packet.size for each in found.decode(packet)
        ], found.failed


def test_pgs(tmp_path: Path) -> None:
    """Parts appear at their places, in their colours; a set without parts shows nothing."""
    parts = [(10, 60, bars(80, 20)), (4, 70, bars(6, 6))]
    cues = [Cue(Fraction(1, 5), pgs_packet(CANVAS, parts)), Cue(Fraction(7, 5), pgs_packet(CANVAS, []))]
    (first, second), failed = showings(tmp_path, "pgssub", cues)
    assert (first.start_s, first.end_s, second.start_s, second.bitmap, failed) == (
        Fraction(1, 5),
        None,
        Fraction(7, 5),
        None,
        0,
    )
    assert first.bitmap is not None
    assert (first.bitmap.canvas, first.bitmap.x, first.bitmap.y) == (CANVAS, 4, 60)
    assert first.bitmap.samples.shape == (20, 86, 4)
    alphas = np.array([colour[3] for colour in INK], np.uint8)
    assert np.array_equal(first.bitmap.samples[:, 6:, 3], alphas[bars(80, 20)])
    assert np.array_equal(first.bitmap.samples[10:16, :6, 3], alphas[bars(6, 6)])
    assert not first.bitmap.samples[:10, :6].any()
    white = first.bitmap.samples[:, 6:][bars(80, 20) == 1]
    assert (white == 255).all()


def test_vobsub(tmp_path: Path) -> None:
    """A subtitle ends at its own stated time, otherwise at the time that the container states."""
    cues = [
        Cue(Fraction(1, 5), vobsub_packet(10, 60, bars(80, 20), Fraction(6, 5))),
        Cue(Fraction(8, 5), vobsub_packet(20, 10, bars(80, 20), None), Fraction(1, 5)),
    ]
    (first, second), failed = showings(tmp_path, "dvdsub", cues, extradata=VOBSUB_HEADER)
    assert first.bitmap is not None
    assert (first.bitmap.canvas, first.bitmap.x, first.bitmap.y, first.bitmap.samples.shape) == (
        CANVAS,
        10,
        60,
        (20, 80, 4),
    )
    # a VobSub clock of 1024 ticks of 90 kHz
    assert first.end_s is not None
    assert abs(first.end_s - Fraction(7, 5)) < Fraction(1, 50)
    assert (second.start_s, second.end_s, failed) == (Fraction(8, 5), Fraction(9, 5), 0)


def test_dvb(tmp_path: Path) -> None:
    """A page stays until its time-out or the next page; without a display definition the canvas is 720x576."""
    cues = [
        Cue(Fraction(1, 5), dvb_packet(10, 60, bars(80, 20), version=1, timeout_s=5)),
        Cue(Fraction(2), dvb_packet(0, 0, bars(0, 0), version=2)),
    ]
    (first, second), failed = showings(tmp_path, "dvbsub", cues, extradata=bytes([0, 1, 0, 1, 0]))
    assert first.bitmap is not None
    assert (first.bitmap.canvas, first.bitmap.x, first.bitmap.y) == ((720, 576), 10, 60)
    assert (first.start_s, first.end_s) == (Fraction(1, 5), Fraction(26, 5))
    assert (second.start_s, second.bitmap, failed) == (Fraction(2), None, 0)


def test_parts_outside_the_screen_are_cut_off(tmp_path: Path) -> None:
    """However far outside parts are placed, they take no more memory than the canvas."""
    cues = [Cue(Fraction(0), pgs_packet(CANVAS, [(100, 90, bars(60, 20)), (60_000, 60_000, bars(20, 20))]))]
    found, _ = showings(tmp_path, "pgssub", cues)
    for each in found:
        assert each.bitmap is None or each.bitmap.x + each.bitmap.samples.shape[1] <= CANVAS[0]


def test_a_huge_screen_is_refused(tmp_path: Path) -> None:
    """Sides of 16 bits would give 4 gigasamples, which are never allocated."""
    cues = [Cue(Fraction(0), pgs_packet((65_535, 65_535), [(0, 0, bars(20, 20))]))]
    try:
        found, failed = showings(tmp_path, "pgssub", cues)
    except InputTooLarge:
        return
    assert failed == 1 or all(each.bitmap is None for each in found)


@given(st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=8))
def test_nonsense_is_counted(tmp_path_factory: pytest.TempPathFactory, payloads: list[bytes]) -> None:
    """Any bytes are decoded, or counted as failed."""
    for decoder in ("pgssub", "dvdsub"):
        cues = [Cue(Fraction(n), payload) for n, payload in enumerate(payloads)]
        found, failed = showings(tmp_path_factory.mktemp("nonsense"), decoder, cues, extradata=VOBSUB_HEADER)
        assert 0 <= failed <= len(payloads)
        assert all(each.start_s >= 0 for each in found)


def test_what_is_transparent_is_left_out() -> None:
    """Only the visible rectangle is kept; None if nothing is visible."""
    samples = np.zeros((9, 11, 4), np.uint8)
    assert trimmed((20, 20), 3, 4, samples) is None
    samples[2, 5, 3] = samples[6, 7, 3] = 1
    found = trimmed((20, 20), 3, 4, samples)
    assert found is not None
    assert (found.x, found.y, found.samples.shape) == (8, 6, (5, 3, 4))

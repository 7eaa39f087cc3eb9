"""What is decoded for each segment: its pictures and seams, and no further packet if that is known."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.decode.decoding import SOFTWARE, DecodeRange, DecodeTally, decode_range
from codecfleet.actors.decode.picture_hash import PictureHash, picture_hash
from codecfleet.actors.media.timeline import REORDER_FRAMES
from codecfleet.actors.segment.walk import SEAM_FRAMES
from codecfleet.jobs.board.board import seams_agree
from codecfleet.jobs.plan.track_ranges import PACKET_MARGIN, TrackRanges
from codecfleet.jobs.source.index import TrackIndex
from codecfleet.jobs.source.source import read_source
from codecfleet.testing.clips import Clip, make_clip

from ..gop_clips import CLIPS as GOP_CLIPS
from ..gop_clips import FRAMES, KEYS, TIMES, of_x264
from ..source.test_index_and_cuts import TICK, index_of

CLIPS = GOP_CLIPS | {
    "pyramid.mp4": of_x264("bframes=7:b-pyramid=normal"),
    "no-b.mp4": of_x264("bframes=0"),
    "fields.mp4": of_x264("bframes=3:interlaced=1"),
    "vp8.webm": Clip(times=TIMES, keyframes=KEYS, encoder="libvpx", options=(("lag-in-frames", "8"),)),
}


@st.composite
def tracks(draw: st.DrawFn) -> TrackIndex:
    """Draw an index of closed groups of pictures, in any order of decoding within each."""
    order: list[int] = []
    keys = set()
    for size in draw(st.lists(st.integers(2, 12), min_size=2, max_size=8)):
        keys.add(len(order))
        first = len(order)
        order += [first, *draw(st.permutations(range(first + 1, first + size)))]
    index = index_of([place * 40 for place in order], keys, dts=[place * 40 for place in range(len(order))])
    return replace(index, has_whole_pictures=draw(st.booleans()))


@given(tracks(), st.fractions(Fraction(1, 10), 2))
def test_no_packet_more_than_is_needed(index: TrackIndex, segment_s: Fraction) -> None:
    """All pictures of a segment and its seam are decoded; if packets are pictures, the last packet is one of them."""
    ranges = TrackRanges.cut(index, start_s=None, end_s=None, segment_s=segment_s)
    for segment in ranges.segments[:-1]:
        last = ranges.decode(segment, 0).last_packet
        assert last is not None
        assert segment.end_ticks is not None
        wanted = [int(t) for t in index.times if t < segment.end_ticks]
        wanted += [int(t) for t in index.times if t >= segment.end_ticks][:SEAM_FRAMES]
        assert set(wanted) <= {int(t) for t in index.pts[: last + 1]}
        margin = 0 if index.has_whole_pictures else PACKET_MARGIN
        assert last == index.packets - 1 or int(index.pts[last - margin]) in wanted


@given(tracks(), st.data())
def test_no_packet_is_examined_if_all_pictures_are_wanted(index: TrackIndex, data: st.DataObject) -> None:
    """Packets may be left out only if a picture of the range is not wanted."""
    index = replace(index, has_whole_pictures=True)
    segment = data.draw(
        st.sampled_from(TrackRanges.cut(index, start_s=None, end_s=None, segment_s=Fraction(1)).segments)
    )
    ranges = TrackRanges(index, (segment,))
    all_ticks = ranges.decode_wanted(segment, 0, frozenset(), index.packets - 1).expected_ticks
    chosen = data.draw(st.sets(st.sampled_from(all_ticks), min_size=1))
    for ticks in (frozenset(all_ticks), frozenset(chosen)):
        wanted = ranges.decode_wanted(segment, 0, ticks, index.packets - 1).wanted
        assert wanted is not None
        assert wanted.by_packet == (ticks != frozenset(all_ticks))
        assert wanted.ticks == ticks


@pytest.mark.parametrize(
    ("times", "keys", "start_s", "packet"),
    [
        # The track occurs twice: pictures of the part precede the access point nearest in time.
        ([place * 40 for place in range(24)] * 2, {0, 6, 12, 24, 30, 36}, Fraction(3, 5), 6),
        # Pictures with the same time before the start are spread past it (rule R4).
        ([*[place * 40 for place in range(8)] * 3, *range(320, 800, 40)], {0, 8, 16, 24}, 300 * TICK, 0),
    ],
)
def test_a_part_begins_before_all_of_its_pictures(
    times: list[int], keys: set[int], start_s: Fraction, packet: int
) -> None:
    """Decoding begins before all pictures of a part, even if clocks step back or times repeat."""
    index = index_of(times, keys, dts=times)
    ranges = TrackRanges.cut(index, start_s=start_s, end_s=None, segment_s=None)
    assert ranges.segments[0].cut_packet == packet


def test_unreliable_times_near_the_end_take_a_wide_margin() -> None:
    """If times repeat near the end, more packets are decoded: it is unknown which packet holds which picture."""
    pts = [n * 40 for n in range(200)]
    pts[104] = pts[103]
    index = replace(index_of(pts, {0}, dts=[n * 40 for n in range(200)]), has_whole_pictures=True)
    ranges = TrackRanges.cut(index, start_s=None, end_s=100 * 40 * TICK, segment_s=None)
    assert ranges.decode(ranges.segments[-1], 0).last_packet == 101 + REORDER_FRAMES


def test_a_part_of_a_track_without_times_is_decoded_to_the_end(tmp_path: Path) -> None:
    """A part of a track without times is decoded to the end, because its pictures are only counted."""
    index = read_source(str(make_clip(tmp_path / "raw.h264", CLIPS["open.mkv"]))).index
    assert index.untimed
    ranges = TrackRanges.cut(index, start_s=None, end_s=Fraction(1), segment_s=None)
    assert ranges.decode(ranges.segments[0], 0).last_packet == index.packets - 1


@pytest.mark.parametrize("name", CLIPS)
def test_ranges_give_what_a_whole_decode_gives(tmp_path: Path, name: str) -> None:
    """Each segment decodes to exactly its own pictures and those of its seam, and every seam agrees."""
    index = read_source(str(make_clip(tmp_path / name, CLIPS[name]))).index
    ranges = TrackRanges.cut(index, start_s=None, end_s=None, segment_s=Fraction(1, 5))
    (everything,) = TrackRanges.cut(index, start_s=None, end_s=None, segment_s=index.duration_s).segments
    whole = decoded(ranges.decode(everything, 0))
    assert len(whole) == FRAMES
    assert len(ranges.segments) > 3
    after: list[PictureHash] = []
    for segment in ranges.segments:
        found = [each for each in decoded(ranges.decode(segment, 0)) if each.ticks >= (segment.start_ticks or 0)]
        first = next(place for place, each in enumerate(whole) if each.ticks >= found[0].ticks)
        assert found[: segment.frames] == whole[first : first + segment.frames]
        assert segment.start_ticks is None or seams_agree(after, found[:SEAM_FRAMES])
        after = found[segment.frames :][:SEAM_FRAMES]
        assert len(after) == (0 if segment.end_ticks is None else SEAM_FRAMES)
        assert all(each.ticks >= (segment.end_ticks or 0) for each in after)


def decoded(range_: DecodeRange) -> list[PictureHash]:
    """Return every picture that a range gives."""
    return [picture_hash(ticks, frame) for ticks, frame in decode_range(range_, DecodeTally(), SOFTWARE)]

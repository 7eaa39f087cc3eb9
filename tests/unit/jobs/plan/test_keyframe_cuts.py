"""With a keyframe interval, cuts are at its multiples, and decoding starts at an access point shortly before."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.media.timeline import REORDER_FRAMES
from codecfleet.actors.segment.frame_rate import CountedGrid, FrameRate, KeyframeGrid
from codecfleet.errors import Unsupported, UsageError
from codecfleet.jobs.plan.cuts import CutReason, choose_cuts
from codecfleet.jobs.plan.pace import keyframe_grid
from codecfleet.jobs.plan.plan import Plan, plan_of, plan_transcode
from codecfleet.jobs.plan.reads import read_for
from codecfleet.jobs.plan.track_ranges import TrackRanges
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.jobs.source.index import MISSING, TrackIndex
from codecfleet.testing.clips import Clip, constant_times, make_clip

from ..source.test_index_and_cuts import TICK, constant, index_of

RATES_OF_A_TICK = st.fractions(Fraction(1, 12), 2, max_denominator=30)
INTERVALS = st.fractions(Fraction(1, 20), 6, max_denominator=30)


def spec(**options: object) -> TranscodeSpec:
    """Return a request."""
    return TranscodeSpec.model_validate({"source": "in.mkv", "output": "out.mkv", **options})


def grid_of(index: TrackIndex, interval_s: Fraction, **options: object) -> KeyframeGrid:
    """Return the grid of a request for this interval."""
    grid = keyframe_grid(index, spec(keyframe_interval_s=interval_s, **options), None)
    assert grid is not None
    return grid


@st.composite
def tracks(draw: st.DrawFn) -> TrackIndex:
    """Draw an index without reordering, with any steps and access points, and some repeated times."""
    times = [draw(st.integers(0, 5000))]
    for step in draw(st.lists(st.sampled_from([17, 33, 40, 41, 40, 40, 700, 9000]), min_size=1, max_size=250)):
        times.append(times[-1] + step)
    for place in draw(st.lists(st.integers(1, len(times) - 1), max_size=2)):
        times[place] = times[place - 1]
    return index_of(times, {0, *draw(st.sets(st.integers(1, len(times) - 1), max_size=30))})


@given(tracks(), INTERVALS, st.none() | st.fractions(Fraction(1, 10), 5))
def test_every_cut_is_a_multiple_and_soon_after_its_access_point(
    index: TrackIndex, interval_s: Fraction, segment_s: Fraction | None
) -> None:
    """No segment is empty, all begin at multiples of the interval, and each entry is shortly before its cut."""
    grid = grid_of(index, interval_s)
    cuts = choose_cuts(index, segment_s, grid=grid)
    for cut in cuts:
        entry_ticks = int(index.pts[cut.entry.packet])
        assert cut.ticks == grid.begins(grid.multiple(cut.ticks))
        assert cut.reason is CutReason.MULTIPLE
        assert entry_ticks <= cut.ticks
        # Between the entry and the cut, multiples of the interval have no picture.
        assert index.frames_between(grid.following(entry_ticks), cut.ticks) == 0
        assert not index.is_unreliable(cut.entry.packet)
    ends = [index.first_ticks, *(cut.ticks for cut in cuts), index.end_ticks + 1]
    assert all(index.frames_between(begin, end) for begin, end in pairwise(ends))


def test_segments_begin_at_multiples_near_the_aim() -> None:
    """With access points every 2.4 s and an interval of 2 s, each cut is decoded from the access point before it."""
    index = constant(60, [n * 2.4 for n in range(25)])
    grid = grid_of(index, Fraction(2))
    cuts = choose_cuts(index, Fraction(10), grid=grid)
    found = [(float(cut.ticks * TICK), float(index.pts[cut.entry.packet] * TICK)) for cut in cuts]
    assert found == [(10, 9.6), (20, 19.2), (30, 28.8), (40, 38.4), (48, 48)]
    ranges = TrackRanges.cut(index, start_s=None, end_s=None, segment_s=Fraction(10), grid=grid)
    entries = [ranges.entry(segment, 0) for segment in ranges.segments]
    assert entries == [None, *(cut.entry for cut in cuts)]


def test_no_cut_where_a_time_is_in_doubt() -> None:
    """Nothing is cut within reordering distance of a repeated or missing time."""
    times = [n * 40 for n in range(1500)]
    times[500] = times[499]
    times[1000] = MISSING
    index = index_of(times, set(range(0, 1500, 25)), dts=[n * 40 for n in range(1500)])
    cuts = choose_cuts(index, Fraction(2), grid=grid_of(index, Fraction(2)))
    assert len(cuts) > 20
    assert all(abs(cut.ticks // 40 - doubtful) > REORDER_FRAMES for cut in cuts for doubtful in (500, 1000))


@given(st.integers(2, 90), st.sets(st.integers(1, 89)), RATES_OF_A_TICK, st.fractions(2, 20, max_denominator=9))
def test_segments_hold_what_their_pictures_show_where_ticks_are_long(
    count: int, points: set[int], step_ticks: Fraction, interval_frames: Fraction
) -> None:
    """If ticks are as long as pictures, as in AVI, a segment never shows a picture past its end."""
    index = index_of(list(range(count)), {0, *(place for place in points if place < count)})
    rate = FrameRate(1000 / step_ticks, 0, step_ticks, min(step_ticks, Fraction(1)) / 2, count)
    grid = CountedGrid(interval_frames)
    ranges = TrackRanges.cut(index, start_s=None, end_s=None, segment_s=Fraction(1, 500), grid=grid, rate=rate)
    for segment in ranges.segments[:-1]:
        assert segment.numbers is not None
        assert segment.end_ticks is not None
        assert rate.chosen_at(segment.numbers[1] - 1) < segment.end_ticks


def test_a_track_without_times_has_a_grid_and_no_cuts() -> None:
    """A track without times has a grid but no cuts, because its pictures are counted."""
    index = index_of([MISSING] * 100, {0, 25}, dts=[MISSING] * 100)
    grid = grid_of(index, Fraction(1))
    assert grid == KeyframeGrid(0, Fraction(1000))
    assert choose_cuts(index, Fraction(1), grid=grid) == ()


@pytest.mark.parametrize(
    ("start_s", "shown_from", "first"), [(None, None, 5000), (Fraction(1, 2), None, 5520), (None, 5080, 5080)]
)
def test_multiples_count_from_the_first_picture_of_the_output(
    start_s: Fraction | None, shown_from: int | None, first: int
) -> None:
    """Multiples of the interval count from the first picture after --start, or from the first one that decodes."""
    index = index_of([5000 + n * 40 for n in range(100)], {0})
    grid = keyframe_grid(index, spec(keyframe_interval_s=Fraction(1), start_s=start_s), shown_from)
    assert isinstance(grid, KeyframeGrid)
    assert grid.first_ticks == first
    assert keyframe_grid(index, spec(), shown_from) is None


def test_an_interval_shorter_than_a_picture_is_refused() -> None:
    """An interval shorter than a picture is refused; at 25 frames per second, 0.04 s makes each one a keyframe."""
    index = constant(4, [0])
    assert grid_of(index, Fraction(1, 25)).interval_ticks == 40
    with pytest.raises(UsageError, match="shorter than a picture"):
        grid_of(index, Fraction(39, 1000))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clip of 4 s with an access point every 0.7 s."""
    options = (("x264-params", "keyint=18:min-keyint=18:scenecut=0"),)
    return make_clip(tmp_path_factory.mktemp("grid") / "clip.mkv", Clip(times=constant_times(100), options=options))


def planned(source: Path, **options: object) -> Plan:
    """Return the plan of a job with keyframes every half second."""
    asked = {"source": str(source), "keyframe_interval_s": Fraction(1, 2), "segment_s": Fraction(1), **options}
    return plan_transcode(spec(**asked))


def test_the_interval_is_part_of_the_encoder_kind(source: Path) -> None:
    """Another interval is another encoder kind, although the encoder's settings are the same."""
    plan, other = planned(source), planned(source, keyframe_interval_s=Fraction(1))
    assert plan.encoder.options == other.encoder.options
    assert plan.encoder_kind.endswith(" keyframe_interval_s=1/2")
    assert plan.encoder_kind != other.encoder_kind


def test_the_plan_shows_it(source: Path) -> None:
    """The plan shows the interval in words and in seconds, and each cut as a multiple of the interval."""
    plan = planned(source)
    assert "keyframes: the first frame at or after each multiple of 0.5 s" in plan.lines()
    found = plan.to_json()
    assert found["keyframe_interval_s"] == 0.5
    cuts = found["segments"][1:]
    assert len(cuts) > 1
    assert all(each["start_s"] % 0.5 == 0 and each["reason"] == CutReason.MULTIPLE.value for each in cuts)
    assert planned(source, keyframe_interval_s=None).to_json()["keyframe_interval_s"] is None


@pytest.mark.parametrize(
    ("codec", "option"),
    [
        *(("h264", option) for option in ("g=48", "keyint_min=4", "sc_threshold=40", "x264-params=keyint=48")),
        *(("hevc", option) for option in ("g=48", "x265-params=scenecut=40", "x265-params=fades=1")),
        *(("av1", option) for option in ("g=48", "svtav1-params=keyint=48")),
        ("vp9", "g=48"),
    ],
)
def test_options_that_set_keyframes_are_refused_beside_it(source: Path, codec: str, option: str) -> None:
    """Encoder options that set keyframes are refused beside an interval."""
    key, _, value = option.partition("=")
    with pytest.raises(Unsupported, match="cannot be set") as refused:
        planned(source, codec=codec, encoder_options=((key, value),))
    assert "--keyframe-interval" in refused.value.next_step


def test_av1_at_an_average_bitrate_in_one_pass_is_refused(source: Path) -> None:
    """SVT-AV1 is refused with an interval and its own bitrate, because its keyframes then vary between runs."""
    asked = {"source": str(source), "keyframe_interval_s": Fraction(1, 2), "codec": "av1", "bitrate_bps": 100_000}
    reads = read_for(spec(**asked))
    with pytest.raises(Unsupported, match="in every run"):
        plan_of(spec(**asked), replace(reads, grows=True))
    assert plan_of(spec(**asked), reads).encoder.chosen_crf
    planned(source, codec="av1", maxrate_bps=100_000, bufsize_bits=100_000)


def test_warm_up_comes_before_a_cut_between_access_points(source: Path) -> None:
    """The pictures that deinterlacing needs before a segment count from the cut, not from its access point."""
    plan = planned(source, deinterlace="on", preset=1)
    ranges = TrackRanges(plan.index, plan.segments)
    for segment in plan.segments[1:]:
        entry = ranges.entry(replace(segment), 0, 2)
        if entry is not None:
            assert plan.index.frames_between(int(plan.index.pts[entry.packet]), segment.start_ticks) >= 2

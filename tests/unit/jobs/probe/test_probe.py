import inspect
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.bitstream.access_points import RandomAccess
from codecfleet.jobs.probe import oddities as probe_oddities
from codecfleet.jobs.probe.lines import ProbeReport
from codecfleet.jobs.probe.oddities import find_oddities
from codecfleet.jobs.probe.packets import PacketTally, SourceTally
from codecfleet.jobs.probe.timeline import describe_timeline
from codecfleet.jobs.probe.values import AudioFacts, TimelineFacts, TrackFacts, VideoFacts
from codecfleet.jobs.source.index import MISSING, TrackIndex

from ..source.test_index_and_cuts import index_of as plain_index

COMMON: dict[str, Any] = {"tag": "", "language": None, "title": None, "dispositions": (), "decodable": True}
COMMON |= {"size_bytes": 1000, "audio": None, "video": None, "attachment": None}


def index_of(
    pts: list[int], kinds: dict[int, RandomAccess], *, dts: list[int] | None = None, discard: set[int] = frozenset()
) -> TrackIndex:
    """Return an index of packets in demux order, with times in milliseconds; ``kinds`` are the flagged keyframes."""
    return replace(plain_index(pts, set(kinds), dts=dts, discard=discard), kinds=kinds)


def constant(keys: dict[int, RandomAccess], frames: int = 100) -> TrackIndex:
    """Return an index at 25 fps without reordering."""
    return index_of([n * 40 for n in range(frames)], keys)


def video_track(timeline: TimelineFacts, index: int = 0) -> TrackFacts:
    """Return a video track with this timeline."""
    video = VideoFacts(picture=None, timeline=timeline, cuts=(), segments=1)
    times = {"start_s": timeline.first_s, "duration_s": timeline.duration_s}
    facts = COMMON | times | {"packets": timeline.packets, "video": video}
    return TrackFacts(**facts, index=index, kind="video", codec="h264")


def sound_track(start_s: Fraction, *, decodable: bool = True) -> TrackFacts:
    """Return an audio track that starts at this time."""
    audio = AudioFacts(sample_rate=48_000, channels=2, layout="stereo", priming_samples=0)
    facts = COMMON | {"decodable": decodable, "codec": "aac" if decodable else None, "audio": audio}
    return TrackFacts(**facts, index=1, kind="audio", start_s=start_s, duration_s=Fraction(4), packets=10)


def codes(*tracks: TrackFacts, tally: SourceTally | None = None, duration_s: Fraction | None = None) -> set[str]:
    """Return the codes of all oddities of a source with these tracks."""
    return {oddity.code for oddity in find_oddities(tally or full_tally(*tracks), tracks, duration_s, {})}


def full_tally(*tracks: TrackFacts) -> SourceTally:
    """Return a tally that agrees with the tracks."""
    return SourceTally(tracks={track.index: PacketTally(packets=track.packets) for track in tracks})


def timeline_codes(index: TrackIndex) -> set[str]:
    """Return the oddities of a source whose only track has this index."""
    return codes(video_track(describe_timeline(index)))


VARIABLE = {"variable-frame-rate", "gap"}
IDR_EVERY_SECOND = dict.fromkeys(range(0, 100, 25), RandomAccess.IDR)


def test_times_are_relative_to_the_first_picture() -> None:
    """An access point's time counts from the first picture, wherever the source's clock starts."""
    index = index_of([5000 + n * 40 for n in range(50)], dict.fromkeys((0, 25), RandomAccess.IDR))
    timeline = describe_timeline(index)
    assert timeline.first_s == 5
    assert [point.time_s for point in timeline.access_points] == [0, 1]
    assert "start-not-zero" in timeline_codes(index)


def test_leading_pictures_make_a_gop_open_behind_a_cra_only() -> None:
    """Pictures shown before a CRA need earlier pictures; pictures shown before an IDR do not."""
    pts = [0, 40, 80, 200, 120, 160, 240]
    opened = describe_timeline(index_of(pts, {0: RandomAccess.IDR, 3: RandomAccess.CRA}))
    closed = describe_timeline(index_of(pts, {0: RandomAccess.IDR, 3: RandomAccess.IDR}))
    assert opened.access_points[1].leading_pictures == closed.access_points[1].leading_pictures == 2
    assert (opened.gop.structure, closed.gop.structure) == ("open", "closed")
    assert opened.gop.shortest_frames == 3


def test_a_flag_alone_is_no_access_point() -> None:
    """A flagged packet at which decoding cannot begin is counted separately and reported."""
    index = constant({0: RandomAccess.IDR, 50: RandomAccess.NONE})
    timeline = describe_timeline(index)
    assert (timeline.flagged_packets, len(timeline.access_points), timeline.unusable_keyframes) == (2, 1, 1)
    assert timeline_codes(index) == {"keyframe-flags-lie", "single-gop"}


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (constant(IDR_EVERY_SECOND), set()),  # a constant rate with an IDR each second is ordinary
        (constant({}), {"no-keyframe-flags"}),  # encrypted packets have no access points, which is no error
        (index_of([MISSING] * 100, IDR_EVERY_SECOND, dts=[MISSING] * 100), {"no-pts", "dts-missing"}),  # raw bitstream
        (index_of([0, 33, 67, 100, 300, 333], {0: RandomAccess.IDR, 3: RandomAccess.IDR}), VARIABLE),
        # Steps of 33 and 34 ms are a constant rate on a millisecond clock.
        (index_of([round(n * 1000 / 30) for n in range(90)], {0: RandomAccess.IDR, 30: RandomAccess.IDR}), set()),
        (index_of([n * 40 for n in range(100)], IDR_EVERY_SECOND, discard={0, 1}), {"edit-list-discards"}),
    ],
)
def test_oddities_of_an_index(index: TrackIndex, expected: set[str]) -> None:
    """Each oddity has its code, ordinary tracks have none, and discarded packets are not pictures."""
    assert timeline_codes(index) == expected
    timeline = describe_timeline(index)
    assert timeline.packets == timeline.pictures + timeline.discarded_packets == index.packets


def test_missing_and_repeated_times_are_unreliable_spans() -> None:
    """Missing and repeated presentation times are named, with the packets around which nothing is cut."""
    pts = [n * 40 for n in range(100)]
    pts[30], pts[31], pts[70] = MISSING, MISSING, pts[69]
    index = index_of(pts, IDR_EVERY_SECOND, dts=[n * 40 for n in range(100)])
    timeline = describe_timeline(index)
    assert timeline.unreliable_spans == ((30, 31), (69, 70))
    assert timeline_codes(index) == {"pts-missing", "pts-repeated"}


@pytest.mark.parametrize(("header_s", "lies"), [(Fraction(100), False), (Fraction(101), False), (Fraction(130), True)])
def test_a_header_may_round_but_not_lie(header_s: Fraction, lies: bool) -> None:  # noqa: FBT001 - a parameter
    """A header's duration may differ by 2 % from the packets'; more stated packets than there are is an oddity."""
    track = video_track(describe_timeline(constant(IDR_EVERY_SECOND)))
    tally = full_tally(track)
    tally.header_duration_s, tally.tracks[0].header_frames = header_s, 700
    found = codes(track, tally=tally, duration_s=Fraction(100))
    assert {"header-frames-lie", "header-duration-lies"} & found == {"header-frames-lie"} | (
        {"header-duration-lies"} if lies else set()
    )


def test_sound_alone_and_unknown_sound_are_said() -> None:
    """A file without video is described; a track in an unknown codec is named."""
    assert codes(sound_track(Fraction(0))) == {"no-video"}
    video = video_track(describe_timeline(constant(IDR_EVERY_SECOND)))
    assert codes(video, sound_track(Fraction(1, 2), decodable=False)) == {"sound-offset", "unknown-codec"}


def test_json_has_seconds_as_numbers_and_ratios_as_strings() -> None:
    """Programs read seconds to a microsecond; Python keeps the fraction."""
    timeline = describe_timeline(constant(IDR_EVERY_SECOND))
    empty: dict[str, Any] = {"header_duration_s": None, "tags": {}, "timecode": None, "chapters": (), "oddities": ()}
    tracks, third = (video_track(timeline),), Fraction(1, 3)
    facts = ProbeReport(source="clip", container="mov", size_bytes=1, duration_s=third, tracks=tracks, **empty)
    document = facts.model_dump(mode="json")
    assert document["duration_s"] == 0.333333
    assert document["tracks"][0]["video"]["timeline"]["time_base"] == "1/1000"
    assert facts.duration_s == Fraction(1, 3)


@given(st.lists(st.integers(1, 200), min_size=1, max_size=200), st.sets(st.integers(0, 200)))
def test_gop_lengths_cover_every_picture_once(steps: list[int], keys: set[int]) -> None:
    """However keyframes lie, the groups between them add up to the pictures from the first access point on."""
    pts = [sum(steps[:n]) for n in range(len(steps) + 1)]
    kinds = {key: RandomAccess.IDR for key in sorted(keys) if key < len(pts)}
    timeline = describe_timeline(index_of(pts, kinds))
    assert timeline.pictures == len(pts)
    assert timeline.duration_s >= timeline.last_s - timeline.first_s
    if len(kinds) > 1:
        assert timeline.gop.shortest_frames is not None
        assert timeline.gop.longest_frames is not None
        assert timeline.gop.shortest_frames <= timeline.gop.longest_frames
        assert timeline.gop.longest_frames * len(kinds) >= len(pts) - min(kinds) >= timeline.gop.shortest_frames
    assert timeline.rate.measured_fps == Fraction(len(steps) * 1000, sum(steps))


def test_every_oddity_is_documented(repository: Path) -> None:
    """docs/probe.md has the codes that the code has, and no others."""
    source = inspect.getsource(probe_oddities)
    written = set(re.findall(r'yield "([a-z0-9-]+)",', source)) | set(re.findall(r'\("([a-z]+-[a-z-]+)", ', source))
    chapter = (repository / "docs" / "probe.md").read_text().partition("## Oddities")[2]
    rows = [line.split("|")[1] for line in chapter.splitlines() if line.startswith("| `")]
    assert {code for row in rows for code in re.findall(r"`([a-z0-9-]+)`", row)} == written

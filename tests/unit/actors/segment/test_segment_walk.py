"""The walk over a segment: its pictures, its seams, and when the next path decodes the segment."""

from collections.abc import Iterator
from contextlib import closing
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from av.video.frame import VideoFrame
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.decode.decoding import (
    SOFTWARE,
    DecodeRange,
    DecodeTally,
    OpenTrack,
    PictureDecoder,
    decode_range,
)
from codecfleet.actors.decode.picture_hash import PictureHash, picture_hash
from codecfleet.actors.segment.decode_path import DecodePath, UploadingDecoder
from codecfleet.actors.segment.walk import SEAM_FRAMES, SegmentWalk, decode_on_first
from codecfleet.errors import (
    CodecfleetError,
    DeviceError,
    DeviceLost,
    DeviceMemory,
    EngineBusy,
    EngineFailed,
    EngineHung,
    EngineUnfit,
    InputUnreadable,
    SessionLimit,
)
from codecfleet.testing.clips import Clip, constant_times, make_clip
from codecfleet.testing.nvidia.fake_device import FakeDevice

if TYPE_CHECKING:
    from codecfleet.actors.decode.decoding import VideoPacket

FRAMES = 12
STEP = 40
FALLS_BACK = (DeviceMemory, EngineBusy, EngineFailed, EngineUnfit, SessionLimit)
PASSES = (DeviceError, DeviceLost, EngineHung, InputUnreadable)
Interval = tuple[int | None, int | None]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> DecodeRange:
    """Return the whole range of a short clip."""
    path = make_clip(tmp_path_factory.mktemp("walk") / "clip.mkv", Clip(times=constant_times(FRAMES)))
    return DecodeRange(source=str(path), stream_index=0, time_base=Fraction(1, 1000), nominal_ticks=Fraction(STEP))


@pytest.fixture(scope="module")
def hashes(source: DecodeRange) -> list[PictureHash]:
    """Every picture of it."""
    return [picture_hash(*entry) for entry in decode_range(source, DecodeTally(), SOFTWARE)]


class Failing(PictureDecoder[VideoFrame]):
    """A software decoder that raises an error after ``after`` pictures."""

    name = "failing"

    def __init__(self, error: CodecfleetError | None, after: int) -> None:
        self.error = error
        self.after = after

    def decode(
        self, track: OpenTrack, packets: "Iterator[tuple[int, VideoPacket]]", tally: DecodeTally
    ) -> Iterator[tuple[int | None, VideoFrame]]:
        """Decode."""
        for place, found in enumerate(SOFTWARE.decode(track, packets, tally)):
            if self.error is not None and place >= self.after:
                raise self.error
            yield found


def walked(
    source: DecodeRange,
    interval: Interval = (None, None),
    path: DecodePath[Any] | None = None,
    *,
    neighbours: bool = False,
    in_thread: bool = False,
) -> tuple[list[int], SegmentWalk[Any, Any]]:
    """Return the pictures that ``make`` got, and the walk after its end."""
    given_ticks: list[int] = []

    def make(ticks: int, picture: object) -> list[tuple[int, object]]:
        given_ticks.append(ticks)
        return [(ticks, picture)]

    chosen = DecodePath(SOFTWARE) if path is None else path
    walk: SegmentWalk[Any, Any] = SegmentWalk(
        source, interval, chosen, make=make, seen=bool, neighbours=neighbours, in_thread=in_thread
    )
    with closing(walk.results()) as results:
        assert [ticks for ticks, _ in results] == walk.taken
    return given_ticks, walk


ticks_or_none = st.none() | st.integers(-STEP, (FRAMES + 1) * STEP)


@given(start=ticks_or_none, end=ticks_or_none, neighbours=st.booleans(), in_thread=st.booleans())
def test_a_walk_takes_its_interval_and_hashes_both_seams(
    source: DecodeRange,
    hashes: list[PictureHash],
    *,
    start: int | None,
    end: int | None,
    neighbours: bool,
    in_thread: bool,
) -> None:
    """The interval is half-open; filters with memory also get the pictures before it, and those of the second seam."""
    if start is not None and end is not None:
        start, end = sorted((start, end))
    seen, walk = walked(source, (start, end), neighbours=neighbours, in_thread=in_thread)
    behind = [each for each in hashes if start is None or each.ticks >= start]
    inside = [each.ticks for each in behind if end is None or each.ticks < end]
    after = [each for each in behind if end is not None and each.ticks >= end][:SEAM_FRAMES]
    tally = walk.tally()
    assert (tally.seam_before, tally.seam_after) == (tuple(behind[:SEAM_FRAMES]), tuple(after))
    assert (walk.taken, tally.frames) == (inside, len(inside))
    assert (tally.first_ticks, tally.last_ticks) == ((inside[0], inside[-1]) if inside else (None, None))
    around = [each.ticks for each in hashes if each not in behind], [each.ticks for each in after]
    assert seen == (around[0] + inside + around[1] if neighbours else inside)


@given(cuts=st.lists(st.integers(0, FRAMES * STEP), min_size=1, max_size=4, unique=True))
def test_segments_that_meet_agree_on_their_seam(source: DecodeRange, cuts: list[int]) -> None:
    """Adjacent segments together take every picture once, and hash the same pictures at their cut."""
    ends = [*sorted(cuts), None]
    walks = [walked(source, interval)[1] for interval in zip([None, *sorted(cuts)], ends, strict=True)]
    assert [ticks for walk in walks for ticks in walk.taken] == list(range(0, FRAMES * STEP, STEP))
    for left, right in pairwise(walks):
        assert left.after == right.before


def test_seams_are_the_same_on_a_device(source: DecodeRange) -> None:
    """Pictures on a device have the hashes of host pictures, and the mover that hashing opened becomes idle again."""
    device = FakeDevice()
    path = DecodePath(UploadingDecoder(device.gpu.open_mover), device.gpu)
    _, there = walked(source, (3 * STEP, 6 * STEP), path)
    _, here = walked(source, (3 * STEP, 6 * STEP))
    assert (there.before, there.after, there.taken) == (here.before, here.after, here.taken)
    opened = device.gpu.opened()
    assert len(opened.movers) == 2
    assert len(device.driver.streams) == 1 + len(opened.movers)  # with the pool's own


@pytest.mark.parametrize("in_thread", [False, True])
def test_what_seen_raises_ends_the_walk(source: DecodeRange, *, in_thread: bool) -> None:
    """``seen`` is called before each picture is used, including pictures outside the segment."""
    asked: list[int] = []

    def seen() -> None:
        asked.append(len(walk.taken))
        if len(asked) == 5:
            raise InterruptedError

    walk: SegmentWalk[VideoFrame, int] = SegmentWalk(
        source,
        (3 * STEP, None),
        DecodePath(SOFTWARE),
        make=lambda ticks, _: [(ticks, ticks)],
        seen=seen,
        in_thread=in_thread,
    )
    with pytest.raises(InterruptedError), closing(walk.results()) as results:
        list(results)
    assert asked == [0, 0, 0, 0, 1]


failures = st.tuples(st.sampled_from((*FALLS_BACK, *PASSES)), st.integers(0, FRAMES - 1))


@given(plan=st.lists(st.none() | failures, min_size=1, max_size=4), reason=st.sampled_from(["", "too long"]))
def test_the_first_path_that_does_not_give_up_decodes(
    source: DecodeRange, plan: list[tuple[type[CodecfleetError], int] | None], reason: str
) -> None:
    """For the listed errors the next path is tried; any other error, or the last path's error, ends the segment."""
    errors = [None if one is None else one[0](f"path {number}") for number, one in enumerate(plan)]
    afters = [0 if one is None else one[1] for one in plan]
    paths = [DecodePath(Failing(error, after), reason=reason) for error, after in zip(errors, afters, strict=True)]
    ends = [number for number, error in enumerate(errors) if not isinstance(error, FALLS_BACK)]
    used = ends[0] if ends else len(plan) - 1
    tried: list[tuple[DecodePath[Any], str]] = []
    restarts: list[int] = []

    def decode(path: DecodePath[Any], fallback: str) -> int:
        tried.append((path, fallback))
        return walked(source, path=path)[1].tally().frames

    def run() -> int:
        return decode_on_first(paths, decode, lambda _: restarts.append(len(tried)))

    if (error := errors[used]) is None:
        assert run() == FRAMES
    else:
        with pytest.raises(type(error)) as caught:
            run()
        assert caught.value is error
    assert tried == list(zip(paths[: used + 1], [reason, *(f"path {number}" for number in range(used))], strict=True))
    assert restarts == list(range(1, used + 1))


def test_what_is_made_of_pictures_is_the_path_s_and_what_is_done_with_them_is_not(source: DecodeRange) -> None:
    """If a picture cannot be converted, the next path is tried; an encoder's error is not blamed on the decoder."""
    used: list[str] = []

    def make(ticks: int, picture: object) -> list[tuple[int, object]]:
        if used[-1] == "make":
            raise EngineFailed(used[-1])
        return [(ticks, picture)]

    def decode(path: DecodePath[Any], fallback: str) -> str:
        used.append(path.reason)
        walk: SegmentWalk[Any, Any] = SegmentWalk(source, (None, None), path, fallback, make=make, seen=bool)
        with closing(walk.results()) as results:
            for _ in results:
                if used[-1] == "use":
                    raise EngineFailed(used[-1])
        return walk.tally().fallback

    paths = [DecodePath(SOFTWARE, reason=reason) for reason in ("make", "", "")]
    assert decode_on_first(paths, decode) == "make"
    with pytest.raises(EngineFailed, match="use"):
        decode_on_first([DecodePath(SOFTWARE, reason="use"), DecodePath(SOFTWARE)], decode)
    assert used == ["make", "", "use"]

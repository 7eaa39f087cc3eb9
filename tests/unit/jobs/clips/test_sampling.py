"""Clips of a film have the frames that torchcodec's samplers choose, and only frames that exist."""

from bisect import bisect_right
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from codecfleet import clips_at_random_indices, clips_at_random_times, clips_at_regular_indices, clips_at_regular_times
from codecfleet.errors import UsageError

COUNTS = st.integers(1, 12)
POLICIES = st.sampled_from(["repeat_last", "wrap"])
INDEX_OPTIONS = st.fixed_dictionaries(
    {"num_clips": COUNTS, "num_frames_per_clip": COUNTS, "num_indices_between_frames": COUNTS, "policy": POLICIES}
)
TIMES = st.lists(st.integers(1, 9), min_size=2, max_size=60).map(
    lambda steps: [Fraction(sum(steps[:place]), 25) for place in range(len(steps))]
)
OF_25 = [Fraction(number, 25) for number in range(100)]


@given(st.integers(1, 500), INDEX_OPTIONS, st.integers(0, 9))
def test_clips_are_inside_the_film(frames: int, options: dict[str, Any], seed: int) -> None:
    """Each clip has the requested number of frames, and by default lies inside the film."""
    for clips in (
        clips_at_random_indices(frames, seed=seed, **options),
        clips_at_regular_indices(range(frames), **options),
    ):
        assert [len(clip) for clip in clips] == [options["num_frames_per_clip"]] * options["num_clips"]
        assert all(0 <= frame < frames for clip in clips for frame in clip)
        step, count = options["num_indices_between_frames"], options["num_frames_per_clip"]
        if step * (count - 1) < frames:
            assert clips == [list(range(clip[0], clip[0] + step * count, step)) for clip in clips]


@given(TIMES, COUNTS, POLICIES, st.integers(0, 9))
def test_timed_clips_have_the_frames_on_screen(times: list[Fraction], count: int, policy: Any, seed: int) -> None:
    """Clips by time have the frames on screen at their times."""
    step = Fraction(1, 10)
    assume(times[-1] > count * step)
    clips = clips_at_regular_times(
        times,
        seconds_between_clip_starts=Fraction(1, 3),
        num_frames_per_clip=count,
        seconds_between_frames=step,
        policy=policy,
    )
    assert clips == [
        [bisect_right(times, Fraction(place, 3) + n * step) - 1 for n in range(count)] for place in range(len(clips))
    ]
    random = clips_at_random_times(
        times, seed=seed, num_clips=3, num_frames_per_clip=count, seconds_between_frames=step, policy=policy
    )
    assert [len(clip) for clip in random] == [count] * 3
    assert all(clip == sorted(clip) and clip[0] >= 0 and clip[-1] < len(times) for clip in random)


@pytest.mark.parametrize("sample", [clips_at_random_indices, clips_at_random_times])
def test_a_seed_repeats_its_clips(sample: Any) -> None:
    """A seed repeats its clips, and another seed gives others."""
    assert sample(OF_25, seed=1, num_clips=5) == sample(OF_25, seed=1, num_clips=5)
    assert sample(OF_25, seed=1, num_clips=5) != sample(OF_25, seed=2, num_clips=5)


@pytest.mark.parametrize(
    ("frames", "options", "clips"),
    [
        (100, {"num_clips": 4, "num_frames_per_clip": 3}, [[0, 1, 2], [32, 33, 34], [64, 65, 66], [97, 98, 99]]),
        (100, {"num_clips": 2, "num_frames_per_clip": 3, "num_indices_between_frames": 5}, [[0, 5, 10], [89, 94, 99]]),
        (5, {"num_clips": 7}, [[0], [0], [1], [2], [2], [3], [4]]),
        (3, {"num_frames_per_clip": 5}, [[0, 1, 2, 2, 2]]),
        (100, {"sampling_range_start": -4, "num_clips": 3, "sampling_range_end": -1}, [[96], [97], [98]]),
        (
            100,
            {"sampling_range_start": 95, "sampling_range_end": 96, "num_frames_per_clip": 5}
            | {"num_indices_between_frames": 2, "policy": "wrap"},
            [[95, 97, 99, 95, 97]],
        ),
    ],
)
def test_regular_clips_are_those_of_torchcodec(frames: int, options: dict[str, Any], clips: list[list[int]]) -> None:
    """Expected values: ``torchcodec.samplers.clips_at_regular_indices`` of torchcodec 0.17."""
    assert clips_at_regular_indices(frames, **options) == clips


@pytest.mark.parametrize(
    ("options", "clips"),
    [
        ({"seconds_between_clip_starts": 1.5, "num_frames_per_clip": 2}, [[0, 1], [37, 38], [75, 76]]),
        (
            {"seconds_between_clip_starts": 2, "num_frames_per_clip": 3, "seconds_between_frames": 0.2},
            [[0, 5, 10], [50, 55, 60]],
        ),
        (
            {"seconds_between_clip_starts": 0.1, "sampling_range_start": 3.8, "sampling_range_end": 4}
            | {"num_frames_per_clip": 3, "seconds_between_frames": 0.1, "policy": "wrap"},
            [[95, 97, 95], [97, 97, 97]],
        ),
    ],
)
def test_timed_clips_are_those_of_torchcodec(options: dict[str, Any], clips: list[list[int]]) -> None:
    """Expected values: ``clips_at_regular_timestamps``, but times on a frame's border are exact."""
    assert clips_at_regular_times(OF_25, **options) == clips


@pytest.mark.parametrize(
    ("sample", "options"),
    [
        (clips_at_regular_indices, {"num_clips": 0}),
        (clips_at_regular_indices, {"num_frames_per_clip": 0}),
        (clips_at_regular_indices, {"num_indices_between_frames": -1}),
        (clips_at_regular_indices, {"sampling_range_start": 100}),
        (clips_at_regular_indices, {"sampling_range_start": -101}),
        (clips_at_regular_indices, {"sampling_range_end": 0}),
        (clips_at_regular_indices, {"num_frames_per_clip": 101, "policy": "error"}),
        (clips_at_regular_indices, {"num_frames_per_clip": 101, "policy": "none"}),
        (clips_at_regular_times, {"seconds_between_clip_starts": 0}),
        (clips_at_regular_times, {"seconds_between_clip_starts": 1, "seconds_between_frames": 0}),
        (clips_at_regular_times, {"seconds_between_clip_starts": 1, "sampling_range_start": 4}),
        (clips_at_regular_times, {"seconds_between_clip_starts": 1, "num_frames_per_clip": 101}),
        (clips_at_regular_times, {"seconds_between_clip_starts": 1, "end_s": 3}),
    ],
)
def test_impossible_clips_are_refused(sample: Any, options: dict[str, Any]) -> None:
    """Options that no clip of a film of 100 frames in 4 seconds can meet are refused."""
    with pytest.raises(UsageError):
        sample(OF_25, **options)


@pytest.mark.parametrize("sample", [clips_at_regular_indices, clips_at_regular_times])
def test_a_film_without_frames_has_no_clips(sample: Any) -> None:
    """A film without frames has no clips, not even with repeated frames."""
    options = {"seconds_between_clip_starts": 1} if sample is clips_at_regular_times else {}
    with pytest.raises(UsageError):
        sample([], **options)

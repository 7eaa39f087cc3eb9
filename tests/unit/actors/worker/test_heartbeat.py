"""What a worker's heartbeats say about its speed, and when its process is replaced."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.device.pieces import Ending, ending_of
from codecfleet.actors.worker.heartbeat import (
    RECYCLE_S,
    SESSIONS_MAX,
    Decoding,
    Heartbeat,
    recycle,
    speed_between,
)
from codecfleet.errors import Cancelled, CodecfleetError, Retry


def heartbeat(frames: int, running: int, decoding: int = 0, job: str = "j") -> Heartbeat:
    """Return what a worker says that runs that many segments of a job."""
    return Heartbeat(frames, tuple((job, f"segment {number}") for number in range(running)), decoding)


@pytest.mark.parametrize(
    ("running", "decoding", "expected"),
    [
        (16, 0, Decoding.SOFTWARE),
        (16, 16, Decoding.DEVICE),
        (16, 12, Decoding.DEVICE),
        (16, 11, Decoding.BOTH),
        (16, 1, Decoding.BOTH),
        (1, 1, Decoding.DEVICE),
        (0, 0, Decoding.SOFTWARE),
    ],
)
def test_who_decodes(running: int, decoding: int, expected: Decoding) -> None:
    """With nearly all sessions decoding it is the device, with none software, else both."""
    assert heartbeat(0, running, decoding).decoded_by is expected


@given(
    before=st.tuples(st.integers(0, 20), st.integers(0, 20)),
    after=st.tuples(st.integers(0, 20), st.integers(0, 20)),
    same_job=st.booleans(),
)
def test_only_what_was_alike_throughout_tells_a_rate(
    before: tuple[int, int], after: tuple[int, int], *, same_job: bool
) -> None:
    """Only with one job, one number of sessions and one kind of decoder is the speed a rate."""
    first, second = heartbeat(100, *before), heartbeat(300, *after, "j" if same_job else "k")
    speed = speed_between(first, second, 2.0)
    assert speed.fps == 100.0
    assert speed.sessions == after[0]
    is_clear = same_job and before[0] == after[0] > 0 and first.decoded_by is second.decoded_by is not Decoding.BOTH
    assert (speed.job == "j") == is_clear
    if speed.job:
        assert speed.on_device == (second.decoded_by is Decoding.DEVICE)


def test_sound_tells_no_rate() -> None:
    """Work that is not a segment counts other frames."""
    sound = Heartbeat(0, (("j", "audio 1"),))
    assert speed_between(sound, Heartbeat(10, sound.running), 1.0).job == ""


@pytest.mark.parametrize(
    ("retry", "ending"),
    [(Retry.NEVER, Ending.FAILED), (Retry.ANYWHERE, Ending.RETRY), (Retry.ELSEWHERE, Ending.RETRY_ELSEWHERE)],
)
def test_failed_work_counts_by_where_another_try_may_succeed(retry: Retry, ending: Ending) -> None:
    """Work ends as its error says; what was cancelled did not fail."""
    error = type("Broken", (CodecfleetError,), {"retry": retry})("it failed")
    assert ending_of(error) is ending
    assert ending_of(Cancelled("enough")) is Ending.CANCELLED
    assert ending_of(None) is Ending.DONE


@given(age_s=st.floats(0, 10 * RECYCLE_S), sessions=st.integers(0, 10 * SESSIONS_MAX))
def test_age_and_use_each_suffice(age_s: float, sessions: int) -> None:
    """A reason is there exactly if one of the two bounds is reached, and names it."""
    reason = recycle(age_s, sessions)
    assert bool(reason) == (age_s >= RECYCLE_S or sessions >= SESSIONS_MAX)
    if reason:
        assert ("hours" in reason) == (age_s >= RECYCLE_S)

"""A worker's heartbeats: its speed, and when its process is replaced."""

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
    """Return the heartbeat of a worker that runs this many segments of a job."""
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
    """A worker decodes on the device if nearly all its sessions do, in software if none does, otherwise on both."""
    assert heartbeat(0, running, decoding).decoded_by is expected


@given(
    before=st.tuples(st.integers(0, 20), st.integers(0, 20)),
    after=st.tuples(st.integers(0, 20), st.integers(0, 20)),
    same_job=st.booleans(),
)
def test_only_what_was_alike_throughout_tells_a_rate(
    before: tuple[int, int], after: tuple[int, int], *, same_job: bool
) -> None:
    """The speed is a rate only with one job, one number of sessions and one kind of decoder throughout."""
    first, second = heartbeat(100, *before), heartbeat(300, *after, "j" if same_job else "k")
    speed = speed_between(first, second, 2.0)
    assert speed.fps == 100.0
    assert speed.sessions == after[0]
    is_clear = same_job and before[0] == after[0] > 0 and first.decoded_by is second.decoded_by is not Decoding.BOTH
    assert (speed.job == "j") == is_clear
    if speed.job:
        assert speed.on_device == (second.decoded_by is Decoding.DEVICE)


def test_sound_tells_no_rate() -> None:
    """Work other than segments counts other frames, so there is no rate."""
    sound = Heartbeat(0, (("j", "audio 1"),))
    assert speed_between(sound, Heartbeat(10, sound.running), 1.0).job == ""


@pytest.mark.parametrize(
    ("retry", "ending"),
    [(Retry.NEVER, Ending.FAILED), (Retry.ANYWHERE, Ending.RETRY), (Retry.ELSEWHERE, Ending.RETRY_ELSEWHERE)],
)
def test_failed_work_counts_by_where_another_try_may_succeed(retry: Retry, ending: Ending) -> None:
    """The ending of a piece of work follows from its error; cancelled work did not fail."""
    error = type("Broken", (CodecfleetError,), {"retry": retry})("it failed")
    assert ending_of(error) is ending
    assert ending_of(Cancelled("enough")) is Ending.CANCELLED
    assert ending_of(None) is Ending.DONE


@given(age_s=st.floats(0, 10 * RECYCLE_S), sessions=st.integers(0, 10 * SESSIONS_MAX))
def test_age_and_use_each_suffice(age_s: float, sessions: int) -> None:
    """There is a reason exactly if one of the two bounds is reached; the reason names that bound."""
    reason = recycle(age_s, sessions)
    assert bool(reason) == (age_s >= RECYCLE_S or sessions >= SESSIONS_MAX)
    if reason:
        assert ("hours" in reason) == (age_s >= RECYCLE_S)

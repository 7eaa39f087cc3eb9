"""The meaning of Ray's errors, and their text in one line. Long texts are those of Ray 2.60."""

import pytest
from ray import exceptions

from codecfleet.actors.device.work import Constraints
from codecfleet.cluster.probes.child.child import ChildEnd, ChildOutcome
from codecfleet.cluster.ray.embedded import refusal_in
from codecfleet.cluster.ray.ray_failures import LossScope, classify
from codecfleet.cluster.ray.ray_words import first_line
from codecfleet.errors import ObjectStoreFull
from codecfleet.jobs.board.retries import Attempt, FaultKind, next_step

CREATION = """The actor died because of an error raised in its creation task, \x1b[36mray::A.__init__()\x1b[39m (pid=7)
           ^^^^^^^^^^^^^^^^^^
  File "worker.py", line 5, in __init__
    def __init__(self): raise ValueError("the GPU is lost")
                        ^^^^^^^^^^^^^^^^^^^
"""


class Wrapped(Exception):
    """Wraps the error of remote code, as RayTaskError does."""

    def __init__(self, message: str, cause: object) -> None:
        super().__init__(message)
        self.cause = cause


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (RuntimeError("one line."), "RuntimeError: one line"),
        (RuntimeError("\n  first\nsecond"), "RuntimeError: first"),
        (RuntimeError(), "RuntimeError"),
        (Wrapped("ray::f() (pid=7)\nTraceback", ValueError("no such file")), "ValueError: no such file"),
        (Wrapped("its node died\nmore", "a text"), "Wrapped: its node died"),
        (
            RuntimeError(f"{CREATION}ValueError: the GPU is lost.\nmore"),
            "it did not start: ValueError: the GPU is lost",
        ),
        (RuntimeError(CREATION), "it did not start: RuntimeError"),
    ],
)
def test_an_error_is_one_line(error: Exception, line: str) -> None:
    """The line says who raised what, without addresses, tracebacks and escape sequences."""
    assert first_line(error) == line


@pytest.mark.parametrize("error", [exceptions.ObjectStoreFullError("full"), exceptions.OutOfDiskError("full")])
def test_no_room_for_a_result_is_known_on_both_sides(error: Exception) -> None:
    """Lack of room on the driver's machine is raised directly, that on the worker's as a failed task."""
    assert classify(error) is LossScope.ROOM
    of_a_task = exceptions.RayTaskError("run", "Traceback", error)
    assert classify(of_a_task) is LossScope.ROOM
    assert classify(of_a_task.as_instanceof_cause()) is LossScope.ROOM


def test_other_failures_of_a_task_are_its_code() -> None:
    """Any other error of remote code is a fault of that code."""
    assert classify(exceptions.RayTaskError("run", "Traceback", ValueError("no"))) is LossScope.CODE
    assert classify(exceptions.ObjectLostError("00", None, "")) is LossScope.RESULT


def test_the_work_is_tried_again() -> None:
    """Room becomes free as results are taken, so a job tries three times, and blames no device."""
    attempts: tuple[Attempt, ...] = ()
    for number in (1, 2):
        attempts += (Attempt.of(number, Constraints(), ObjectStoreFull("full")),)
        assert attempts[-1].fault is FaultKind.FAILED
        assert next_step(attempts, software=False) is not None
    attempts += (Attempt.of(3, Constraints(), ObjectStoreFull("full")),)
    assert next_step(attempts, software=False) is None


REFUSED = "AuthenticationError: RPC error: InvalidAuthToken: Authentication token is missing or incorrect. Ensure that"
SAID = "gcs_client.cc:210: Failed to get cluster ID from GCS server: TimedOut: Timed out while waiting"


@pytest.mark.parametrize(
    ("greeting", "words"),
    [
        (ChildOutcome(ChildEnd.RETURNED, (True,)), None),
        (ChildOutcome(ChildEnd.RETURNED, (True,), said=SAID), None),  # the second attempt got an answer
        (ChildOutcome(ChildEnd.RAISED, detail=REFUSED), "did not let us in: the token is missing or wrong"),
        (ChildOutcome(ChildEnd.TIMED_OUT, said=REFUSED), "did not let us in: the token is missing or wrong"),
        (ChildOutcome(ChildEnd.RAISED, detail="RpcError: Timed out", said=SAID), "no Ray answers at here:1"),
        (ChildOutcome(ChildEnd.TIMED_OUT, detail="no answer within 8 s"), None),  # the machine may be busy
        (ChildOutcome(ChildEnd.RAISED, detail="ImportError: no _raylet"), None),
    ],
)
def test_a_refusal_is_one_line(greeting: ChildOutcome, words: str | None) -> None:
    """A wrong token and another program's port are named; unclear cases are left to Ray."""
    refusal = refusal_in(greeting, "here:1")
    assert (refusal is None) == (words is None)
    if refusal is not None and words is not None:
        assert words in refusal.message
        assert refusal.next_step

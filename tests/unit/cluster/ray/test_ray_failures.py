"""What Ray's exceptions mean."""

import pytest
from ray import exceptions

from codecfleet.actors.device.work import Constraints
from codecfleet.cluster.ray.ray_failures import LossScope, classify
from codecfleet.errors import ObjectStoreFull
from codecfleet.jobs.board.ladder import Attempt, FaultKind, next_step


@pytest.mark.parametrize("error", [exceptions.ObjectStoreFullError("full"), exceptions.OutOfDiskError("full")])
def test_no_room_for_a_result_is_known_on_both_sides(error: Exception) -> None:
    """Where the driver has no room it is raised as it is; where the worker has none, as the failure of its task."""
    assert classify(error) is LossScope.ROOM
    of_a_task = exceptions.RayTaskError("run", "Traceback", error)
    assert classify(of_a_task) is LossScope.ROOM
    assert classify(of_a_task.as_instanceof_cause()) is LossScope.ROOM


def test_other_failures_of_a_task_are_its_code() -> None:
    """Whatever else remote code raises says nothing about places."""
    assert classify(exceptions.RayTaskError("run", "Traceback", ValueError("no"))) is LossScope.CODE
    assert classify(exceptions.ObjectLostError("00", None, "")) is LossScope.RESULT


def test_the_work_is_tried_again() -> None:
    """Room comes back as results are taken: a job tries three times, and no device is blamed."""
    attempts: tuple[Attempt, ...] = ()
    for number in (1, 2):
        attempts += (Attempt.of(number, Constraints(), ObjectStoreFull("full")),)
        assert attempts[-1].fault is FaultKind.FAILED
        assert next_step(attempts, software=False) is not None
    attempts += (Attempt.of(3, Constraints(), ObjectStoreFull("full")),)
    assert next_step(attempts, software=False) is None

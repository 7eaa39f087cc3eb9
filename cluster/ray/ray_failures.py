"""What Ray's exceptions mean to a pool: the one place where they are named.

They share no base class: that a node, a worker or an object is gone is told by a dozen unrelated types (RayTaskError,
which carries what the remote code raised, is the only one that says nothing about the placement).
"""

from enum import Enum

from ray import exceptions

__all__ = ["LossScope", "classify"]


class LossScope(Enum):
    """How much is gone."""

    PROCESS = "process"  #: the worker process, its node, or our way to it
    RESULT = "result"  #: only this result: the process lives
    CODE = "code"  #: nothing: the remote code raised


_PROCESS_GONE = (
    exceptions.RayActorError,  # ActorDiedError, and ActorUnavailableError: perhaps alive, but out of reach
    exceptions.ActorPlacementGroupRemoved,
    exceptions.ActorUnschedulableError,
    exceptions.LocalRayletDiedError,
    exceptions.NodeDiedError,
    exceptions.OutOfMemoryError,  # Ray's memory monitor killed the process
    exceptions.WorkerCrashedError,
    exceptions.RuntimeEnvSetupError,
)


def classify(error: BaseException) -> LossScope:
    """Tell what is gone when a call of an actor ends in ``error``."""
    if isinstance(error, exceptions.RayTaskError):
        return LossScope.CODE
    if isinstance(error, _PROCESS_GONE):
        return LossScope.PROCESS
    if isinstance(error, exceptions.RayError):
        return LossScope.RESULT  # ObjectLostError and its kin, a full object store, a cancelled call
    return LossScope.CODE

"""What Ray's exceptions mean to a pool; no other module names them.

They share no base class: a dozen unrelated types report a lost node, worker or object. RayTaskError, which carries what
remote code raised, is the only one that says nothing about placement.
"""

from enum import Enum

from ray import exceptions


class LossScope(Enum):
    """How much is lost."""

    PROCESS = "process"  #: the worker process, its node, or the connection to it
    RESULT = "result"  #: only this result: the process lives
    ROOM = "room"  #: only this result, for which the object store and the disk that it spills to had no room
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


_NO_ROOM = (exceptions.ObjectStoreFullError, exceptions.OutOfDiskError)


def classify(error: BaseException) -> LossScope:
    """Return what is lost when a call of an actor ends in ``error``."""
    if isinstance(error, _NO_ROOM) or isinstance(getattr(error, "cause", None), _NO_ROOM):
        return LossScope.ROOM  # the worker's failure to store its result arrives as a RayTaskError
    if isinstance(error, exceptions.RayTaskError):
        return LossScope.CODE
    if isinstance(error, _PROCESS_GONE):
        return LossScope.PROCESS
    if isinstance(error, exceptions.RayError):
        return LossScope.RESULT  # ObjectLostError and its kin, a cancelled call
    return LossScope.CODE


def ran_out_of_memory(error: BaseException) -> bool:
    """Return whether Ray's memory monitor killed the process."""
    return isinstance(error, exceptions.OutOfMemoryError)

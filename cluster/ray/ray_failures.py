"""Classifies exceptions of Ray and of workers that are child processes; no other module names their types.

A dozen unrelated types report a lost node, worker or object. RayTaskError carries an error that remote code raised.
This module uses Ray only if Ray has been imported already.
"""

import sys
from enum import Enum
from functools import cache
from typing import NamedTuple, TypeAlias


class LossScope(Enum):
    """What a failed call to a worker has lost."""

    PROCESS = "process"  #: the worker process, its node, or the connection to the worker is lost
    RESULT = "result"  #: only this result is lost; the process lives
    ROOM = "room"  #: only this result is lost, because the object store and the disk behind it were full
    CODE = "code"  #: nothing is lost: the remote code raised an error


_Kinds: TypeAlias = tuple[type[BaseException], ...]


class _RayErrors(NamedTuple):
    """The exception types of Ray, by meaning."""

    process: _Kinds  # a process is lost
    room: _Kinds  # a store or disk is full
    of_code: _Kinds  # remote code raised an error
    memory: _Kinds  # Ray's memory monitor killed the process
    any: _Kinds  # the base class of all errors of Ray


@cache
def _known() -> _RayErrors:
    from ray import exceptions

    return _RayErrors(
        process=(
            exceptions.RayActorError,  # ActorDiedError, or ActorUnavailableError if the actor is out of reach
            exceptions.ActorPlacementGroupRemoved,
            exceptions.ActorUnschedulableError,
            exceptions.LocalRayletDiedError,
            exceptions.NodeDiedError,
            exceptions.OutOfMemoryError,  # Ray's memory monitor killed the process
            exceptions.WorkerCrashedError,
            exceptions.RuntimeEnvSetupError,
        ),
        room=(exceptions.ObjectStoreFullError, exceptions.OutOfDiskError),
        of_code=(exceptions.RayTaskError,),
        memory=(exceptions.OutOfMemoryError,),
        any=(exceptions.RayError,),
    )


def _ray_errors() -> _RayErrors:
    return _known() if "ray" in sys.modules else _RayErrors((), (), (), (), ())


def classify(error: BaseException) -> LossScope:
    """Return how much is lost if a call to a worker raises ``error``."""
    of_ray = _ray_errors()
    if isinstance(error, of_ray.room) or isinstance(getattr(error, "cause", None), of_ray.room):
        return LossScope.ROOM  # a full store may also have caused a RayTaskError
    if isinstance(error, of_ray.of_code):
        return LossScope.CODE
    if isinstance(error, (*of_ray.process, ConnectionError)):
        return LossScope.PROCESS  # a ConnectionError, for example ``ChildDied`` of a worker that is a child process
    if isinstance(error, of_ray.any):
        return LossScope.RESULT  # ObjectLostError and similar errors, or a cancelled call
    return LossScope.CODE


def is_of_ray(error: BaseException) -> bool:
    """Return whether Ray raised ``error``."""
    return isinstance(error, _ray_errors().any)


def cause_of(error: BaseException) -> BaseException:
    """Return the error of remote code that ``error`` wraps, or ``error`` itself if it wraps no error."""
    cause = getattr(error, "cause", None) if isinstance(error, _ray_errors().of_code) else None
    return cause if isinstance(cause, BaseException) else error


def ran_out_of_memory(error: BaseException) -> bool:
    """Return whether Ray's memory monitor killed the process."""
    return isinstance(error, _ray_errors().memory)

"""What the exceptions of Ray, and of workers that are child processes, mean to a pool; no other module names them.

A dozen unrelated types report a lost node, worker or object. Only RayTaskError, which carries the error of remote code,
says nothing about placement. This module does not import Ray.
"""

import sys
from enum import Enum
from functools import cache
from typing import NamedTuple, TypeAlias


class LossScope(Enum):
    """How much is lost."""

    PROCESS = "process"  #: the worker process, its node, or the connection to it
    RESULT = "result"  #: only this result: the process lives
    ROOM = "room"  #: only this result, for which the object store and the disk that it spills to had no room
    CODE = "code"  #: nothing: the remote code raised


_Kinds: TypeAlias = tuple[type[BaseException], ...]


class _RayErrors(NamedTuple):
    """Ray's exceptions by what is lost; ``of_code`` is what remote code raised, ``any`` their base."""

    process: _Kinds
    room: _Kinds
    of_code: _Kinds
    memory: _Kinds
    any: _Kinds


@cache
def _known() -> _RayErrors:
    from ray import exceptions

    return _RayErrors(
        process=(
            exceptions.RayActorError,  # ActorDiedError, and ActorUnavailableError: perhaps alive, but out of reach
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
    """Return what is lost when a call of a worker ends in ``error``."""
    of_ray = _ray_errors()
    if isinstance(error, of_ray.room) or isinstance(getattr(error, "cause", None), of_ray.room):
        return LossScope.ROOM  # the worker's failure to store its result arrives as a RayTaskError
    if isinstance(error, of_ray.of_code):
        return LossScope.CODE
    if isinstance(error, (*of_ray.process, ConnectionError)):
        return LossScope.PROCESS  # a ConnectionError: the worker is a child process (``ChildDied``)
    if isinstance(error, of_ray.any):
        return LossScope.RESULT  # ObjectLostError and its kin, a cancelled call
    return LossScope.CODE


def is_of_ray(error: BaseException) -> bool:
    """Return whether Ray raised it."""
    return isinstance(error, _ray_errors().any)


def cause_of(error: BaseException) -> BaseException:
    """Return the error that remote code raised, if Ray passed it on; else the error itself."""
    cause = getattr(error, "cause", None) if isinstance(error, _ray_errors().of_code) else None
    return cause if isinstance(cause, BaseException) else error


def ran_out_of_memory(error: BaseException) -> bool:
    """Return whether Ray's memory monitor killed the process."""
    return isinstance(error, _ray_errors().memory)

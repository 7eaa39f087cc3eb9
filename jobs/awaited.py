"""Asynchronous forms of the blocking calls. Each runs in a thread, to its end even if it is cancelled."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from .board.threads import in_thread
from .plan.plan import plan_transcode
from .probe.job import probe
from .verify.job import verify

GivenT = ParamSpec("GivenT")
ResultT = TypeVar("ResultT")


def _awaited(call: Callable[GivenT, ResultT]) -> Callable[GivenT, Coroutine[Any, Any, ResultT]]:
    @wraps(call)
    async def in_loop(*args: GivenT.args, **options: GivenT.kwargs) -> ResultT:
        return await in_thread(call, *args, **options)

    in_loop.__name__ = in_loop.__qualname__ = f"{call.__name__}_async"
    return in_loop


plan_transcode_async: Final = _awaited(plan_transcode)
probe_async: Final = _awaited(probe)
verify_async: Final = _awaited(verify)

"""Objects that a process makes once, and that all its threads share."""

import threading
from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def shared_once(make: Callable[P, T]) -> Callable[P, T]:
    """Wrap ``make`` so that it runs once for each list of arguments, even if several threads call it at the same time.

    ``functools.cache`` alone lets each of these threads make a result.
    """
    lock, made = threading.Lock(), cache(make)

    @wraps(make)
    def shared(*args: P.args, **kwargs: P.kwargs) -> T:
        with lock:
            return made(*args, **kwargs)  # type: ignore[arg-type]  # arguments are hashable

    return shared

"""Sweeps: `make test` tries the first cases of a promise, `make test-all` all of them."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

__all__ = ["swept"]


def swept(cases: Iterable[Any], *, is_slow: Callable[[Any], bool] | None = None, in_ci: bool = False) -> list[Any]:
    """Return cases for ``parametrize``; those that ``is_slow`` accepts, by default all but the first, are marked slow.

    A case with several arguments is a tuple. With ``in_ci``, CI runs the slow cases too.
    """
    marks = [pytest.mark.slow, *([pytest.mark.ci] if in_ci else [])]
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=marks)
        if (is_slow(case) if is_slow else number > 0)
        else case
        for number, case in enumerate(cases)
    ]

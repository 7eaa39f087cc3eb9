"""Unit tests are about values and decisions: they never start Ray."""

from collections.abc import Iterator
from typing import NoReturn

import pytest


@pytest.fixture(scope="module", autouse=True)
def _no_ray() -> Iterator[None]:
    def refuse(*_args: object, **_options: object) -> NoReturn:
        pytest.fail("a unit test must not start Ray: use a fake, or move the test to tests/integration")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ray.init", refuse)
        yield

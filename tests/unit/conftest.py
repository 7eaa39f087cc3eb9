"""Unit tests are about values and decisions: they never start Ray."""

from typing import NoReturn

import pytest


@pytest.fixture(autouse=True)
def _no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_options: object) -> NoReturn:
        pytest.fail("a unit test must not start Ray: use a fake, or move the test to tests/integration")

    monkeypatch.setattr("ray.init", refuse)

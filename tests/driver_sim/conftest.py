"""Builds the simulator's libraries before the tests; if that fails, the tests are skipped, except in CI."""

import os

import pytest

from .build import BuildError, built_libraries


@pytest.fixture(autouse=True)
def _ray_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this setting, short clips would be done before a GPU's worker has started."""
    monkeypatch.setenv("CODECFLEET_RAY", "first")


@pytest.fixture(scope="session", autouse=True)
def simulated_libraries() -> None:
    """Build the libraries, or report what is missing."""
    try:
        built_libraries()
    except BuildError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))

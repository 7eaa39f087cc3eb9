"""The simulator's libraries are built before its tests; where that cannot be, they are skipped, except in CI."""

import os

import pytest

from .build import BuildError, built_libraries


@pytest.fixture(autouse=True)
def _ray_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short clips would be done before a GPU's worker is there."""
    monkeypatch.setenv("CODECFLEET_RAY", "first")


@pytest.fixture(scope="session", autouse=True)
def simulated_libraries() -> None:
    """Build them, or say what is missing."""
    try:
        built_libraries()
    except BuildError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))

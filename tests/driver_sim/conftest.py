"""The simulator's libraries are built before its tests; where that cannot be, they are skipped, except in CI."""

import os
from collections.abc import Iterator

import pytest

from .build import BuildError, built_libraries


@pytest.fixture(scope="package", autouse=True)
def _ray_first() -> Iterator[None]:
    """Short clips would be done before a GPU's worker is there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CODECFLEET_RAY", "first")
        yield


@pytest.fixture(scope="session", autouse=True)
def simulated_libraries() -> None:
    """Build them, or say what is missing."""
    try:
        built_libraries()
    except BuildError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))

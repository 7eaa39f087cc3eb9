"""Inputs of batches whose jobs play a script."""

from pathlib import Path

import pytest

from codecfleet.jobs.request.spec import BatchSpec


@pytest.fixture
def films(tmp_path: Path) -> Path:
    """A folder of five inputs."""
    (tmp_path / "in").mkdir()
    for number in range(5):
        (tmp_path / f"in/{number}.mkv").write_bytes(bytes(number + 10))
    return tmp_path / "in"


@pytest.fixture
def spec(films: Path) -> BatchSpec:
    """A batch of them."""
    return BatchSpec(inputs=films, output=films.parent / "out")

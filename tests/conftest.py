"""What every test starts from: a clean environment, and the footage where it lies."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

REPOSITORY = Path(__file__).resolve().parents[1]

# Before any test module is imported: a setting or a cluster of the caller's must not reach a test.
for _name in [name for name in os.environ if name == "RAY_ADDRESS" or name.startswith("CODECFLEET_")]:
    del os.environ[_name]

# A busy machine is no failure, and CI finds the same examples every time; at home each run tries new ones.
settings.register_profile("home", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "home")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what reads the shared footage, so that ``-m "not media"`` leaves it out."""
    for item in items:
        if "shared_media" in getattr(item, "fixturenames", ()):
            item.add_marker("media")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout's root."""
    return REPOSITORY


@pytest.fixture(scope="session")
def film() -> Path:
    """The bundled film excerpt: 240 frames of 1080p24, H.264 with B-frames, AAC."""
    return REPOSITORY / "examples" / "media" / "bunny.mp4"


@pytest.fixture(scope="session")
def shared_media() -> Path:
    """The folder of test footage beside the checkout; where it is absent, tests skip at home and fail in CI."""
    folder = REPOSITORY.parent / "shared" / "media"
    if not (folder / "MANIFEST.json").is_file():
        reason = f"there is no test footage in {folder}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return folder

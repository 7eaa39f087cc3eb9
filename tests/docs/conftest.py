"""Fixtures for the documents' code: a small film, under the names that the documents use."""

import asyncio
import shutil
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from codecfleet import Fleet, TranscodeSpec
from codecfleet.testing import LocalPool
from tests.queue_drivers import end_drivers


@pytest.fixture(scope="session")
def small_film(film: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seconds of the bundled film, 180 lines high, with sound."""
    output = tmp_path_factory.mktemp("film") / "film.mkv"
    spec = TranscodeSpec(
        source=str(film), output=str(output), codec=None, preset=1, scale=(None, 180), end_s=Fraction(2)
    )
    asyncio.run(_transcode(spec))
    return output


async def _transcode(spec: TranscodeSpec) -> None:
    async with Fleet(pool=LocalPool()) as fleet:
        await (await fleet.transcode(spec))


@pytest.fixture
def films(small_film: Path, working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder: ``film.mkv``, and three films in ``inbox``."""
    shutil.copy(small_film, working_folder / "film.mkv")
    (working_folder / "inbox").mkdir()
    for name in ("one", "two", "three"):
        shutil.copy(small_film, working_folder / "inbox" / f"{name}.mkv")
    monkeypatch.chdir(working_folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(working_folder / "state"))
    yield working_folder
    end_drivers(working_folder / "state")
    for path in working_folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()

"""A work location in a bucket that does not exist."""

from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from codecfleet.errors import OutputUnwritable
from codecfleet.jobs.journal.work import WorkPlace
from codecfleet.jobs.request.spec import TranscodeSpec


class Buckets(MemoryFileSystem):  # type: ignore[misc] # fsspec publishes no types
    """A store of objects without any bucket, which, like s3fs, makes one when a folder is made."""

    protocol = "s3"
    store: dict[str, Any] = {}  # noqa: RUF012 - as the base class has it
    pseudo_dirs: list[str] = [""]  # noqa: RUF012 - as the base class has it
    made = 0

    def makedirs(self, path: str, exist_ok: bool = False) -> None:  # noqa: FBT001, FBT002 - fsspec's signature
        """Make the bucket."""
        del path, exist_ok
        Buckets.made += 1

    def pipe_file(self, path: str, value: bytes, **options: object) -> None:
        """Refuse it."""
        del path, value, options
        message = "The specified bucket does not exist."
        raise FileNotFoundError(message)


def test_it_is_refused_and_not_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A misspelt bucket ends the job with exit code 4 before any work, and no bucket of that name is made."""
    monkeypatch.setattr("codecfleet.jobs.journal.stores.open_store", lambda url: (Buckets(), url.removeprefix("s3:/")))
    place = WorkPlace(TranscodeSpec(source="in.mkv", output=tmp_path / "out.mp4", work="s3://nowhere/work"))
    with pytest.raises(OutputUnwritable, match="The specified bucket does not exist") as caught:
        place.open()
    assert caught.value.exit_code == 4
    assert Buckets.made == 0
    assert list(tmp_path.iterdir()) == []

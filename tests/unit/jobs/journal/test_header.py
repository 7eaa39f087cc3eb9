"""What a journal says of the program that began it."""

from importlib.metadata import PackageNotFoundError

import pytest

from codecfleet.jobs.journal import header


def test_a_checkout_that_is_not_installed_has_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout on the path, as Ray gives it to a job, has no metadata; its jobs are journaled too."""

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(header, "version", missing)
    header._own_version.cache_clear()
    assert header._own_version() == "0+checkout"
    header._own_version.cache_clear()

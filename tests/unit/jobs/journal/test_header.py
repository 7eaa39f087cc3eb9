"""What a journal says of the program that began it."""

import pytest

from codecfleet.jobs.journal import header


def test_a_checkout_that_is_not_installed_has_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout on the path, as Ray gives it to a job, has no metadata; its jobs are journaled too."""
    monkeypatch.setattr(header, "installed", lambda _: "")
    assert header._own_version() == "0+checkout"

"""What a journal states about the program that began it."""

import pytest

from codecfleet.jobs.journal import header


def test_a_checkout_that_is_not_installed_has_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout on the path, which has no metadata, has a version in the journal."""
    monkeypatch.setattr(header, "installed", lambda _: "")
    assert header._own_version() == "0+checkout"

"""How stores are opened."""

import fsspec.config
import pytest

from codecfleet.actors.media.stores import open_store


@pytest.mark.parametrize("url", ["https://host/film.mkv", "http://host/film.mkv"])
def test_what_the_users_file_says_of_a_web_server_is_kept(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A header with credentials from the user's file is kept beside our own time-outs."""
    pytest.importorskip("aiohttp")
    headers = {"Authorization": "Basic x"}
    monkeypatch.setitem(fsspec.config.conf, "https", {"client_kwargs": {"headers": headers}})
    store, _ = open_store(url)
    assert store.client_kwargs["headers"] == headers
    assert store.client_kwargs["timeout"].sock_read

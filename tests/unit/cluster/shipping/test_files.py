import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.media.remote_file import RemoteFile, WantedBytes
from codecfleet.actors.media.stores import open_store, source_version
from codecfleet.cluster.shipping import serving
from codecfleet.cluster.shipping.files import ShippedFiles, register, shipped_url
from codecfleet.cluster.shipping.serving import FileReader
from codecfleet.cluster.shipping.shipment import shipment_of
from codecfleet.errors import FleetUnavailable, InputNotFound, InputUnreadable

ADDRESS = "10.0.0.1:6379/codecfleet-files-a.0"


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Let this process read instead of another machine; return the calls that it gets."""
    questions: list[tuple[str, str]] = []
    reader = FileReader()

    def answer(_: ShippedFiles, address: str, method: str, file: str, *arguments: int) -> Any:
        questions.append((address, method))
        return getattr(reader, method)(file, *arguments)

    monkeypatch.setattr(ShippedFiles, "answer", answer)
    register()
    return questions


NAMES = st.binary(min_size=1, max_size=40).filter(lambda name: b"\0" not in name and b"/" not in name)


@given(name=NAMES)
def test_any_name_arrives_as_it_is(name: bytes) -> None:
    """A path of any bytes, even if they are not UTF-8, becomes text in a URL, and then the same path again."""
    seen: list[str] = []
    files = ShippedFiles()
    files.answer = lambda _address, _method, file: seen.append(file) or (0, "")
    path = os.fsdecode(b"/films/" + name)
    url = shipped_url(ADDRESS, path)
    files.info(url)
    assert seen == [path]
    assert urlsplit(url).query == urlsplit(url).fragment == ""
    assert "::" not in url


def test_a_shipped_file_reads_like_the_file(tmp_path: Path, asked: list[tuple[str, str]]) -> None:
    """A shipped file has the bytes, size and version of the file, and its reader is called at its address."""
    content = os.urandom(300_000)
    (tmp_path / "film #1.mkv").write_bytes(content)
    shipment = shipment_of(str(tmp_path / "film #1.mkv"), ADDRESS)
    assert source_version(shipment.url) == shipment.version
    with RemoteFile(shipment.url, WantedBytes()) as stream:
        assert stream.seek(0, os.SEEK_END) == len(content)
        stream.seek(200_000)
        assert b"".join(iter(lambda: stream.read(70_000), b"")) == content[200_000:]
        stream.seek(10)
        assert stream.read(5) == content[10:15]
    assert {address for address, _ in asked} == {ADDRESS}
    assert sum(method == "read" for _, method in asked) <= 4


def test_a_file_that_is_gone_or_no_file(tmp_path: Path) -> None:
    """A file that its own machine cannot read is an input error."""
    with pytest.raises(InputNotFound):
        RemoteFile(shipped_url(ADDRESS, str(tmp_path / "nothing.mkv")), WantedBytes())
    with pytest.raises(InputUnreadable, match="was changed or removed"):
        shipment_of(str(tmp_path / "nothing.mkv"), ADDRESS)


def test_a_version_is_that_of_the_file(tmp_path: Path) -> None:
    """Writing to a file or replacing it changes the file's version."""
    path = tmp_path / "film.mkv"
    path.write_bytes(b"one")
    url = shipment_of(str(path), ADDRESS).url
    first = source_version(url)
    path.write_bytes(b"two")
    os.utime(path, ns=(1, 1))
    second = source_version(url)
    (tmp_path / "other.mkv").write_bytes(b"two")
    os.utime(tmp_path / "other.mkv", ns=(1, 1))
    (tmp_path / "other.mkv").rename(path)
    assert len({first, second, source_version(url)}) == 3
    assert open_store(url)[0].info(url)["size"] == 3


def test_calls_of_a_reader_that_is_killed_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray restarts the reader and repeats pending calls, even the first one, because the calls are idempotent."""
    started: dict[str, Any] = {}
    monkeypatch.setattr(serving, "this_node", lambda: "0" * 56)
    monkeypatch.setattr(serving, "make_actor", lambda _kind, options: started.update(options) or SimpleNamespace())
    with pytest.raises(FleetUnavailable, match="did not start"):
        serving.serve_files("a.0")  # no actor answers in this test
    assert (started["max_restarts"], started["max_task_retries"]) == (-1, -1)

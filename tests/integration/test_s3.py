"""Films on a real but faulty S3 server: an exact file or a typed error, and nothing left behind."""

import tempfile
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import fsspec
import pytest

from codecfleet.actors.backoff import Backoff
from codecfleet.actors.media import storage_retry, stores
from codecfleet.cli.app import run
from codecfleet.errors import StorageFailed
from codecfleet.testing.clips import Clip, constant_times, make_clip

from .attacks import ON_THREADS
from .local_jobs import spec_of, transcode
from .s3_server import S3Proxy, Trouble, in_turn, server

__all__ = ["server"]

SOURCE, OUTPUT = "s3://films/in.mp4", "s3://films/out.mp4"
CUTS = 20
PICTURES = 80


@pytest.fixture(autouse=True)
def s3(server: S3Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Proxy]:
    """A server with a film of four segments in a new bucket; tries follow each other without pauses."""
    server.use(monkeypatch)
    monkeypatch.setattr(storage_retry, "PAUSES", Backoff(0, 0))
    monkeypatch.setattr(stores, "S3_ATTEMPTS", 1)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    clip = Clip(times=constant_times(PICTURES), keyframes=frozenset(range(0, PICTURES, CUTS)))
    server.start_over()
    files = fsspec.filesystem("s3")
    files.mkdir("films")
    files.put_file(str(make_clip(tmp_path / "film.mp4", clip)), "films/in.mp4")
    yield server
    server.start_over()
    files.rm("films", recursive=True)


def encode(output: str | Path = OUTPUT) -> None:
    """Transcode the film in the store."""
    transcode(spec_of(SOURCE, output, segment_s=Fraction(4, 5), preset=1, overwrite=True, no_journal=True))


def object_at(url: str) -> bytes:
    """Return an object's current content."""
    files, path = stores.open_store(url)
    files.invalidate_cache()
    content: bytes = files.cat_file(path)
    return content


def test_a_film_goes_from_s3_to_s3(tmp_path: Path, s3: S3Proxy, capsys: pytest.CaptureFixture[str]) -> None:
    """The bytes are the same as with files; work is in the store until the end, and ``verify`` reads from the store."""
    encode(tmp_path / "o.mp4")
    code = run(
        ["transcode", SOURCE, OUTPUT, "--segment-seconds", "0.8", "--preset", "1", "--work", "s3://films/work"],
        ON_THREADS,
    )
    assert (code, object_at(OUTPUT)) == (0, (tmp_path / "o.mp4").read_bytes())
    assert run(["verify", SOURCE, OUTPUT], ON_THREADS) == 0
    assert "complete: 80 frames" in capsys.readouterr().out
    files, _ = stores.open_store(OUTPUT)
    files.invalidate_cache()
    assert sorted(files.find("films")) == ["films/in.mp4", "films/out.mp4"]
    assert not s3.uploads("films").count("<UploadId>")


READ_TROUBLES = [Trouble.ERROR_500, Trouble.SLOW_DOWN, Trouble.RESET, Trouble.TRUNCATED]


def test_troubles_that_pass_change_nothing(tmp_path: Path, s3: S3Proxy) -> None:
    """500, 503, dropped connections and truncated bodies, in reads and uploads, do not change the bytes."""
    encode(tmp_path / "o.mp4")
    for method, troubles in (("GET", [*READ_TROUBLES, Trouble.NONE] * 3), ("PUT", READ_TROUBLES)):
        s3.trouble = in_turn(troubles, method=method)
        encode()
        s3.start_over()
        assert object_at(OUTPUT) == (tmp_path / "o.mp4").read_bytes()


def test_a_large_output_is_visible_only_when_it_is_whole(
    tmp_path: Path, s3: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large output is uploaded in parts; if a part fails for good, the upload is aborted, and nothing is left."""
    from codecfleet.jobs.join.publish import publish

    monkeypatch.setattr("s3fs.S3FileSystem.default_block_size", 5 << 20)
    monkeypatch.setattr("s3fs.core.calculate_chunksize", lambda *_, **__: 5 << 20)
    large = tmp_path / "large.mp4"
    large.write_bytes(bytes(11 << 20))
    s3.trouble = lambda method, path: Trouble.ERROR_500 if method == "PUT" and "partNumber=3" in path else Trouble.NONE
    with pytest.raises(StorageFailed, match=r"s3://films/large\.mp4 could not be written"):
        publish(large, "s3://films/large.mp4", overwrite=False)
    assert any("uploads" in each.path for each in s3.requests)
    assert not s3.uploads("films").count("<UploadId>")
    s3.trouble = in_turn([Trouble.SLOW_DOWN, Trouble.RESET], method="PUT")
    publish(large, "s3://films/large.mp4", overwrite=False)
    assert len(object_at("s3://films/large.mp4")) == 11 << 20
    assert not s3.uploads("films").count("<UploadId>")

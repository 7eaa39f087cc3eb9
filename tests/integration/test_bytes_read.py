"""How much of a film in a store a job reads, as the server counts it."""

import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import fsspec
import pytest

from codecfleet.actors.decode.decoding import DecodeTally, decode_range
from codecfleet.actors.media import stores
from codecfleet.actors.media.kept_sources import KEPT
from codecfleet.actors.media.shared_blocks import SharedBlocks
from codecfleet.jobs.plan.track_ranges import TrackRanges
from codecfleet.jobs.probe.job import probe
from codecfleet.jobs.source.source import read_source
from codecfleet.jobs.verify.job import verify
from tests.small_film import small_film
from tests.sweeps import swept

from .local_jobs import remuxed, spec_of, transcode
from .s3_server import S3Proxy, server
from .test_kept_sources import Recorder

__all__ = ["server"]

CONTAINERS: dict[str, dict[str, str]] = {
    "end.mp4": {},
    "front.mp4": {"movflags": "faststart"},
    "fragmented.mp4": {"movflags": "frag_keyframe+empty_moov"},
    "dash.mp4": {"movflags": "frag_keyframe+empty_moov+dash"},
    "cues.mkv": {},
    "without-cues.mkv": {"live": "1"},
    "broadcast.ts": {},
}
PADDED = {"nal-hrd": "cbr", **dict.fromkeys(("b", "minrate", "maxrate", "bufsize"), "2400k")}
"""Fills small pictures up to a film of 3 MB."""
MOST = 1.1
INDEXED, NOT_INDEXED = "end.mp4", ("fragmented.mp4", "dash.mp4", "without-cues.mkv")
WORKERS = 3
FAST = ("fragmented.mp4", "broadcast.ts")


@pytest.fixture(autouse=True)
def bucket(server: S3Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty bucket."""
    server.use(monkeypatch)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    files = fsspec.filesystem("s3")
    if not files.exists("films"):
        files.mkdir("films")


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten seconds of large packets of small pictures, with their sound."""
    return small_film(tmp_path_factory.mktemp("film") / "film.mp4", sound=True, options=PADDED)


def uploaded(film: Path, folder: Path, name: str) -> str:
    """Put the film into a container and that into the bucket; return the address."""
    remuxed(film, folder / name, options=CONTAINERS[name])
    files, path = stores.open_store(f"s3://films/{name}")
    files.put_file(str(folder / name), path)
    return f"s3://films/{name}"


@contextmanager
def counted(server: S3Proxy, url: str) -> Iterator[list[float]]:
    """Yield a list that gets at the end how much of an object was read, as a multiple of its size."""
    read: list[float] = []
    files, path = stores.open_store(url)
    size_bytes = files.size(path)
    KEPT.close_idle(0)
    server.start_over()
    yield read
    KEPT.close_idle(0)
    read.append(server.sent_bytes(f"/{path}") / size_bytes)


def read_segments(ranges: TrackRanges, workers: int = 1) -> None:
    """Read what workers read for all segments, dealt out in turn."""
    for worker in range(workers):
        KEPT.close_idle(0)
        for segment in ranges.segments[worker::workers]:
            for _ in decode_range(ranges.decode(segment, 0), DecodeTally(), Recorder()):
                pass


def test_a_job_reads_each_byte_once(film: Path, tmp_path: Path, server: S3Proxy) -> None:
    """A job with sound reads at most 1.1 times the film for index, segments and side tracks."""
    url = uploaded(film, tmp_path, "end.mp4")
    with counted(server, url) as read:
        transcode(spec_of(url, tmp_path / "o.mkv", segment_s=Fraction(2), preset=1, no_journal=True))
    assert 1 <= read[0] <= MOST
    assert not list(tmp_path.glob("*.blocks"))


@pytest.mark.parametrize("name", swept(CONTAINERS, is_slow=lambda name: name not in FAST))
def test_a_worker_elsewhere_reads_what_its_segments_need(
    name: str, film: Path, tmp_path: Path, server: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For all segments together, workers elsewhere read about the film's size: neither an index nor by searching."""
    url = uploaded(film, tmp_path, name)
    index = read_source(url).index
    monkeypatch.setattr(SharedBlocks, "find", lambda _url: None)
    with counted(server, url) as read:
        read_segments(TrackRanges.cut(index, start_s=None, end_s=None, segment_s=Fraction(2)))
    assert 0.9 <= read[0] <= MOST


@pytest.mark.slow
def test_workers_elsewhere_need_no_index(
    film: Path, tmp_path: Path, server: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a fragmented mp4, or Matroska without cues, three workers read as much as for an indexed mp4."""
    monkeypatch.setattr(SharedBlocks, "find", lambda _url: None)

    def read_in_all(name: str) -> float:
        url = uploaded(film, tmp_path, name)
        index = read_source(url).index
        with counted(server, url) as read:
            read_segments(TrackRanges.cut(index, start_s=None, end_s=None, segment_s=Fraction(2)), WORKERS)
        return read[0]

    most = MOST * read_in_all(INDEXED)
    assert {name for name in NOT_INDEXED if not 1 <= read_in_all(name) <= most} == set()


@pytest.mark.parametrize("name", swept(["end.mp4", "without-cues.mkv", "broadcast.ts"]))
def test_probing_reads_each_byte_once(name: str, film: Path, tmp_path: Path, server: S3Proxy) -> None:
    """``probe`` reads at most 1.1 times the film's size, however many times it opens the film."""
    url = uploaded(film, tmp_path, name)
    with counted(server, url) as read:
        assert probe(url).size_bytes
    assert 0.9 <= read[0] <= MOST
    assert not list(tmp_path.glob("*.blocks"))


def test_verifying_reads_each_byte_once(film: Path, tmp_path: Path, server: S3Proxy) -> None:
    """``verify`` reads at most 1.1 times the source and the output."""
    output = f"s3://films/{secrets.token_hex(4)}.mp4"
    url = uploaded(film, tmp_path, "end.mp4")
    part = {"end_s": Fraction(1, 2), "preset": 1, "no_journal": True}
    transcode(spec_of(url, output, **part))
    with counted(server, url) as read, counted(server, output) as read_output:
        assert verify(url, output, end_s=Fraction(1, 2)).exact
    assert 0.9 <= read[0] <= MOST
    assert 0.9 <= read_output[0] <= MOST
    assert not list(tmp_path.glob("*.blocks"))

"""``ship`` sends a local input to a fleet whose workers do not see it."""

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from codecfleet import Report
from codecfleet.actors.device.work import Work
from codecfleet.actors.media.kept_sources import KEPT
from codecfleet.actors.tracks.audio import EncodeAudio
from codecfleet.cluster.fleet.pool import PoolState
from codecfleet.cluster.shipping.files import ShippedFiles
from codecfleet.cluster.shipping.serving import FileReader
from codecfleet.errors import InputUnreadable
from codecfleet.testing import LocalPool
from codecfleet.testing.clips import Clip, constant_times, make_clip
from codecfleet.testing.fleet.local_pool import Look

from .local_jobs import spec_of, transcode
from .ray_cluster import RayCluster, ray_cluster

FILM = Path(__file__).parents[2] / "examples/media/bunny.mp4"
FAST = {"segment_s": Fraction(1), "preset": 1, "scale": (160, 90), "no_journal": True}

ResultT = TypeVar("ResultT")


class FarPool(LocalPool):
    """A pool on another machine, which has ``folder`` in the place of the film's folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(2)
        self._folder = folder

    @property
    def state(self) -> PoolState:
        """Return who reads the files of the job's machine."""
        return replace(super().state, files_address="here:1/reader")

    async def result_of(self, work: Work[ResultT], look: Look) -> ResultT:
        """Run work there."""
        far: Any = work
        if isinstance(far, EncodeAudio):
            far = replace(far, source=str(self._folder / Path(far.source).name))
        else:
            source = str(self._folder / Path(far.decode.source).name)
            far = replace(far, decode=replace(far.decode, source=source))
        return await super().result_of(far, look)


class Sent:
    """Counts the reads on another machine, which run in this process."""

    def __init__(self) -> None:
        self.sent_bytes = 0
        self.broken = False
        self._reader = FileReader()

    def answer(self, address: str, method: str, file: str, *arguments: int) -> Any:
        """Answer as a reader does."""
        assert address == "here:1/reader"
        if self.broken:
            raise PermissionError("its user may not read it")
        found = getattr(self._reader, method)(file, *arguments)
        self.sent_bytes += len(found) if method == "read" else 0
        return found


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sent]:
    """Provide the counter of this test's reads from another machine."""
    sending = Sent()
    monkeypatch.setattr(ShippedFiles, "answer", sending.answer)
    KEPT.close_idle(0)
    yield sending
    KEPT.close_idle(0)
    for thread in threading.enumerate():
        if thread.name.startswith("codecfleet-ahead"):  # It may be about to read; from now on, a real reader answers.
            thread.join()


def clip(path: Path) -> Path:
    """Make a small film of four seconds with a keyframe in each."""
    return make_clip(path, Clip(times=constant_times(100), keyframes=frozenset(range(0, 100, 25))))


def made(source: Path, output: Path, pool: LocalPool, **options: object) -> Report:
    """Transcode with workers somewhere."""
    return transcode(spec_of(source, output, **{**FAST, **options}), pool=pool)


@pytest.mark.parametrize("name", ["film.mp4", "film.mkv", "film.ts"])
def test_a_film_that_no_worker_sees(name: str, tmp_path: Path, sent: Sent) -> None:
    """The output has the same bytes as with workers that see the film, and those are sent nothing."""
    film = clip(tmp_path / name)
    made(film, tmp_path / "near.mp4", LocalPool(2))
    assert sent.sent_bytes == 0
    report = made(film, tmp_path / "far.mp4", FarPool(tmp_path / "far"), ship=True)
    assert (tmp_path / "far.mp4").read_bytes() == (tmp_path / "near.mp4").read_bytes()
    assert len(report.segments) > 2
    assert sent.sent_bytes


def test_sound_that_is_encoded_is_shipped_too(tmp_path: Path, sent: Sent) -> None:
    """A worker that encodes the sound reads it through the job's machine, and the bytes are the same."""
    options = {"audio": "opus", "end_s": Fraction(1)}
    made(FILM, tmp_path / "near.mkv", LocalPool(2), **options)
    made(FILM, tmp_path / "far.mkv", FarPool(tmp_path / "far"), ship=True, **options)
    assert (tmp_path / "far.mkv").read_bytes() == (tmp_path / "near.mkv").read_bytes()
    assert sent.sent_bytes > FILM.stat().st_size


def test_what_cannot_be_sent_is_a_typed_error(tmp_path: Path, sent: Sent) -> None:
    """If nothing can read the film for others, the job fails with that reason, without an output."""
    sent.broken = True
    with pytest.raises(InputUnreadable, match="its user may not read it"):
        made(clip(tmp_path / "film.mp4"), tmp_path / "far.mp4", FarPool(tmp_path / "far"), ship=True)
    assert not list(tmp_path.glob("*far.mp4"))


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A film in its own folder, which is empty on other machines."""
    folder = tmp_path_factory.mktemp("films")
    (folder / "film.mp4").write_bytes(FILM.read_bytes())
    return folder / "film.mp4"


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a folder is hidden from a node by root alone")


@pytest.fixture(scope="module")
def cluster(film: Path) -> Iterator[RayCluster]:
    """A cluster whose head sees the film but has no CPU, and a node that does not see the film."""
    blind = {"CODECFLEET_TEST_NODE": "blind"}
    with ray_cluster() as started, started.started_node("--num-cpus", "2", env=blind, hidden=film.parent):
        yield started


BESIDE = """
import hashlib, subprocess, sys
if len(sys.argv) == 2:
    import ray
    from codecfleet.cluster.shipping.serving import files_address, serve_files
    from codecfleet.cluster.shipping.shipment import shipment_of
    ray.init(log_to_driver=False, logging_level="CRITICAL")
    reader = serve_files("test.0")
    url = shipment_of(sys.argv[1], files_address("test.0")).url
    child = [sys.executable, "-c", sys.orig_argv[2], url, "child"]
    print(subprocess.run(child, check=True, capture_output=True, text=True).stdout)
else:
    from codecfleet.actors.media.remote_file import RemoteFile, WantedBytes
    from codecfleet.cluster.shipping.files import register
    register()
    with RemoteFile(sys.argv[1], WantedBytes()) as stream:
        print(hashlib.sha256(b"".join(iter(lambda: stream.read(1 << 20), b""))).hexdigest())
"""
"""Runs a driver that has files read for other nodes, or a process beside a worker, still without Ray."""


def killed_reader(cluster: RayCluster) -> bool:
    """Kill the process that reads for other nodes once it has read something; return whether there was one."""
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s:
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                is_reader = process.cmdline()[:1] == ["ray::FileReader"]
                if is_reader and cluster.keeper.pid in [parent.pid for parent in process.parents()]:
                    process.kill()
                    return True
        time.sleep(0.1)
    return False


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(300)
@needs_root
def test_a_node_that_does_not_see_the_film(cluster: RayCluster, film: Path, tmp_path: Path) -> None:
    """Without --ship the error names the node and the option; with it, pictures and sound are exact.

    If the process that reads the film for the node is killed, the output is the same.
    """
    options = ("--segment-seconds", "1", "--preset", "1", "--scale", "160x90", "--audio", "opus")
    command = ("transcode", str(film), str(tmp_path / "far.mkv"), *options)
    refused = cluster.run(*command)
    assert refused.returncode == 3
    assert f"has no file {film}, which is on this machine. Add --ship" in refused.stderr
    running = cluster.start(*command, "--ship")
    assert killed_reader(cluster)
    _, said = running.communicate(timeout=120)
    assert running.returncode == 0, said
    made(film, tmp_path / "near.mkv", LocalPool(2), audio="opus")
    assert (tmp_path / "far.mkv").read_bytes() == (tmp_path / "near.mkv").read_bytes()


@pytest.mark.slow
@pytest.mark.ray
@needs_root
def test_a_process_beside_a_worker_reads_too(cluster: RayCluster, film: Path) -> None:
    """Work that runs alone reads through a process without Ray, which joins the cluster for that."""
    digest = cluster.python(BESIDE, str(film), timeout_s=100).strip()
    assert digest == hashlib.sha256(film.read_bytes()).hexdigest()

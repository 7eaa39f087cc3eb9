"""A faulty store, and a cluster whose working node does not see this machine's files."""

import os
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import fsspec
import pytest
from fsspec import AbstractFileSystem

from codecfleet.jobs.verify.job import verify

from .local_jobs import spec_of, transcode
from .ray_cluster import RayCluster, ray_cluster
from .s3_server import S3Proxy, Trouble, in_turn, s3_server

FILM = Path(__file__).parents[2] / "examples/media/bunny.mp4"
TROUBLES = [Trouble.ERROR_500, Trouble.RESET, Trouble.TRUNCATED, Trouble.SLOW_DOWN]
OPTIONS = ("--segment-seconds", "2", "--preset", "1", "--scale", "160x90", "--workers", "1")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can hide a folder from a node"),
]


class Place(NamedTuple):
    """A store, a cluster, and a film that both hold."""

    store: S3Proxy
    files: AbstractFileSystem
    cluster: RayCluster
    film: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A head that sees the film and does not work, and a node that works but does not see the film."""
    folder = tmp_path_factory.mktemp("films")
    film = folder / "film.mp4"
    film.write_bytes(FILM.read_bytes())
    with s3_server() as store:
        keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "hidden-value", "AWS_ENDPOINT_URL": store.url}
        node = {"CODECFLEET_TEST_NODE": "far"}
        with (
            pytest.MonkeyPatch.context() as patch,
            ray_cluster(env=keys) as cluster,
            cluster.started_node("--num-cpus", "2", env=node, hidden=folder),
        ):
            for name, value in keys.items():
                patch.setenv(name, value)
            fsspec.get_filesystem_class("s3").clear_instance_cache()
            files = fsspec.filesystem("s3")
            files.mkdir("films")
            files.put_file(str(film), "films/film.mp4")
            yield Place(store, files, cluster, film)


@pytest.fixture(scope="module")
def expected(place: Place, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The output as this machine makes it."""
    output = tmp_path_factory.mktemp("near") / "near.mp4"
    transcode(spec_of(place.film, output, segment_s=Fraction(2), preset=1, scale=(160, 90), no_journal=True))
    return output.read_bytes()


def run(place: Place, folder: Path, *arguments: str) -> None:
    """Run a command whose ``TMPDIR`` no worker sees."""
    running = place.cluster.start("transcode", *arguments, *OPTIONS, env={"TMPDIR": str(folder)})
    _, said = running.communicate(timeout=200)
    assert running.returncode == 0, said


def test_from_a_store_to_a_store(place: Place, expected: bytes, tmp_path: Path) -> None:
    """The output is exact whatever the store does; program and worker read the film once each, besides retries."""
    place.store.start_over()
    place.store.trouble = in_turn(list(TROUBLES))
    run(place, tmp_path, "s3://films/film.mp4", "s3://films/out.mp4")
    sent = place.store.sent_bytes("/films/film.mp4")
    assert 1.9 <= sent / place.film.stat().st_size <= 2.5
    assert place.files.cat_file("films/out.mp4") == expected
    assert verify("s3://films/film.mp4", "s3://films/out.mp4").exact


def test_from_a_node_s_disk_to_a_store(place: Place, expected: bytes, tmp_path: Path) -> None:
    """With --ship the input is sent and the output uploaded from the program's machine, whatever the store does."""
    place.store.start_over()
    place.store.trouble = in_turn(list(TROUBLES), method="PUT")
    run(place, tmp_path, str(place.film), "s3://films/shipped.mp4", "--ship")
    assert place.files.cat_file("films/shipped.mp4") == expected
    assert place.store.sent_bytes("/films/film.mp4") == 0

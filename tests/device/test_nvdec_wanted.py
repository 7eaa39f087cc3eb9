"""Wanted pictures on a real GPU equal those of software; sessions stay warm, and other pictures take no memory."""

import hashlib
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import av
import pytest

import codecfleet
from codecfleet.actors.decode.decoding import SOFTWARE, DecodeTally, OpenTrack, PictureDecoder
from codecfleet.actors.decode.wanted import WantedPictures
from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.actors.nvidia.gpu import Gpu
from codecfleet.actors.nvidia.nvdec.session import session_bytes
from codecfleet.testing.clips import Clip, constant_times, make_clip

THREADS, CHOICES = 12, 60
KEYFRAMES = (0, 48, 96, 144)
"""The last group has 81 pictures, the others have 48."""
COUNT = 144 + 81
ENCODERS = {
    "h264": Clip(
        times=constant_times(COUNT),
        keyframes=frozenset(KEYFRAMES),
        options=(("preset", "ultrafast"), ("x264-params", "keyint=250:scenecut=0:bframes=3:b-adapt=0:b-pyramid=none")),
        width=1920,
        height=1080,
    ),
    "hevc": Clip(
        times=constant_times(60),
        encoder="libx265",
        options=(
            ("preset", "ultrafast"),
            ("x265-params", "keyint=30:scenecut=0:bframes=4:temporal-layers=2:log-level=none"),
        ),
        width=640,
        height=360,
    ),
}


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The clips, made once."""
    folder = tmp_path_factory.mktemp("clips")
    return {codec: make_clip(folder / f"{codec}.mkv", clip) for codec, clip in ENCODERS.items()}


@pytest.fixture
def gpu(cuda: Cuda) -> Iterator[Gpu]:
    """Provide a worker's GPU, not opened yet."""
    del cuda  # the call says whether there is a GPU
    found = Gpu()
    yield found
    found.close()


def _decoded(
    decoder: PictureDecoder[Any], path: Path, times: frozenset[int] | None, tally: DecodeTally | None = None
) -> list[Any]:
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.codec_context.copy_opaque = True
        packets = ((number, packet) for number, packet in enumerate(container.demux(stream)) if packet.size)
        wanted = None if times is None else WantedPictures(times, by_packet=True)
        track = OpenTrack(stream, stream.codec_context, wanted)
        return [picture for _, picture in decoder.decode(track, packets, tally or DecodeTally())]


def _digest(picture: av.VideoFrame) -> tuple[int | None, bytes]:
    return picture.pts, hashlib.blake2b(picture.to_ndarray().data).digest()


@pytest.mark.parametrize("codec", ENCODERS)
def test_chosen_pictures_are_softwares(gpu: Gpu, films: dict[str, Path], codec: str) -> None:
    """For any choice of pictures, from many threads, no session is closed, and unneeded packets are left out."""
    film = films[codec]
    every = [_digest(picture) for picture in _decoded(SOFTWARE, film, None)]

    def choose(seed: int) -> tuple[bool, int]:
        chooser, tally = random.Random(seed), DecodeTally()  # noqa: S311 - no secret
        expected = sorted(chooser.sample(every, chooser.choice((1, 2, 9))), key=lambda each: each[0] or 0)
        times = frozenset(each[0] or 0 for each in expected)
        if seed % 2:
            found = [_digest(each) for each in _decoded(gpu.pictures, film, times, tally)]
        else:
            with closing(gpu.open_mover()) as mover:
                found = [_digest(mover.to_host(each)) for each in _decoded(gpu.surfaces, film, times, tally)]
        return found == expected, tally.frames

    with ThreadPoolExecutor(THREADS) as threads:
        answers = list(threads.map(choose, range(CHOICES)))
    assert all(is_same for is_same, _ in answers)
    assert max(frames for _, frames in answers) < len(every)
    counts = gpu.opened().pool.counts
    assert (counts.made <= THREADS, counts.closed) == (True, 0)


def test_one_picture_of_a_group_takes_the_memory_of_one(gpu: Gpu, films: dict[str, Path]) -> None:
    """The other pictures of the group are decoded, but never copied."""
    last = max(picture.pts for picture in _decoded(SOFTWARE, films["h264"], None))
    found = _decoded(gpu.surfaces, films["h264"], frozenset({last}))
    opened = gpu.opened()
    (key,) = opened.pool.counts.of_kind
    picture_bytes = key.surface.size_bytes(key.width, key.height)
    assert len(found) == 1
    assert opened.budget.taken_bytes - session_bytes(key) < 2 * picture_bytes


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("place", ["host", "device"])
def test_every_group_that_fits_into_memory_alone_is_decoded_on_nvdec(films: dict[str, Path], place: str) -> None:
    """With 1 GiB, fewer groups of 149 and 252 MB are decoded at once, but none in software."""
    with codecfleet.frames(str(films["h264"]), place=place, decoder="nvdec", memory_bytes=1 << 30) as frames:  # type: ignore[arg-type]
        assert sum(1 for _ in frames) == COUNT
    assert list(frames.report.decoded_by) == ["nvdec"]

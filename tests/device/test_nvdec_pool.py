"""Sessions on a real GPU: opened in the background, exact from the first picture, within the memory estimate."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import av
import pytest

from codecfleet.actors.decode.decoding import SOFTWARE, DecodeTally, OpenTrack, PictureDecoder
from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.actors.nvidia.gpu import Gpu
from codecfleet.actors.nvidia.nvdec.session import session_bytes
from codecfleet.errors import EngineBusy
from codecfleet.testing.clips import Clip, constant_times, make_clip

GOP = "keyint=16:min-keyint=16:scenecut=0:bframes=2:ref=16"
THREADS, RANGES, BUSY_RANGES = 12, 48, 72


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a clip of 1080p with as many reference pictures as allowed."""
    wanted = Clip(times=constant_times(24), options=(("x264-params", GOP),), width=1920, height=1080)
    return make_clip(tmp_path_factory.mktemp("clips") / "clip.mkv", wanted)


@pytest.fixture
def gpu(cuda: Cuda) -> Iterator[Gpu]:
    """Provide a worker's GPU, not opened yet."""
    del cuda  # the call says whether there is a GPU
    found = Gpu()
    yield found
    found.close()


def _hashes(decoder: PictureDecoder[av.VideoFrame], path: Path) -> list[object]:
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.codec_context.copy_opaque = True
        packets = zip(count(), (packet for packet in container.demux(stream) if packet.size), strict=False)
        pictures = decoder.decode(OpenTrack(stream, stream.codec_context), packets, DecodeTally())
        return [(picture.pts, _digest(picture)) for _, picture in pictures]


def _digest(picture: av.VideoFrame) -> bytes:
    """Return a digest that tells the clip's pictures apart.

    It is cheap, so that the threads spend most of their time decoding.
    """
    return hashlib.blake2b(picture.to_ndarray().data).digest()


def test_a_new_worker_gives_softwares_pictures_or_says_that_it_is_busy(gpu: Gpu, clip: Path) -> None:
    """Each caller with a fallback that gets a session gets all pictures; there is at most one session per thread."""
    wanted = _hashes(SOFTWARE, clip)

    def ask(_: int) -> bool:
        with gpu.non_blocking_pictures() as pictures:
            try:
                assert _hashes(pictures, clip) == wanted
            except EngineBusy:
                assert _hashes(SOFTWARE, clip) == wanted
                return False
        return True

    with ThreadPoolExecutor(THREADS) as threads:
        on_device = sum(threads.map(ask, range(RANGES)))
    counts = gpu.opened().pool.counts
    (of_kind,) = counts.of_kind.values()
    assert on_device == counts.in_use > 0
    assert of_kind.made - of_kind.closed <= of_kind.wanted_most <= THREADS
    with gpu.non_blocking_pictures() as pictures:
        assert _hashes(pictures, clip) == wanted


def test_pictures_of_a_busy_gpu_are_softwares(gpu: Gpu, clip: Path) -> None:
    """Among thousands of pictures that overlap, none is read or overwritten too early."""
    wanted = _hashes(SOFTWARE, clip)
    with ThreadPoolExecutor(THREADS) as threads:
        wrong = sum(found != wanted for found in threads.map(lambda _: _hashes(gpu.pictures, clip), range(BUSY_RANGES)))
    assert wrong == 0


def test_pictures_that_stay_on_a_busy_gpu_are_softwares(gpu: Gpu, clip: Path) -> None:
    """Pictures that are copied on the device are exact, too."""
    wanted = _hashes(SOFTWARE, clip)

    def on_device(_: int) -> list[object]:
        mover = gpu.open_mover()
        with av.open(str(clip)) as container:
            stream = container.streams.video[0]
            packets = zip(count(), (packet for packet in container.demux(stream) if packet.size), strict=False)
            pictures = [
                picture
                for _, picture in gpu.surfaces.decode(OpenTrack(stream, stream.codec_context), packets, DecodeTally())
            ]
        found: list[object] = [(each.pts, _digest(mover.to_host(each))) for each in pictures]
        mover.close()
        return found

    with ThreadPoolExecutor(THREADS) as threads:
        assert sum(found != wanted for found in threads.map(on_device, range(RANGES))) == 0


def test_a_session_takes_no_more_than_it_is_counted_with(gpu: Gpu, clip: Path) -> None:
    """Each warm session takes at most its estimate of the device's free memory."""
    _hashes(gpu.pictures, clip)
    opened = gpu.opened()
    free_before, taken_before = opened.cuda.free_bytes(), opened.budget.taken_bytes
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(lambda _: _hashes(gpu.pictures, clip), range(RANGES)))
    (key,) = opened.pool.counts.of_kind
    made = opened.pool.counts.made - 1
    used_bytes = free_before - opened.cuda.free_bytes()
    print(f"{made} more sessions of 1080p took {used_bytes / max(made, 1) / (1 << 20):.1f} MiB each")  # noqa: T201
    assert used_bytes <= opened.budget.taken_bytes - taken_before == made * session_bytes(key)

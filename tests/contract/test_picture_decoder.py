"""Every decoder returns the same pictures at the same times, or refuses with a reason."""

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import cache, partial
from itertools import cycle, pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING

import av
import pytest
from av.video.frame import VideoFrame

from codecfleet.actors.decode.decoding import (
    SOFTWARE,
    DecodeRange,
    DecodeTally,
    OpenTrack,
    PictureDecoder,
    SoftwareDecoder,
    decode_range,
    open_track,
)
from codecfleet.actors.decode.picture_hash import PictureHash, picture_hash
from codecfleet.actors.nvidia.convert.unpacking import Unpacker
from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.actors.nvidia.gpu import Gpu, assemble_gpu, open_gpu
from codecfleet.actors.nvidia.nvdec.decoder import NvdecDecoder
from codecfleet.actors.surfaces.host_pictures import apply_colour
from codecfleet.errors import DeviceError, EngineUnfit
from codecfleet.testing.clips import Clip, constant_times, make_clip
from codecfleet.testing.nvidia.fake_cuda import FakeCudaCore, FakeCudaDriver
from codecfleet.testing.nvidia.fake_device import FakeDevice
from codecfleet.testing.nvidia.fake_nvdec import FakeNvdec
from codecfleet.testing.nvidia.surface_decoder import SurfaceDecoder

if TYPE_CHECKING:
    from codecfleet.actors.decode.decoding import VideoPacket

from .decoder_clips import CLIPS, Footage, footage


class Downloaded(PictureDecoder[VideoFrame]):
    """Pictures on a GPU, which are copied to the host for comparison."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self.name = gpu.surfaces.name

    def decode(
        self, track: OpenTrack, packets: "Iterator[tuple[int, VideoPacket]]", tally: DecodeTally
    ) -> Iterator[tuple[int | None, VideoFrame]]:
        with closing(self._gpu.open_mover()) as mover:
            for number, picture in self._gpu.surfaces.decode(track, packets, tally):
                found = mover.to_host(picture)
                apply_colour(found, track.context)
                yield number, found


def _on_fake_device(*, has_kernel: bool) -> NvdecDecoder[VideoFrame]:
    """Return the real decoder on a device that needs no GPU."""
    driver = FakeCudaDriver()
    device, cuda = FakeNvdec(driver), Cuda(driver)
    unpacker = Unpacker(FakeCudaCore, cuda) if has_kernel else None
    return assemble_gpu(cuda, device, unpacker, lambda: device.wrong_pictures).pictures


def _opened(gpu: Gpu) -> Gpu:
    gpu.opened()
    return gpu


MAKERS: dict[str, Callable[[], PictureDecoder[VideoFrame]]] = {
    "software": SoftwareDecoder,
    "surface": SurfaceDecoder,
    "fake-nvdec": partial(_on_fake_device, has_kernel=False),
    "fake-nvdec-kernel": partial(_on_fake_device, has_kernel=True),
    "fake-nvdec-surfaces": lambda: Downloaded(FakeDevice().gpu),
    "nvdec": lambda: open_gpu().pictures,
    "nvdec-surfaces": lambda: Downloaded(_opened(Gpu())),
}


@pytest.fixture(scope="module", params=MAKERS)
def decoder(request: pytest.FixtureRequest) -> PictureDecoder[VideoFrame]:
    """One decoder for all tests, so leftovers of one test would affect the next test."""
    try:
        return MAKERS[request.param]()
    except DeviceError as error:
        pytest.skip(error.message)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of clips, which are made once."""
    return tmp_path_factory.mktemp("clips")


@pytest.fixture(params=CLIPS)
def clip(request: pytest.FixtureRequest, folder: Path) -> Footage:
    """Each clip."""
    return footage(folder, request.param)


def _hashes(range_: DecodeRange, decoder: PictureDecoder[VideoFrame]) -> list[PictureHash]:
    """Return the pictures from the entry on; earlier pictures are dropped."""
    found = [picture_hash(*entry) for entry in decode_range(range_, DecodeTally(), decoder)]
    if range_.entry is None or range_.entry.pts is None:
        return found
    return [one for one in found if one.ticks >= (range_.entry.pts or 0)]


@cache
def _wanted(range_: DecodeRange) -> list[PictureHash]:
    """Return the pictures of software decoding, which every decoder must give."""
    return _hashes(range_, SOFTWARE)


def _ranges(decoder: PictureDecoder[VideoFrame], clip: Footage) -> list[DecodeRange]:
    """Return the ranges of a clip; skip the test if a real GPU has no engine for them."""
    ranges = clip.ranges()
    try:
        next(decode_range(ranges[0], DecodeTally(), decoder), None)
    except EngineUnfit as error:
        if "this GPU's NVDEC decodes" not in error.message:
            raise
        pytest.skip(f"the device does not decode {clip.path.name}")
    return ranges


def test_every_range_gives_softwares_pictures(decoder: PictureDecoder[VideoFrame], clip: Footage) -> None:
    """Ranges that begin anywhere and end anywhere give the same hashes at the same times, in order."""
    ranges = _ranges(decoder, clip)
    assert len(ranges) >= 6
    for range_ in ranges:
        wanted = _wanted(range_)
        assert wanted
        assert all(one.ticks < other.ticks for one, other in pairwise(wanted))
        assert _hashes(range_, decoder) == wanted, range_


def test_only_wanted_pictures_come(decoder: PictureDecoder[VideoFrame], clip: Footage) -> None:
    """Any choice of pictures of a range equals software's, with or without the packets that no wanted picture needs."""
    ranges = _ranges(decoder, clip)
    chooser = random.Random(clip.path.name)  # noqa: S311 - not a secret
    for range_, (few, by_packet) in zip(ranges, cycle(product((None, 1, 2), (True, False))), strict=False):
        every = _wanted(range_)
        chosen = sorted(chooser.sample(every, few or len(every) // 2), key=lambda each: each.ticks)
        wanted = clip.wanted(chosen, by_packet=by_packet)
        found = decode_range(replace(range_, wanted=wanted), tally := DecodeTally(), decoder)
        assert [picture_hash(*each) for each in found] == chosen
        assert tally.frames >= len(chosen)


def _picture_facts(
    range_: DecodeRange, decoder: PictureDecoder[VideoFrame]
) -> tuple[list[tuple[object, ...]], DecodeTally]:
    """Return what a decoder reports about each picture, and what it has counted."""
    tally = DecodeTally()
    with av.open(range_.source) as container:
        track = open_track(container, range_)
        packets = ((number, packet) for number, packet in enumerate(container.demux(track.stream)) if packet.size)
        pictures = decoder.decode(track, packets, tally)
        return [(number, *_facts(picture)) for number, picture in pictures], tally


def _facts(picture: av.VideoFrame) -> tuple[object, ...]:
    colours = (picture.color_range, picture.colorspace, picture.color_primaries, picture.color_trc)
    return picture.pts, picture.width, picture.height, picture.format.name, *(int(each) for each in colours)


def test_a_picture_says_where_it_comes_from(decoder: PictureDecoder[VideoFrame], clip: Footage) -> None:
    """Packet number, time, size, format and colours equal software's, and every picture is counted."""
    range_ = _ranges(decoder, clip)[0]
    facts, tally = _picture_facts(range_, decoder)
    wanted, _ = _picture_facts(range_, SOFTWARE)
    assert facts == wanted
    assert (tally.frames, tally.failed_packets, tally.corrupt_frames) == (len(wanted), 0, 0)
    assert tally.decode_s > 0


def test_who_stops_early_leaves_nothing_behind(decoder: PictureDecoder[VideoFrame], folder: Path) -> None:
    """A range that is not read to its end does not affect the next range."""
    range_ = footage(folder, "h264-open.mp4").ranges()[0]
    wanted = _wanted(range_)
    for stop in (1, 5):
        pictures = decode_range(range_, DecodeTally(), decoder)
        begun = [picture_hash(*next(pictures)) for _ in range(stop)]
        pictures.close()
        assert begun == wanted[:stop]
        assert _hashes(range_, decoder) == wanted


def test_many_threads_share_one_decoder(decoder: PictureDecoder[VideoFrame], folder: Path) -> None:
    """Ranges of several tracks that are decoded at the same time do not affect each other."""
    names = ["h264-open.mp4", "hevc-10-open.mkv", "vp9-hidden.webm"]
    ranges = [range_ for name in names for range_ in footage(folder, name).ranges()[:4]]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda range_: _hashes(range_, decoder), ranges))
    assert found == [_wanted(range_) for range_ in ranges]


FOUR = constant_times(4)
UNFIT = {
    "lossless.mkv": Clip(times=FOUR, encoder="ffv1"),
    "interlaced.mkv": Clip(times=FOUR, options=(("x264-params", "interlaced=1"),)),
    "odd.mkv": Clip(times=FOUR, width=63, height=48, encoder="libvpx-vp9"),
}


@pytest.mark.parametrize(("name", "unfit"), UNFIT.items())
def test_what_does_not_fit_is_refused_before_a_picture(
    decoder: PictureDecoder[VideoFrame], folder: Path, name: str, unfit: Clip
) -> None:
    """A device refuses, with a reason, what it does not decode exactly; software decodes it."""
    range_ = _whole(make_clip(folder / name, unfit))
    if isinstance(decoder, SoftwareDecoder):
        assert len(_hashes(range_, decoder)) == 4
        return
    with pytest.raises(EngineUnfit, match=r"NVDEC|PyNvVideoCodec"):
        next(decode_range(range_, DecodeTally(), decoder))


def _whole(path: Path) -> DecodeRange:
    with av.open(str(path)) as container:
        time_base = container.streams.video[0].time_base
    assert time_base is not None
    return DecodeRange(source=str(path), stream_index=0, time_base=time_base, nominal_ticks=40 / time_base / 1000)

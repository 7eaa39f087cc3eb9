"""Changing pictures, tiny ranges and session options: on the fake NVDEC, and on a GPU or the driver simulator."""

import gc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from av.video.frame import VideoFrame

from codecfleet.actors.decode.decoding import SOFTWARE
from codecfleet.actors.decode.nvdec_options import PLAIN, Latency, NvdecOptions
from codecfleet.actors.media.values import SeiMessage
from codecfleet.actors.nvidia.convert.unpacking import PictureFetcher
from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.actors.nvidia.cuda.memory import PinnedMemory
from codecfleet.actors.nvidia.nvdec.decoder import NvdecCapabilities, NvdecDecoder
from codecfleet.actors.nvidia.nvdec.pool import NvdecPool
from codecfleet.actors.nvidia.nvdec.session import NvdecSession, SessionKey, session_bytes
from codecfleet.actors.surfaces.device_frame import DecodeStatistics, PictureNotes
from codecfleet.actors.surfaces.formats import surface_format
from codecfleet.errors import EngineFailed, EngineUnfit
from codecfleet.testing.clips import Clip, constant_times, make_clip
from codecfleet.testing.nvidia.fake_cuda import FakeCudaDriver
from codecfleet.testing.nvidia.fake_nvdec import FakeNvdec
from tests.spliced import TrackPacket, decoded_packets, packets_of, splice

from .gpus import visible_gpu

GOP = "keyint=8:min-keyint=8:scenecut=0:bframes=2:b-adapt=0:open-gop=0"
X265 = f"{GOP}:repeat-headers=1:log-level=none:pools=1:frame-threads=1"
TIMES = constant_times(12)
SIZE, WIDER = (160, 144), (208, 168)
"""The second is not a whole number of blocks. A real NVDEC decodes nothing smaller than about the first."""


def clip_of(encoder: str, *options: tuple[str, str]) -> Clip:
    """Return a clip for an encoder."""
    return Clip(times=TIMES, encoder=encoder, options=options, width=SIZE[0], height=SIZE[1])


CLIPS = {
    "h264.ts": clip_of("libx264", ("x264-params", GOP)),
    "hevc.ts": clip_of("libx265", ("x265-params", X265)),
    "vp9.webm": clip_of("libvpx-vp9", ("deadline", "realtime")),
    "vp8.webm": clip_of("libvpx", ("deadline", "realtime")),
    "av1.mkv": clip_of("libsvtav1", ("preset", "12"), ("svtav1-params", "lp=1")),
}


class Bench:
    """A decoder with four warm sessions, with the package and CUDA that it uses."""

    def __init__(self, cuda: Cuda, package: Any) -> None:
        self.cuda, self.package = cuda, package
        self.memory = PinnedMemory(cuda)
        self.pool = NvdecPool(partial(NvdecSession, package, cuda), 4)
        reason = NvdecCapabilities(package, cuda).unsupported_reason
        self.decoder = NvdecDecoder(self.pool, self.to_host, reason, lambda: 0)

    def to_host(self, key: SessionKey) -> PictureFetcher:
        size = (key.width, key.height)
        return PictureFetcher(self.cuda, self.memory, None, format_=key.surface, size=size, pix_fmt=key.pix_fmt)

    def with_options(self, **options: Any) -> NvdecDecoder[VideoFrame]:
        return replace(self.decoder, options=NvdecOptions(**options))

    def skip_without(self, codec: str) -> None:
        """Skip the test if the device has no engine for a codec."""
        if reason := self.decoder.cannot(replace(key(), codec=codec)):
            pytest.skip(reason)

    @property
    def counts(self) -> tuple[int, int]:
        """How many sessions were made, and how many times a session was handed out."""
        return self.pool.counts.made, self.pool.counts.in_use


def fake_bench() -> Bench:
    """Return a bench on fakes."""
    driver = FakeCudaDriver()
    return Bench(Cuda(driver), FakeNvdec(driver))


@pytest.fixture(params=["fake", "nvdec"])
def bench(request: pytest.FixtureRequest) -> Bench:
    """Benches on the fakes, and on the GPU that this process sees."""
    return fake_bench() if request.param == "fake" else Bench(*visible_gpu())


def wider(clip: Clip) -> Clip:
    """Return a clip of another size."""
    return replace(clip, width=WIDER[0], height=WIDER[1])


def same(clip: Clip) -> Clip:
    """Return the same clip."""
    return clip


def sdr(clip: Clip) -> Clip:
    """Return a clip in HD's colours."""
    return coloured(clip, "colorprim=bt709:transfer=bt709:colormatrix=bt709")


def hdr(clip: Clip) -> Clip:
    """Return a clip in other colours."""
    return coloured(clip, "colorprim=bt2020:transfer=smpte2084:colormatrix=bt2020nc")


def coloured(clip: Clip, params: str) -> Clip:
    """Return a clip that states its colours."""
    return replace(clip, options=(("x264-params", f"{GOP}:{params}"),))


def spliced(folder: Path, name: str, *changes: Callable[[Clip], Clip]) -> tuple[Path, list[TrackPacket]]:
    """Return a clip's file, and its packets followed by those of changed clips."""
    return splice(folder, Path(name).suffix, [CLIPS[name], *(change(CLIPS[name]) for change in changes)])


def made(folder: Path, name: str = "h264.ts", **changes: Any) -> tuple[Path, list[TrackPacket]]:
    """Make a clip with changes; return its file and packets."""
    path = make_clip(folder / name, replace(CLIPS[name], **changes))
    return path, packets_of(path)


@pytest.mark.parametrize("name", CLIPS)
def test_a_size_that_changes_is_followed(bench: Bench, tmp_path: Path, name: str) -> None:
    """Pictures of each size are the same as in software, and each size has a warm session."""
    bench.skip_without(name.partition(".")[0])
    path, packets = spliced(tmp_path, name, wider, same, wider)
    wanted = decoded_packets(SOFTWARE, path, packets)
    assert len(wanted) == 4 * len(TIMES)
    assert decoded_packets(bench.decoder, path, packets) == wanted
    assert bench.counts == (2, 4)


@pytest.mark.parametrize("name", CLIPS)
def test_one_session_may_be_turned_to_every_size(bench: Bench, tmp_path: Path, name: str) -> None:
    """A session that was opened for the largest size decodes all sizes, and the next range too."""
    bench.skip_without(name.partition(".")[0])
    path, packets = spliced(tmp_path, name, wider, same)
    decoder = bench.with_options(largest=WIDER)
    wanted = decoded_packets(SOFTWARE, path, packets)
    assert decoded_packets(decoder, path, packets) == wanted
    assert decoded_packets(decoder, path, packets) == wanted
    assert bench.counts == (1, 2)


def test_a_session_can_always_be_turned_back(bench: Bench, tmp_path: Path) -> None:
    """If another sequence of the first size needs another key, it gets another session."""
    path, packets = spliced(tmp_path, "h264.ts", sdr, lambda clip: wider(sdr(clip)), hdr)
    packets = packets[len(TIMES) :]
    decoder = bench.with_options(largest=WIDER)
    wanted = decoded_packets(SOFTWARE, path, packets)
    for _ in range(2):
        assert decoded_packets(decoder, path, packets) == wanted
    assert bench.counts == (2, 4)


def test_a_size_beyond_the_largest_is_another_sessions(bench: Bench, tmp_path: Path) -> None:
    """A size for which a session was not opened gets another session."""
    path, packets = spliced(tmp_path, "h264.ts", wider)
    decoder = bench.with_options(largest=(WIDER[0], SIZE[1]))
    assert decoded_packets(decoder, path, packets) == decoded_packets(SOFTWARE, path, packets)
    assert bench.pool.counts.made == 2


def test_colours_that_change_are_followed(bench: Bench, tmp_path: Path) -> None:
    """Each picture has the colours of its sequence, and each sequence a session of its own."""
    path, packets = spliced(tmp_path, "h264.ts", sdr, hdr, sdr)
    packets = packets[len(TIMES) :]
    wanted = decoded_packets(SOFTWARE, path, packets)
    stated = (1, 1, 1, 1), (1, 9, 9, 16), (1, 1, 1, 1)
    assert [each.colours for each in wanted] == [colours for colours in stated for _ in TIMES]
    assert decoded_packets(bench.decoder, path, packets) == wanted
    assert bench.pool.counts.made == 2


def test_colours_that_blur_are_left_to_software(bench: Bench, tmp_path: Path) -> None:
    """Software gives new colours to some older pictures that had none; which ones cannot be known."""
    path, packets = spliced(tmp_path, "h264.ts", hdr)
    found = [each.colours for each in decoded_packets(SOFTWARE, path, packets)]
    assert found[0] == (0, 2, 2, 2)
    assert found[len(TIMES) - 1] != found[0]
    with pytest.raises(EngineUnfit, match="the first pictures state no colours"):
        decoded_packets(bench.decoder, path, packets)


def test_other_parameters_in_the_middle_are_left_to_software(bench: Bench, tmp_path: Path) -> None:
    """New parameters in a packet that is no access point are refused."""
    path, packets = spliced(tmp_path, "h264.ts", wider)
    begins = len(TIMES)
    joined = [*packets[:begins], *packets[begins + 1 :]]
    data = packets[begins].data
    joined[begins] = replace(joined[begins], data=data[: data.index(b"\0\0\1\x65")] + joined[begins].data)
    with pytest.raises(EngineUnfit, match=f"packet {begins} changes the parameters"):
        decoded_packets(bench.decoder, path, joined)


def test_parameters_that_software_does_not_read_are_left_to_it(bench: Bench, tmp_path: Path) -> None:
    """A packet that software cannot parse is refused."""
    path, packets = spliced(tmp_path, "vp8.webm", wider)
    packets[len(TIMES)] = replace(packets[len(TIMES)], data=packets[len(TIMES)].data[:10])
    with pytest.raises(EngineUnfit, match=f"software cannot decode packet {len(TIMES)}"):
        decoded_packets(bench.decoder, path, packets)


def test_pictures_cropped_on_the_left_are_left_to_software(bench: Bench, tmp_path: Path) -> None:
    """PyNvVideoCodec copies from the corner of a surface, even if the picture is cropped there."""
    path, packets = made(tmp_path, options=(("x264-params", f"{GOP}:crop-rect=2,0,0,0"),))
    with pytest.raises(EngineUnfit, match="cropped on the left"):
        decoded_packets(bench.decoder, path, packets)
    path, packets = made(tmp_path, options=(("x264-params", f"{GOP}:crop-rect=0,0,2,2"),))
    assert decoded_packets(bench.decoder, path, packets) == decoded_packets(SOFTWARE, path, packets)


@pytest.mark.parametrize("pictures", [1, 2, 3])
@pytest.mark.parametrize("name", CLIPS)
def test_tiny_ranges_come_whole(bench: Bench, tmp_path: Path, name: str, pictures: int) -> None:
    """A flush returns all pictures of a range, however few, and the session can then be used as a new one."""
    bench.skip_without(name.partition(".")[0])
    path, packets = made(tmp_path, name, times=constant_times(pictures))
    wanted = decoded_packets(SOFTWARE, path, packets)
    assert len(wanted) == pictures
    for _ in range(3):
        assert decoded_packets(bench.decoder, path, packets) == wanted
    assert bench.pool.counts.made == 1


@pytest.mark.parametrize("latency", ["low", "zero"])
@pytest.mark.parametrize("name", ["h264.ts", "vp9.webm", "vp8.webm"])
def test_pictures_in_order_may_come_at_once(bench: Bench, tmp_path: Path, name: str, latency: Latency) -> None:
    """If pictures are not reordered, pictures and times are those of software at every latency."""
    options = (("x264-params", "bframes=0:keyint=8:force-cfr=1:nal-hrd=none"),)
    path, packets = made(tmp_path, name, **({"options": options} if name == "h264.ts" else {}))
    decoder = bench.with_options(latency=latency)
    assert decoded_packets(decoder, path, packets) == decoded_packets(SOFTWARE, path, packets)


@pytest.mark.parametrize("name", ["h264.ts", "hevc.ts"])
def test_reordered_pictures_do_not_come_at_once(bench: Bench, tmp_path: Path, name: str) -> None:
    """Low latency is refused if pictures are shown in another order than they are coded in."""
    with pytest.raises(EngineUnfit, match="latency=zero needs"):
        decoded_packets(bench.with_options(latency="zero"), *made(tmp_path, name))


def test_messages_come_with_their_pictures(bench: Bench, tmp_path: Path) -> None:
    """The encoder's user data (type 5) comes with the first picture if it was requested, and changes no sample."""
    if isinstance(bench.package, FakeNvdec):
        bench.package.sei_messages = ((5, b"x264"),)
    path, packets = made(tmp_path)
    found = decoded_packets(bench.with_options(sei_messages=True), path, packets)
    assert found[0].notes is not None
    assert any(message.kind == 5 and b"x264" in message.payload for message in found[0].notes.sei_messages)
    plain = decoded_packets(bench.decoder, path, packets)
    assert found == plain
    assert {each.notes for each in plain} == {None}


def test_statistics_come_or_are_refused_by_name(bench: Bench, tmp_path: Path) -> None:
    """Drivers from 590 on report how pictures were coded; with older drivers, statistics are refused by name."""
    path, packets = made(tmp_path, "hevc.ts")
    try:
        found = decoded_packets(bench.with_options(statistics=True), path, packets)
    except EngineUnfit as error:
        assert error.message.startswith("statistics: this GPU's driver has no")  # noqa: PT017 - either is right
    else:
        assert all(each.notes and each.notes.statistics and each.notes.statistics.luma_qp for each in found)


def test_tracks_that_need_other_surfaces_share_no_session(bench: Bench, tmp_path: Path) -> None:
    """A decoder has as many surfaces as its first stream needs; a stream that needs more gets a session of its own."""
    tracks = []
    for refs in (1, 6):
        options = (("x264-params", f"ref={refs}"),)
        path = make_clip(tmp_path / f"{refs}.mkv", Clip(times=constant_times(24), options=options))
        tracks.append((path, packets_of(path)))
    for path, packets in tracks * 2:
        assert decoded_packets(bench.decoder, path, packets) == decoded_packets(SOFTWARE, path, packets)
    assert bench.counts == (2, 4)


def test_notes_are_what_the_package_says(tmp_path: Path) -> None:
    """Messages and statistics of every picture arrive with the picture, field by field."""
    bench = fake_bench()
    bench.package.sei_messages = ((5, b"user data"), (137, b"mastering"))
    motion = {"mv0_x": [3, 4], "mv0_y": [5, 6], "mv1_x": [], "mv1_y": []}
    bench.package.statistics = {"qp_luma": [20, 21], "cu_type": [1, 2], **motion}
    found = decoded_packets(bench.with_options(sei_messages=True, statistics=True), *made(tmp_path))
    statistics = DecodeStatistics((20, 21), (1, 2), ((3, 5), (4, 6)), ())
    notes = PictureNotes((SeiMessage(5, b"user data"), SeiMessage(137, b"mastering")), statistics)
    assert [each.notes for each in found] == [notes] * len(TIMES)


def test_a_refused_picture_writes_to_no_memory(tmp_path: Path) -> None:
    """A picture whose notes are refused is not copied from memory that has already been reused."""
    bench, wanted = fake_bench(), key(options=NvdecOptions(statistics=True))
    _, packets = made(tmp_path)
    session = NvdecSession(bench.package, bench.cuda, wanted)
    reader = session.reader(bench.to_host)

    def feed() -> None:
        for number, packet in enumerate(packets):
            session.feed([(packet.data, number)], reader, lambda _: True)

    with pytest.raises(EngineUnfit, match="has no decode statistics"):
        feed()
    gc.collect()  # values that the error keeps alive
    others = np.asarray(bench.memory.acquire(wanted.surface.size_bytes(*SIZE)))
    others[:] = 7
    session._stream.wait()
    assert set(others) == {7}


def key(width: int = SIZE[0], height: int = SIZE[1], options: NvdecOptions = PLAIN) -> SessionKey:
    """Return the streams for which a session may be made."""
    surface = surface_format("yuv420p")
    assert surface is not None
    return SessionKey("h264", "yuv420p", surface, width, height, options)


def test_which_sizes_a_session_serves() -> None:
    """A session serves its own stream and, with room for more, whatever fits, but no other format or options."""
    bench, roomy = fake_bench(), NvdecOptions(largest=WIDER)
    session = NvdecSession(bench.package, bench.cuda, key())
    assert session.serves(key())
    assert not session.serves(key(32, 32))
    large = NvdecSession(bench.package, bench.cuda, key(options=roomy))
    sizes = [SIZE, WIDER, (2, 2), (WIDER[0] + 2, WIDER[1]), (WIDER[0], WIDER[1] + 2)]
    assert [large.serves(key(*size, roomy)) for size in sizes] == [True, True, True, False, False]
    assert not large.serves(key())
    assert not large.serves(replace(key(options=roomy), codec="hevc"))
    assert session_bytes(key(options=roomy)) == session_bytes(key(*WIDER)) > session_bytes(key())


def test_a_size_that_the_package_refuses_is_the_devices_error(bench: Bench, tmp_path: Path) -> None:
    """A session that was not opened for a larger size never switches to one."""
    session = NvdecSession(bench.package, bench.cuda, key())
    session.prime(made(tmp_path)[1][0].data)
    session.turn_to(key())
    with pytest.raises(EngineFailed, match="NVDEC cannot change the size of its pictures"):
        session.turn_to(key(WIDER[0] * 2, WIDER[1] * 2))

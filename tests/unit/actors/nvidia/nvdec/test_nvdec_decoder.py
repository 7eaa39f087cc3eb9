"""NVDEC as a picture decoder, on a device with the peculiarities of the real one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import av
import pytest
from av.packet import Packet
from av.video.frame import VideoFrame

from codecfleet.actors.decode.decoding import SOFTWARE, DecodeTally, OpenTrack, PictureDecoder
from codecfleet.actors.decode.describe import frame_side_data
from codecfleet.actors.decode.picture_hash import PictureHash, picture_hash
from codecfleet.actors.nvidia.convert.unpacking import PictureFetcher, Unpacker
from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.actors.nvidia.cuda.memory import PinnedMemory
from codecfleet.actors.nvidia.nvdec.decoder import NvdecDecoder
from codecfleet.actors.nvidia.nvdec.pool import NvdecPool
from codecfleet.actors.nvidia.nvdec.session import NvdecSession, SessionKey
from codecfleet.errors import DeviceError, DeviceLost, EngineFailed, EngineUnfit
from codecfleet.testing.clips import Clip, constant_times, make_clip
from codecfleet.testing.nvidia.fake_cuda import FakeCudaCore, FakeCudaDriver
from codecfleet.testing.nvidia.fake_nvdec import FakeNvdec

GOP = "keyint=8:min-keyint=8:scenecut=0:bframes=3:b-adapt=0:open-gop=1"
X265 = f"{GOP}:log-level=none:pools=1:frame-threads=1"
HIDING = (("auto-alt-ref", "1"), ("lag-in-frames", "25"), ("b", "200k"), ("deadline", "realtime"), ("cpu-used", "5"))
TIMES = constant_times(26)
CLIPS = {
    "h264.mkv": Clip(times=TIMES, options=(("x264-params", GOP),)),
    "h264-444.mkv": Clip(times=TIMES, options=(("x264-params", GOP),), pix_fmt="yuv444p", width=63, height=49),
    "hevc-10.mkv": Clip(
        times=TIMES, encoder="libx265", options=(("x265-params", X265),), width=64, height=64, pix_fmt="yuv420p10le"
    ),
    "vp9.webm": Clip(times=constant_times(40), encoder="libvpx-vp9", options=HIDING, keyframes=frozenset({0, 20})),
    "vp8.webm": Clip(times=TIMES, encoder="libvpx", keyframes=frozenset({0, 9}), options=(("deadline", "realtime"),)),
}
EditPackets = Callable[[list[tuple[int, Packet]]], list[tuple[int, Packet]]]


@dataclass
class Bench:
    """A decoder and its fake device."""

    driver: FakeCudaDriver = field(default_factory=FakeCudaDriver)
    has_kernel: bool = False
    refusal: str = ""

    def __post_init__(self) -> None:
        self.device = FakeNvdec(self.driver)
        self.cuda = Cuda(self.driver)
        memory = PinnedMemory(self.cuda)
        unpacker = Unpacker(FakeCudaCore, self.cuda) if self.has_kernel else None

        def to_host(key: SessionKey) -> PictureFetcher:
            size = (key.width, key.height)
            return PictureFetcher(self.cuda, memory, unpacker, format_=key.surface, size=size, pix_fmt=key.pix_fmt)

        self.pool = NvdecPool(partial(NvdecSession, self.device, self.cuda), 4)
        self.decoder = NvdecDecoder(self.pool, to_host, lambda _: self.refusal, lambda: self.device.wrong_pictures)


@pytest.fixture(params=[False, True], ids=["host", "kernel"])
def bench(request: pytest.FixtureRequest) -> Bench:
    """Provide a device that splits planes itself, and one that leaves this to the host."""
    return Bench(has_kernel=request.param)


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The clips, made once."""
    folder = tmp_path_factory.mktemp("clips")
    return {name: make_clip(folder / name, clip) for name, clip in CLIPS.items()}


@contextmanager
def opened(path: Path) -> Iterator[tuple[OpenTrack, list[tuple[int, Packet]]]]:
    """Open a clip; yield its track and its numbered packets."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        stream.codec_context.copy_opaque = True
        packets = [(number, packet) for number, packet in enumerate(container.demux(stream)) if packet.size]
        yield OpenTrack(stream, stream.codec_context), packets


def decoded(
    decoder: PictureDecoder[VideoFrame], path: Path, entry: int = 0, edit: EditPackets = lambda packets: packets
) -> Iterator[tuple[int | None, PictureHash]]:
    """Yield (packet, hash) of a clip's pictures from the ``entry``-th keyframe on; ``edit`` changes the packets."""
    with opened(path) as (track, packets):
        keys = [place for place, (_, packet) in enumerate(packets) if packet.is_keyframe]
        for number, picture in decoder.decode(track, iter(edit(packets[keys[entry] :])), DecodeTally()):
            assert picture.pts is not None
            yield number, picture_hash(picture.pts, picture)


def test_everything_is_given_back(bench: Bench, clips: dict[str, Path]) -> None:
    """Closed sessions leave no stream and no memory on the device."""
    for name in CLIPS:
        assert list(decoded(bench.decoder, clips[name]))
    assert bench.driver.streams
    bench.pool.close()
    pinned = bench.driver.calls["cuMemHostAlloc"] - bench.driver.calls.get("cuMemFreeHost", 0)
    assert bench.driver.streams == {}
    assert len(bench.driver.memory) == pinned


def test_packets_share_what_each_of_them_would_take(bench: Bench, clips: dict[str, Path]) -> None:
    """A thread enters the context once for several packets, since each call releases the GIL."""
    list(decoded(bench.decoder, clips["h264.mkv"]))
    entered = bench.driver.calls["cuCtxPushCurrent"]
    pictures = len(list(decoded(bench.decoder, clips["h264.mkv"])))
    assert bench.driver.calls["cuCtxPushCurrent"] - entered <= 2 + pictures // 8
    assert bench.driver.calls["cuCtxPopCurrent"] == bench.driver.calls["cuCtxPushCurrent"]


def test_nothing_is_given_back_that_is_still_written_to(
    bench: Bench, clips: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing waits for unfinished pictures, because their memory may be reused at once."""
    left: list[int] = []
    destroy = bench.driver.cuStreamDestroy

    def counted(stream: int) -> tuple[object, ...]:
        left.append(len(bench.driver.streams[int(stream)]))
        return destroy(stream)

    monkeypatch.setattr(bench.driver, "cuStreamDestroy", counted)

    with pytest.raises(EngineFailed):
        list(decoded(bench.decoder, clips["h264.mkv"], edit=_damaged))
    assert bench.driver.calls["cuMemHostAlloc"] > 0
    assert left == [0]


def test_pictures_outlive_the_next_call(bench: Bench, clips: dict[str, Path]) -> None:
    """A kept picture does not change when the decoder continues, or when its session is closed."""
    with opened(clips["h264.mkv"]) as (track, packets):
        kept = [picture for _, picture in bench.decoder.decode(track, iter(packets), DecodeTally())]
    bench.pool.close()
    found = [picture_hash(picture.pts or 0, picture) for picture in kept]
    assert found == [one for _, one in decoded(SOFTWARE, clips["h264.mkv"])]


@pytest.mark.parametrize("picture", [0, 3, 25])
@pytest.mark.parametrize("name", ["h264.mkv", "vp8.webm"])
def test_a_picture_left_out_is_missed(bench: Bench, clips: dict[str, Path], name: str, picture: int) -> None:
    """However the decoder shifts timestamps, a missing picture is an error before the range ends."""
    # picture 0 is the one that a new session decodes first as a trial
    bench.device.left_out = frozenset({picture + 1})
    with pytest.raises(EngineFailed, match="left out 1 pictures"):
        list(decoded(bench.decoder, clips[name]))


def test_a_picture_of_another_size_is_refused(bench: Bench, clips: dict[str, Path]) -> None:
    """A surface larger than the track's pictures is refused, not cropped."""
    bench.device.spare_bytes = 64
    with pytest.raises(EngineFailed, match="instead of"):
        list(decoded(bench.decoder, clips["h264.mkv"]))


@pytest.mark.parametrize("call", ["begins", "cuStreamSynchronize", "cuMemHostAlloc"])
@pytest.mark.parametrize("after", [0, 1])
def test_a_failed_copy_is_the_devices_error(bench: Bench, clips: dict[str, Path], call: str, after: int) -> None:
    """If the driver fails midway, the range ends with the driver's error."""
    if call == "begins":
        call = "cuLaunchKernel" if bench.has_kernel else "cuMemcpyDtoHAsync"
    bench.driver.faults[call] = 999
    bench.driver.fails_after[call] = after
    with pytest.raises(DeviceLost, match=call):
        list(decoded(bench.decoder, clips["h264.mkv"]))
    assert bench.driver.streams == {}


def test_what_the_device_cannot_is_its_own_reason(bench: Bench, clips: dict[str, Path]) -> None:
    """A refused track costs no session."""
    bench.refusal = "it has no such engine"
    with pytest.raises(EngineUnfit, match="no such engine"):
        list(decoded(bench.decoder, clips["h264.mkv"]))
    assert bench.device.decoders_made == 0


def _without_first(packets: list[tuple[int, Packet]]) -> list[tuple[int, Packet]]:
    return packets[1:]


def _damaged(packets: list[tuple[int, Packet]]) -> list[tuple[int, Packet]]:
    packets[12][1].is_corrupt = True
    return packets


def _untimed(packets: list[tuple[int, Packet]]) -> list[tuple[int, Packet]]:
    packets[4][1].pts = None
    return packets


def _doubled(packets: list[tuple[int, Packet]]) -> list[tuple[int, Packet]]:
    # Both pictures are in the decoder, which returns neither before it has the next packets.
    packets[2][1].pts = packets[1][1].pts
    return packets


@pytest.mark.parametrize(
    ("edit", "kind", "reason"),
    [
        (_without_first, EngineUnfit, "which is not a keyframe"),
        (_damaged, EngineFailed, "packet 12 is marked as damaged"),
        (_untimed, EngineUnfit, "packet 4 has no distinct presentation time"),
        (_doubled, EngineUnfit, "packet 2 has no distinct presentation time"),
    ],
)
def test_packets_in_doubt_are_left_to_software(
    bench: Bench, clips: dict[str, Path], edit: EditPackets, kind: type[DeviceError], reason: str
) -> None:
    """A packet that NVDEC might decode wrongly ends the range and its session, with the reason."""
    with pytest.raises(kind, match=reason):
        list(decoded(bench.decoder, clips["h264.mkv"], edit=edit))
    assert list(decoded(bench.decoder, clips["h264.mkv"])) == list(decoded(SOFTWARE, clips["h264.mkv"]))


def _captioned(packets: list[tuple[int, Packet]]) -> list[tuple[int, Packet]]:
    """Put captions (CTA-708 in an SEI message of ITU-T T.35) before the fourth packet's slices."""
    content = b"\xb5\x00\x31GA94\x03\x41\xff\xfc\x94\x20\xff"
    unit = b"\x06\x04" + bytes([len(content)]) + content + b"\x80"
    number, packet = packets[3]
    again = Packet(len(unit).to_bytes(4, "big") + unit + bytes(packet))
    again.pts, again.dts, again.time_base = packet.pts, packet.dts, packet.time_base
    return [*packets[:3], (number, again), *packets[4:]]


def test_captions_are_never_lost(bench: Bench, clips: dict[str, Path]) -> None:
    """Software's pictures keep captions but NVDEC's pictures lose them, so NVDEC gives up the range at a caption."""
    with opened(clips["h264.mkv"]) as (track, packets):
        pictures = list(SOFTWARE.decode(track, iter(_captioned(packets)), DecodeTally()))
    assert sum("A53_CC" in frame_side_data(picture) for _, picture in pictures) == 1
    with pytest.raises(EngineUnfit, match="packet 3 carries closed captions"):
        list(decoded(bench.decoder, clips["h264.mkv"], edit=_captioned))


def test_a_lost_packet_is_no_silent_loss(bench: Bench, clips: dict[str, Path]) -> None:
    """An empty packet's picture is reported as missing."""

    def cut(packets: list[tuple[int, Packet]]) -> list[tuple[int, Packet]]:
        number, packet = packets[5]
        short = Packet(bytes(packet)[:5])
        short.pts, short.dts, short.time_base = packet.pts, packet.dts, packet.time_base
        return [*packets[:5], (number, short), *packets[6:]]

    with pytest.raises(EngineFailed):
        list(decoded(bench.decoder, clips["h264.mkv"], edit=cut))


def test_times_only_count_where_order_does_not_tell(bench: Bench, clips: dict[str, Path]) -> None:
    """VP9 without any times is decoded, because its pictures come in the order of the packets."""
    with opened(clips["vp9.webm"]) as (track, packets):
        for _, packet in packets:
            packet.pts = None
        numbers = [number for number, _ in bench.decoder.decode(track, iter(packets), DecodeTally())]
    assert numbers == list(range(40))

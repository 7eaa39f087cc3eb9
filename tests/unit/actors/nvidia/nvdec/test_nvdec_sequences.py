"""Tracks whose pictures become others on the way: of another size, with other colours; and what sessions are asked."""

import gc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from codecfleet.actors.decode.decoding import SOFTWARE
from codecfleet.actors.decode.nvdec_options import PLAIN, Latency, NvdecOptions
from codecfleet.actors.media.values import SeiMessage
from codecfleet.actors.nvidia.convert.unpacking import PictureFetcher
from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.actors.nvidia.cuda.memory import PinnedMemory
from codecfleet.actors.nvidia.nvdec.decoder import NvdecDecoder
from codecfleet.actors.nvidia.nvdec.pool import NvdecPool
from codecfleet.actors.nvidia.nvdec.session import NvdecSession, SessionKey, session_bytes
from codecfleet.actors.surfaces.device_frame import DecodeStatistics, PictureNotes
from codecfleet.actors.surfaces.formats import surface_format
from codecfleet.errors import EngineUnfit
from codecfleet.testing.clips import Clip, constant_times, make_clip
from codecfleet.testing.nvidia.fake_cuda import FakeCudaDriver
from codecfleet.testing.nvidia.fake_nvdec import FakeNvdec
from codecfleet.testing.spliced import TrackPacket, decoded_packets, packets_of, splice

GOP = "keyint=8:min-keyint=8:scenecut=0:bframes=2:b-adapt=0:open-gop=0"
X265 = f"{GOP}:repeat-headers=1:log-level=none:pools=1:frame-threads=1"
TIMES = constant_times(12)
PLAIN_CLIPS = {
    "h264.ts": Clip(times=TIMES, options=(("x264-params", GOP),), width=64, height=64),
    "hevc.ts": Clip(times=TIMES, encoder="libx265", options=(("x265-params", X265),), width=64, height=64),
    "vp9.webm": Clip(times=TIMES, encoder="libvpx-vp9", options=(("deadline", "realtime"),), width=64, height=64),
    "vp8.webm": Clip(times=TIMES, encoder="libvpx", options=(("deadline", "realtime"),), width=64, height=64),
    "av1.mkv": Clip(
        times=TIMES, encoder="libsvtav1", options=(("preset", "12"), ("svtav1-params", "lp=1")), width=64, height=64
    ),
}


class Bench:
    """A decoder and the device below it."""

    def __init__(self) -> None:
        self.driver = FakeCudaDriver()
        self.device = FakeNvdec(self.driver)
        self.cuda = Cuda(self.driver)
        self.memory = PinnedMemory(self.cuda)
        self.pool = NvdecPool(partial(NvdecSession, self.device, self.cuda), 4)
        self.decoder = NvdecDecoder(self.pool, self.to_host, lambda _: "", lambda: self.device.wrong_pictures)

    def to_host(self, key: SessionKey) -> PictureFetcher:
        """Make a reader that brings pictures to the host."""
        size = (key.width, key.height)
        return PictureFetcher(self.cuda, self.memory, None, format_=key.surface, size=size, pix_fmt=key.pix_fmt)


@pytest.fixture
def bench() -> Bench:
    """A device of one's own."""
    return Bench()


def wider(clip: Clip) -> Clip:
    """Return a clip of another size, not a whole number of blocks."""
    return replace(clip, width=96, height=72)


def same(clip: Clip) -> Clip:
    """Return the same clip."""
    return clip


def spliced(folder: Path, name: str, *changes: Callable[[Clip], Clip]) -> tuple[Path, list[TrackPacket]]:
    """Return a clip's file, and its packets with those of changed ones after it."""
    plain = PLAIN_CLIPS[name]
    return splice(folder, Path(name).suffix, [plain, *(change(plain) for change in changes)])


@pytest.mark.parametrize("name", PLAIN_CLIPS)
def test_a_size_that_changes_is_followed(bench: Bench, tmp_path: Path, name: str) -> None:
    """Pictures of each size come as software gives them, on a warm session for each."""
    path, packets = spliced(tmp_path, name, wider, same, wider)
    wanted = decoded_packets(SOFTWARE, path, packets)
    assert len(wanted) == 4 * len(TIMES)
    assert decoded_packets(bench.decoder, path, packets) == wanted
    assert (bench.pool.counts.made, bench.pool.counts.in_use) == (2, 4)


@pytest.mark.parametrize("name", PLAIN_CLIPS)
def test_one_session_may_be_turned_to_every_size(bench: Bench, tmp_path: Path, name: str) -> None:
    """A session that was opened for the largest size serves all of them, and the next range as well."""
    path, packets = spliced(tmp_path, name, wider, same)
    decoder = replace(bench.decoder, options=NvdecOptions(largest=(96, 72)))
    wanted = decoded_packets(SOFTWARE, path, packets)
    assert decoded_packets(decoder, path, packets) == wanted
    assert decoded_packets(decoder, path, packets) == wanted
    assert (bench.pool.counts.made, bench.pool.counts.in_use) == (1, 2)
    assert bench.device.options[0]["most"] == (96, 72)


def test_a_session_can_always_be_turned_back(bench: Bench, tmp_path: Path) -> None:
    """Another sequence of its first size is another session's: the first would refuse its key."""

    def wide(clip: Clip) -> Clip:
        return wider(sdr(clip))

    path, packets = spliced(tmp_path, "h264.ts", sdr, wide, hdr)
    packets = packets[len(TIMES) :]
    decoder = replace(bench.decoder, options=NvdecOptions(largest=(96, 72)))
    wanted = decoded_packets(SOFTWARE, path, packets)
    for _ in range(2):
        assert decoded_packets(decoder, path, packets) == wanted
    assert (bench.pool.counts.made, bench.pool.counts.in_use) == (2, 4)


def test_a_size_beyond_the_largest_is_another_sessions(bench: Bench, tmp_path: Path) -> None:
    """What a session was not opened for, another one decodes."""
    path, packets = spliced(tmp_path, "h264.ts", wider)
    decoder = replace(bench.decoder, options=NvdecOptions(largest=(96, 64)))
    assert decoded_packets(decoder, path, packets) == decoded_packets(SOFTWARE, path, packets)
    assert bench.pool.counts.made == 2


def test_colours_that_change_are_followed(bench: Bench, tmp_path: Path) -> None:
    """Pictures are dressed in the colours that hold for them, whose sequences have a session each."""
    path, packets = spliced(tmp_path, "h264.ts", sdr, hdr, sdr)
    packets = packets[len(TIMES) :]
    wanted = decoded_packets(SOFTWARE, path, packets)
    assert [each.colours for each in wanted] == [
        *[(1, 1, 1, 1)] * len(TIMES),
        *[(1, 9, 9, 16)] * len(TIMES),
        *[(1, 1, 1, 1)] * len(TIMES),
    ]
    assert decoded_packets(bench.decoder, path, packets) == wanted
    assert bench.pool.counts.made == 2


def sdr(clip: Clip) -> Clip:
    """Return a clip in HD's colours."""
    return coloured(clip, "colorprim=bt709:transfer=bt709:colormatrix=bt709")


def hdr(clip: Clip) -> Clip:
    """Return a clip in other colours."""
    return coloured(clip, "colorprim=bt2020:transfer=smpte2084:colormatrix=bt2020nc")


def coloured(clip: Clip, params: str) -> Clip:
    """Return a clip that states its colours."""
    return replace(clip, options=(("x264-params", f"{GOP}:{params}"),))


def test_colours_that_blur_are_left_to_software(bench: Bench, tmp_path: Path) -> None:
    """Software gives new colours to older pictures that had none; to which, cannot be known."""
    path, packets = spliced(tmp_path, "h264.ts", hdr)
    told = [each.colours for each in decoded_packets(SOFTWARE, path, packets)]
    assert told[0] == (0, 2, 2, 2)
    assert told[len(TIMES) - 1] != told[0]
    with pytest.raises(EngineUnfit, match="colours are stated from some packet on"):
        decoded_packets(bench.decoder, path, packets)


def test_other_parameters_in_the_middle_are_left_to_software(bench: Bench, tmp_path: Path) -> None:
    """New parameters in a packet that begins nothing are refused."""
    path, packets = spliced(tmp_path, "h264.ts", wider)
    begins = len(TIMES)
    joined = [*packets[:begins], *packets[begins + 1 :]]
    data = packets[begins].data
    joined[begins] = replace(joined[begins], data=data[: data.index(b"\0\0\1\x65")] + joined[begins].data)
    with pytest.raises(EngineUnfit, match=f"packet {begins} states other parameters"):
        decoded_packets(bench.decoder, path, joined)


def test_parameters_that_software_does_not_read_are_left_to_it(bench: Bench, tmp_path: Path) -> None:
    """What software makes nothing of is not NVDEC's to guess."""
    path, packets = spliced(tmp_path, "vp8.webm", wider)
    packets[len(TIMES)] = replace(packets[len(TIMES)], data=packets[len(TIMES)].data[:10])
    with pytest.raises(EngineUnfit, match=f"software makes nothing .* packet {len(TIMES)}"):
        decoded_packets(bench.decoder, path, packets)


def test_pictures_cropped_on_the_left_are_left_to_software(bench: Bench, tmp_path: Path) -> None:
    """PyNvVideoCodec copies from a surface's corner, whatever is cropped there."""
    clip = replace(PLAIN_CLIPS["h264.ts"], options=(("x264-params", f"{GOP}:crop-rect=2,0,0,0"),))
    path = make_clip(tmp_path / "cropped.ts", clip)
    with pytest.raises(EngineUnfit, match="cropped on the left"):
        decoded_packets(bench.decoder, path, packets_of(path))
    right = replace(clip, options=(("x264-params", f"{GOP}:crop-rect=0,0,2,2"),))
    path = make_clip(tmp_path / "narrow.ts", right)
    assert decoded_packets(bench.decoder, path, packets_of(path)) == decoded_packets(SOFTWARE, path, packets_of(path))


@pytest.mark.parametrize("latency", ["low", "zero"])
@pytest.mark.parametrize("name", ["h264.mkv", "vp9.webm", "vp8.webm"])
def test_pictures_in_order_may_come_at_once(bench: Bench, tmp_path: Path, name: str, latency: Latency) -> None:
    """Without reordering, pictures and times are software's in every latency."""
    params = "bframes=0:keyint=8:force-cfr=1:nal-hrd=none"
    plain = PLAIN_CLIPS.get(name) or Clip(times=TIMES, options=(("x264-params", params),))
    path = make_clip(tmp_path / name, plain)
    packets = packets_of(path)
    assert decoded_packets(
        replace(bench.decoder, options=NvdecOptions(latency=latency)), path, packets
    ) == decoded_packets(SOFTWARE, path, packets)
    assert bench.device.options[0]["latency"] == {"low": 1, "zero": 2}[latency]


@pytest.mark.parametrize("name", ["h264.ts", "hevc.ts"])
def test_reordered_pictures_do_not_come_at_once(bench: Bench, tmp_path: Path, name: str) -> None:
    """Low latency is refused where pictures are shown in another order than they are coded in."""
    path = make_clip(tmp_path / name, PLAIN_CLIPS[name])
    with pytest.raises(EngineUnfit, match="latency zero is for pictures that are shown as they are coded"):
        decoded_packets(replace(bench.decoder, options=NvdecOptions(latency="zero")), path, packets_of(path))


STATISTICS = {"qp_luma": [20, 21], "cu_type": [1, 2], "mv0_x": [3, 4], "mv0_y": [5, 6], "mv1_x": [], "mv1_y": []}


def test_notes_come_with_their_pictures(bench: Bench, tmp_path: Path) -> None:
    """Who asks for messages and statistics has them with each picture, and the pictures are the same."""
    bench.device.sei_messages = ((5, b"user data"), (137, b"mastering"))
    bench.device.statistics = STATISTICS
    path = make_clip(tmp_path / "h264.ts", PLAIN_CLIPS["h264.ts"])
    options = NvdecOptions(sei_messages=True, statistics=True)
    found = decoded_packets(replace(bench.decoder, options=options), path, packets_of(path))
    statistics = DecodeStatistics((20, 21), (1, 2), ((3, 5), (4, 6)), ())
    notes = PictureNotes((SeiMessage(5, b"user data"), SeiMessage(137, b"mastering")), statistics)
    assert [each.notes for each in found] == [notes] * len(TIMES)
    plain = decoded_packets(bench.decoder, path, packets_of(path))
    assert found == plain
    assert {each.notes for each in plain} == {None}


def test_statistics_that_the_driver_lacks_are_refused(bench: Bench, tmp_path: Path) -> None:
    """An older driver gives none, and the package only warns: requesting them is an error."""
    path = make_clip(tmp_path / "h264.ts", PLAIN_CLIPS["h264.ts"])
    with pytest.raises(EngineUnfit, match="statistics: this GPU's driver gives no decode statistics"):
        decoded_packets(replace(bench.decoder, options=NvdecOptions(statistics=True)), path, packets_of(path))


def test_a_refused_picture_writes_to_no_memory(bench: Bench, tmp_path: Path) -> None:
    """A picture whose notes are refused is not copied to memory that is reused by then."""
    packets = packets_of(make_clip(tmp_path / "h264.ts", PLAIN_CLIPS["h264.ts"]))
    session = NvdecSession(bench.device, bench.cuda, key(options=NvdecOptions(statistics=True)))
    reader = session.reader(bench.to_host)

    def feed() -> None:
        for number, packet in enumerate(packets):
            session.feed(packet.data, number, reader)

    with pytest.raises(EngineUnfit, match="gives no decode statistics"):
        feed()
    gc.collect()  # what the error holds
    others = np.asarray(bench.memory.acquire(key().surface.size_bytes(64, 64)))
    others[:] = 7
    session._stream.wait()
    assert set(others) == {7}


def key(width: int = 64, height: int = 64, options: NvdecOptions = PLAIN) -> SessionKey:
    """Return what a session may be made for."""
    surface = surface_format("yuv420p")
    assert surface is not None
    return SessionKey("h264", "yuv420p", surface, width, height, options)


def test_which_sizes_a_session_serves(bench: Bench) -> None:
    """Its own, and with room for more whatever fits; never another format or other options."""
    session = NvdecSession(bench.device, bench.cuda, key())
    assert session.serves(key())
    assert not session.serves(key(32, 32))
    roomy = NvdecOptions(largest=(96, 72))
    large = NvdecSession(bench.device, bench.cuda, key(options=roomy))
    sizes = [(64, 64), (96, 72), (2, 2), (98, 72), (96, 74)]
    assert [large.serves(key(*size, roomy)) for size in sizes] == [True, True, True, False, False]
    assert not large.serves(key())
    assert not large.serves(replace(key(options=roomy), codec="hevc"))
    assert session_bytes(key(options=roomy)) == session_bytes(key(96, 72)) > session_bytes(key())


def test_a_size_that_the_package_refuses_is_the_devices_error(bench: Bench, tmp_path: Path) -> None:
    """What the package raises when a session is turned is mapped as everything else."""
    session = NvdecSession(bench.device, bench.cuda, key())
    session.prime(packets_of(make_clip(tmp_path / "h264.ts", PLAIN_CLIPS["h264.ts"]))[0].data)
    session.turn_to(key())
    with pytest.raises(EngineUnfit, match=r"NVDEC takes no other size.*801"):
        session.turn_to(key(128, 128))


def test_tracks_that_need_other_surfaces_share_no_session(bench: Bench, tmp_path: Path) -> None:
    """A decoder has as many surfaces as its first stream needs; one of the same size that needs more gets its own."""
    few, many = (
        make_clip(tmp_path / f"{refs}.mkv", Clip(times=constant_times(24), options=(("x264-params", f"ref={refs}"),)))
        for refs in (1, 6)
    )
    for path in (few, many, few, many):
        packets = packets_of(path)
        assert decoded_packets(bench.decoder, path, packets) == decoded_packets(SOFTWARE, path, packets)
    assert (bench.pool.counts.made, bench.pool.counts.in_use) == (2, 4)

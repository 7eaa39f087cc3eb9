"""Every encoder session: software, NVENC on the fake package, and NVENC on a GPU or the driver simulator."""

from collections.abc import Callable
from fractions import Fraction

import av
import numpy as np
import pytest
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from codecfleet.actors.bitstream.sei import messages_of
from codecfleet.actors.encode.session import EncodedPacket, EncoderSession
from codecfleet.actors.encode.settings import Codec, RateChange
from codecfleet.actors.encode.software import SoftwareEncoder
from codecfleet.actors.media.values import Colour, SeiMessage, VideoFormat
from codecfleet.actors.nvidia.nvenc.device import NvencDevice
from codecfleet.actors.nvidia.nvenc.session import NvencSession
from codecfleet.actors.settle.nvenc import nvenc_request
from codecfleet.actors.settle.request import settle
from codecfleet.actors.settle.software import software_request
from codecfleet.errors import EncoderFailed, EngineUnfit, Unsupported
from codecfleet.testing.clips import picture
from codecfleet.testing.nvidia.fake_nvenc import FakeNvenc

from .gpus import visible_gpu

Open = Callable[[], EncoderSession[VideoFrame]]

WIDTH, HEIGHT = 192, 128
TICK = Fraction(1, 90_000)
TIMES = [0, 3003, 6006, 6007, 12_012, 15_000, 18_018, 90_000, 93_003, 96_006, 99_009, 102_012]
NVENC_CASES = [
    *((codec, pix_fmt) for codec in Codec if codec is not Codec.VP9 for pix_fmt in ("yuv420p", "yuv420p10le")),
    (Codec.HEVC, "yuv444p"),
]
CASES = [
    *(("software", codec, "yuv420p") for codec in Codec),
    *((engine, *each) for engine in ("fake-nvenc", "nvenc") for each in NVENC_CASES),
]


@pytest.fixture(params=CASES, ids=lambda case: "-".join(map(str, case)))
def case(request: pytest.FixtureRequest) -> tuple[str, Codec, str]:
    """An engine, a codec and a pixel format."""
    found: tuple[str, Codec, str] = request.param
    return found


@pytest.fixture
def open_session(case: tuple[str, Codec, str]) -> Open:
    """Opens sessions of one engine with one set of settings."""
    engine, codec, pix_fmt = case
    shape = VideoFormat(WIDTH, HEIGHT, pix_fmt, Fraction(30), colour=Colour(1, 1, 1, 1, 1))
    if engine == "software":
        soft = settle(software_request(codec, preset=2), shape, TICK)
        return lambda: SoftwareEncoder(soft)
    device = nvenc_device(engine)
    try:
        hard = settle(nvenc_request(codec), shape, TICK, device.capabilities(codec))
    except EngineUnfit as error:
        pytest.skip(error.message)
    return lambda: NvencSession(device, hard)


def nvenc_device(engine: str) -> NvencDevice:
    """Return NVENC of the fake, or of the GPU that this process sees."""
    if engine == "fake-nvenc":
        return NvencDevice(FakeNvenc())
    _, package = visible_gpu()
    return NvencDevice(package)


def frames_of(pix_fmt: str, times: list[int]) -> list[VideoFrame]:
    """Return pictures of moving bars at these times."""
    frames = []
    for number, ticks in enumerate(times):
        frame = picture(number, WIDTH, HEIGHT).reformat(format=pix_fmt)
        frame.pts, frame.time_base = ticks, TICK
        frames.append(frame)
    return frames


def luma_of(frame: VideoFrame) -> NDArray[np.int64]:
    """Return the luma of a frame in 8 bits."""
    wide = frame.format.components[0].bits > 8
    rows = np.frombuffer(memoryview(frame.planes[0]), dtype="<u2" if wide else "u1").reshape(HEIGHT, -1)[:, :WIDTH]
    return rows.astype(np.int64) >> (2 if wide else 0)


def run(session: EncoderSession[VideoFrame], frames: list[VideoFrame]) -> list[EncodedPacket]:
    """Encode all frames."""
    return [packet for frame in frames for packet in session.encode(frame)] + session.finish()


@pytest.mark.parametrize("count", [1, 2, len(TIMES)])
def test_each_picture_comes_out_once_at_its_own_time(
    open_session: Open, case: tuple[str, Codec, str], count: int
) -> None:
    """However short the segment and uneven the times, each picture gives one packet with exactly its time."""
    with open_session() as session:
        packets = run(session, frames_of(case[2], TIMES[:count]))
    assert sorted(packet.pts_ticks for packet in packets) == TIMES[:count]
    assert packets[0].is_keyframe
    assert packets[0].pts_ticks == 0


def test_the_same_pictures_give_the_same_bytes(open_session: Open, case: tuple[str, Codec, str]) -> None:
    """A session begins from nothing: earlier sessions change neither packets nor parameter sets."""
    frames = frames_of(case[2], TIMES)
    with open_session() as session:
        wanted = run(session, frames), session.extradata, session.reorder_frames
    with open_session() as session:
        run(session, frames_of(case[2], TIMES[:5]))
    with open_session() as session:
        assert session.extradata == wanted[1]
        assert (run(session, frames_of(case[2], TIMES)), session.extradata, session.reorder_frames) == wanted


def test_the_packets_decode_to_the_pictures(open_session: Open, case: tuple[str, Codec, str]) -> None:
    """With the parameter sets out of band, a decoder returns every picture in order, similar to the original."""
    frames = frames_of(case[2], TIMES)
    wanted = [luma_of(frame) for frame in frames]
    with open_session() as session:
        packets, extradata = run(session, frames), session.extradata
    codec = case[1]
    decoder = av.CodecContext.create({"av1": "libdav1d"}.get(codec.value, codec.value), "r")
    decoder.extradata = extradata
    found = []
    for entry in packets:
        packet = av.Packet(entry.payload)
        packet.pts, packet.time_base = entry.pts_ticks, TICK
        found += decoder.decode(packet)
    found += decoder.decode(None)
    assert [frame.pts for frame in found] == TIMES
    for frame, luma in zip(found, wanted, strict=True):
        assert np.abs(luma_of(frame) - luma).mean() < 12


def test_the_reorder_bound_holds(open_session: Open, case: tuple[str, Codec, str]) -> None:
    """No picture is coded later than the bound allows, so decoding times can be derived from the bound."""
    with open_session() as session:
        order = [packet.pts_ticks for packet in run(session, frames_of(case[2], TIMES))]
        depth = session.reorder_frames
    assert all(sorted(order)[place - depth] <= order[place] for place in range(depth, len(order)))


def test_a_keyframe_comes_where_it_is_asked_for(open_session: Open, case: tuple[str, Codec, str]) -> None:
    """A decoder can begin at the requested keyframe, and every picture still gives one packet."""
    frames = frames_of(case[2], TIMES)
    with open_session() as session:
        packets = [
            packet for number, frame in enumerate(frames) for packet in session.encode(frame, keyframe=number == 7)
        ]
        packets += session.finish()
        extradata = session.extradata
    assert [packet.pts_ticks for packet in packets if packet.is_keyframe] == [TIMES[0], TIMES[7]]
    place = next(number for number, packet in enumerate(packets) if packet.pts_ticks == TIMES[7])
    assert {packet.pts_ticks for packet in packets[place:]} == set(TIMES[7:])
    decoder = av.CodecContext.create({"av1": "libdav1d"}.get(case[1].value, case[1].value), "r")
    decoder.extradata = extradata
    found = [frame for packet in packets[place:] for frame in decoder.decode(av.Packet(packet.payload))]
    assert len(found + decoder.decode(None)) == len(TIMES[7:])


def test_messages_are_written_or_refused(open_session: Open, case: tuple[str, Codec, str]) -> None:
    """A message is in the packet of its picture, byte for byte; VP9 has no place for messages, so they are refused."""
    frames = frames_of(case[2], TIMES[:4])
    message = SeiMessage(5, b"0123456789abcdef\0\0\0\1" + b"long" * 100)
    with open_session() as session:
        packets = session.encode(frames[0])
        if case[1] is Codec.VP9:
            with pytest.raises(Unsupported, match=f"{session.name} does not write SEI messages"):
                session.encode(frames[1], sei_messages=[message])
            return
        packets += session.encode(frames[1], sei_messages=[message])
        packets += [packet for frame in frames[2:] for packet in session.encode(frame)] + session.finish()
    if case[0] != "fake-nvenc":  # the fake accepts messages and drops them
        found = {packet.pts_ticks: list(messages_of(case[1], packet.payload)) for packet in packets}
        assert [ticks for ticks, messages in found.items() if message in messages] == [TIMES[1]]


def test_new_rates_are_taken_or_refused(open_session: Open, case: tuple[str, Codec, str]) -> None:
    """NVENC accepts a new frame rate; software names what it cannot change, and continues."""
    frames = frames_of(case[2], TIMES[:2])
    with open_session() as session:
        session.encode(frames[0])
        if case[0] != "software":
            session.reconfigure(RateChange(fps=50))
        else:
            with pytest.raises(Unsupported, match=f"{session.name} cannot change"):
                session.reconfigure(RateChange(fps=50))
        session.encode(frames[1])
        assert session.finish()


def test_a_session_encodes_once(open_session: Open, case: tuple[str, Codec, str]) -> None:
    """After ``finish`` a session accepts no picture; after ``close`` it does nothing. Closing twice is no error."""
    frames = frames_of(case[2], TIMES[:2])
    session = open_session()
    run(session, frames[:1])
    with pytest.raises(EncoderFailed, match="finished"):
        session.encode(frames[1])
    with pytest.raises(EncoderFailed, match="finished"):
        session.finish()
    session.close()
    session.close()
    with pytest.raises(EncoderFailed, match="closed"):
        session.encode(frames[1])


def test_nothing_in_gives_nothing_out(open_session: Open) -> None:
    """A segment without pictures is not an error."""
    with open_session() as session:
        assert session.finish() == []


def test_pictures_that_do_not_fit_are_refused(open_session: Open, case: tuple[str, Codec, str]) -> None:
    """Another size, another time base, or a time that does not increase is refused, not repaired."""
    good, again = frames_of(case[2], [5, 5])
    small = picture(0, 64, 48).reformat(format=case[2])
    small.pts, small.time_base = 9, TICK
    other_tick = picture(0, WIDTH, HEIGHT).reformat(format=case[2])
    other_tick.pts, other_tick.time_base = 9, Fraction(1, 25)
    with open_session() as session:
        session.encode(good)
        for frame in (again, small, other_tick):
            with pytest.raises(EncoderFailed):
                session.encode(frame)
        assert [packet.pts_ticks for packet in session.finish()] == [5]

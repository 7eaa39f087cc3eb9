"""``codecfleet.Encoder``: pictures in, packets out, on both engines."""

import asyncio
import gc
import pickle
import threading
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray

import codecfleet
from codecfleet import EncodeFrame, NvdecOptions, Packet, RateChange, SeiMessage
from codecfleet.errors import CodecfleetError, EncoderFailed, EngineFailed, EngineUnfit, Unsupported, UsageError
from codecfleet.testing.clips import picture
from codecfleet.testing.nvidia.fake_device import FakeDevice

WIDTH, HEIGHT, COUNT = 160, 96, 40
LIVE = (("tune", "zerolatency"),)
ENGINES = [("software", codec) for codec in ("h264", "hevc", "av1", "vp9")]
ENGINES += [("nvenc", codec) for codec in ("h264", "hevc", "av1")]


def rgb(number: int) -> NDArray[np.uint8]:
    """Return moving bars."""
    return np.asarray(picture(number, WIDTH, HEIGHT).to_ndarray(format="rgb24"))


def noise(number: int) -> NDArray[np.uint8]:
    """Return pictures that need many bits."""
    return np.random.default_rng(number).integers(0, 64, (HEIGHT, WIDTH, 3), dtype=np.uint8)


def encoder(codec: str = "h264", **options: Any) -> codecfleet.Encoder:
    """Open an encoder over a device that needs no GPU."""
    return codecfleet.Encoder(codec, **({"fps": 25, "preset": 2, "gpu": FakeDevice().gpu} | options))


def encoded(session: codecfleet.Encoder, count: int = COUNT, of: Callable[[int], Any] = rgb) -> list[Packet]:
    """Encode pictures to the end."""
    with session:
        return [packet for number in range(count) for packet in session.encode(of(number))] + session.finish()


@pytest.mark.parametrize(("engine", "codec"), ENGINES)
def test_each_picture_gives_one_packet_at_its_time(engine: str, codec: str) -> None:
    """Presentation times are the pictures'; decoding times increase and are never later; the stream decodes alone."""
    session = encoder(codec, encoder=engine, bitrate_bps=300_000)
    packets = encoded(session)
    assert sorted(packet.pts or 0 for packet in packets) == list(range(COUNT))
    assert all((one.dts or 0) < (other.dts or 0) for one, other in pairwise(packets))
    assert all((packet.dts or 0) <= (packet.pts or 0) for packet in packets)
    assert {(packet.time_base, packet.duration) for packet in packets} == {(Fraction(1, 25), 1)}
    with codecfleet.Decoder(codec, decoder="software") as decoder:
        frames = [frame for packet in packets for frame in decoder.decode(packet)] + decoder.flush()
    assert [(frame.ticks, frame.width, frame.height) for frame in frames] == [
        (number, WIDTH, HEIGHT) for number in range(COUNT)
    ]
    luma = picture(9, WIDTH, HEIGHT).reformat(format="gray").to_ndarray()
    assert abs(frames[9].planes[0].astype(int) * 255 / 219 - 18 - luma).mean() < 16  # type: ignore[union-attr]


@pytest.mark.parametrize("engine", ["software", "nvenc"])
def test_an_idr_picture_comes_where_it_is_forced(engine: str) -> None:
    """With ``force_idr`` or ``keyframe``, a receiver that begins there gets every later frame."""
    with encoder(encoder=engine, bitrate_bps=300_000) as session:
        packets = []
        for number in range(20):
            if number == 7:
                session.force_idr()
            packets += session.encode(rgb(number), keyframe=number == 12)
        packets += session.finish()
    assert [packet.pts for packet in packets if packet.key] == [0, 7, 12]
    late = packets[next(place for place, packet in enumerate(packets) if packet.pts == 7) :]
    with codecfleet.Decoder("h264", decoder="software") as decoder:
        frames = [frame for packet in late for frame in decoder.decode(packet)] + decoder.flush()
    assert [frame.ticks for frame in frames] == list(range(7, 20))


def test_an_idr_picture_is_not_lost_with_a_picture_that_is_refused() -> None:
    """If the encoder refuses the picture after ``force_idr``, the next one is the IDR picture."""
    with encoder("vp9", encoder="software", quality=30) as session:
        packets = session.encode(rgb(0)) + session.encode(rgb(1))
        session.force_idr()
        with pytest.raises(Unsupported, match="SEI"):
            session.encode(rgb(2), sei_messages=[SeiMessage(5, b"text")])
        packets += session.encode(rgb(3)) + session.encode(rgb(4)) + session.finish()
    assert [packet.key for packet in packets] == [True, False, True, False]


def test_x264_follows_a_new_bitrate() -> None:
    """A constant rate that falls to a fifth and rises again is kept within a fifth after one buffer."""
    with encoder(bitrate_bps=1_000_000, bufsize_bits=250_000, maxrate_bps=1_000_000, encoder_options=LIVE) as session:
        sizes = []
        for number in range(150):
            if number in (50, 100):
                session.reconfigure(RateChange(bitrate=200_000 if number == 50 else 800_000, vbvbufsize=50_000))
            sizes += [packet.bsl for packet in session.encode(noise(number))]
        assert session.finish() == []
    rates = [8 * sum(sizes[begin + 20 : begin + 50]) * 25 / 30 for begin in (0, 50, 100)]
    for found, wanted in zip(rates, (1_000_000, 200_000, 800_000), strict=True):
        assert abs(found - wanted) < wanted / 5


def test_x264_follows_a_new_peak_and_a_new_quality() -> None:
    """With a new peak a variable rate falls, and with a new quality pictures become coarser."""
    for options, change in (
        ({"bitrate_bps": 400_000, "maxrate_bps": 1_500_000, "bufsize_bits": 100_000}, RateChange(maxbitrate=400_000)),
        ({"quality": 18}, RateChange(cq=45)),
    ):
        with encoder(encoder_options=LIVE, **options) as session:
            sizes = []
            for number in range(60):
                if number == 30:
                    session.reconfigure(change)
                sizes += [packet.bsl for packet in session.encode(noise(number))]
            sizes += [packet.bsl for packet in session.finish()]
        assert sum(sizes[30:]) < sum(sizes[:30])


REFUSED: list[tuple[str, dict[str, Any], RateChange, str]] = [
    ("h264", {"bitrate_bps": 300_000}, RateChange(rc="vbr"), "cannot change rc"),
    ("h264", {"bitrate_bps": 300_000}, RateChange(fps=50, vbvinit=1), "cannot change vbvinit, fps"),
    ("h264", {"bitrate_bps": 300_000}, RateChange(cq=30), "no quality to change"),
    ("h264", {"bitrate_bps": 300_000}, RateChange(maxbitrate=900_000), "has no peak"),
    ("h264", {"bitrate_bps": 300_000}, RateChange(bitrate=5), "cannot use bitrate=5"),
    ("h264", {"quality": 30}, RateChange(bitrate=300_000), "has no bitrate"),
    ("h264", {"quality": 30}, RateChange(maxbitrate=300_000), "opened with a buffer"),
    (
        "h264",
        {"bitrate_bps": 300_000, "maxrate_bps": 600_000, "bufsize_bits": 600_000},
        RateChange(bitrate=200_000),
        "only if the bitrate is constant",
    ),
    (
        "h264",
        {"bitrate_bps": 300_000, "maxrate_bps": 600_000, "bufsize_bits": 600_000},
        RateChange(maxbitrate=200_000),
        "below libx264's average",
    ),
    *(
        (codec, {"quality": 40}, RateChange(bitrate=200_000), "cannot change its rates")
        for codec in ("hevc", "av1", "vp9")
    ),
]


@pytest.mark.parametrize(("codec", "options", "change", "reason"), REFUSED, ids=lambda each: str(each)[:20])
def test_what_software_cannot_change_is_refused(
    codec: str, options: dict[str, Any], change: RateChange, reason: str
) -> None:
    """A change that software cannot make raises a typed error with advice, and the session keeps its rates."""
    with encoder(codec, **options) as session:
        packets = session.encode(rgb(0))
        with pytest.raises(Unsupported, match=reason) as error:
            session.reconfigure(change)
        assert error.value.next_step
        packets += session.encode(rgb(1)) + session.finish()
    assert len(packets) == 2


def test_nvenc_takes_all_of_the_guides_fields() -> None:
    """All eight fields of Reconfigure reach the package; a change before the first picture applies to it."""
    device = FakeDevice()
    change = RateChange(
        rc="cbr", multipass="qres", bitrate=1_000_000, vbvbufsize=500_000, vbvinit=250_000, fps=Fraction(30000, 1001)
    )
    with encoder(encoder="nvenc", gpu=device.gpu, bitrate_bps=4_000_000) as session:
        session.reconfigure(RateChange(bitrate=3_000_000, maxbitrate=5_000_000))
        packets = session.encode(rgb(0))
        session.reconfigure(change)
        with pytest.raises(Unsupported, match="constqp needs constqp"):
            session.reconfigure(RateChange(rc="constqp"))
        assert len(packets + session.encode(rgb(1)) + session.finish()) == 2
    first, second = device.encoder.reconfigured
    assert (first.averageBitrate, first.maxBitRate) == (3_000_000, 5_000_000)
    assert (second.rateControlMode.name, second.multiPass.name) == ("CBR", "QUARTER_RESOLUTION")
    assert (second.averageBitrate, second.maxBitRate) == (1_000_000, 1_000_000)
    assert (second.vbvBufferSize, second.vbvInitialDelay) == (500_000, 250_000)
    assert (second.frameRateNum, second.frameRateDen) == (30000, 1001)


@pytest.mark.parametrize("codec", ["h264", "hevc", "av1"])
def test_messages_come_back_with_their_frame(codec: str) -> None:
    """Messages that software writes with a picture come with the same frame when decoded."""
    message = SeiMessage(5, b"0123456789abcdef\0\0\0\1" + b"long" * 100)
    with encoder(codec, quality=40) as session:
        packets = []
        for number in range(12):
            packets += session.encode(rgb(number), sei_messages=[message] if number == 7 else ())
        packets += session.finish()
    with codecfleet.Decoder(codec, decoder="software", nvdec=NvdecOptions(sei_messages=True)) as decoder:
        frames = [frame for packet in packets for frame in decoder.decode(packet)] + decoder.flush()
    assert [frame.index for frame in frames if frame.notes and message in frame.notes.sei_messages] == [7]


def test_pictures_may_have_times_of_their_own() -> None:
    """With a time base, times come exactly from ``time_s``, an EncodeFrame or the frame itself."""
    timed = picture(3, WIDTH, HEIGHT)
    timed.pts, timed.time_base = 300, Fraction(1, 1000)
    session = encoder(time_base=Fraction(1, 1000), encoder_options=LIVE)
    with session:
        packets = session.encode(picture(0, WIDTH, HEIGHT), time_s=Fraction(1, 10))
        packets += session.encode(EncodeFrame(picture(1, WIDTH, HEIGHT), time_s=Fraction(3, 20)))
        packets += session.encode((picture(2, WIDTH, HEIGHT), Fraction(1, 5)))
        packets += session.encode(timed) + session.finish()
    assert [packet.pts for packet in packets] == [100, 150, 200, 300]
    assert {packet.duration for packet in packets} == {40}


def test_headers_are_repeated_unless_they_are_not_wanted() -> None:
    """Each keyframe begins with the parameter sets; otherwise a muxer takes them from ``extradata``."""
    with_headers = encoded(encoder(quality=30), 3)[0].data
    session = encoder(quality=30, repeat_headers=False)
    with session:
        packets = session.encode(rgb(0)) + session.finish()
        assert session.extradata
    assert with_headers[4] & 0x1F == 7
    assert packets[0].data[4] & 0x1F != 7


def test_packets_go_into_a_file(tmp_path: Path) -> None:
    """PyAV muxes the packets of ``to_av``, and every frame is in the file at its time."""
    packets = encoded(encoder(quality=30))
    with av.open(str(tmp_path / "made.ts"), "w") as container:
        stream = container.add_stream("h264", rate=25)
        for packet in packets:
            native = packet.to_av()
            native.stream = stream
            container.mux(native)
    with av.open(str(tmp_path / "made.ts")) as container:
        times = [frame.pts for frame in container.decode(video=0)]
    assert [(ticks or 0) - (times[0] or 0) for ticks in times] == [3600 * number for number in range(COUNT)]


def test_an_error_of_the_device_reaches_the_caller() -> None:
    """A device's error reaches the caller as in a job, and closing returns the device's memory."""
    device = FakeDevice()
    device.encoder.faults = {"nvEncEncodePicture": 8}
    with encoder(encoder="nvenc", gpu=device.gpu) as session, pytest.raises(EngineFailed):
        session.encode(rgb(0))
    assert device.gpu.use().encoding == 0


def test_an_encoder_that_is_forgotten_gives_everything_back() -> None:
    """An encoder dropped without ``close`` leaves no session and no memory on the device."""
    device = FakeDevice()
    session = encoder(encoder="nvenc", gpu=device.gpu)
    session.encode(rgb(0))
    assert device.gpu.use().encoding == 1
    own = [thread for thread in threading.enumerate() if thread.name.startswith("codecfleet-encoder")]
    del session
    for thread in own:
        thread.join(30)
    gc.collect()
    assert device.gpu.use().encoding == 0
    assert device.gpu.opened().budget.taken_bytes == 0


def test_an_event_loop_awaits() -> None:
    """Awaited calls give the same packets."""

    async def awaited() -> list[Packet]:
        async with encoder(bitrate_bps=300_000) as session:
            packets = [packet for number in range(COUNT) for packet in await session.encode_async(rgb(number))]
            await session.reconfigure_async(RateChange(bitrate=200_000))
            return packets + await session.finish_async()

    found = asyncio.run(awaited())
    assert [packet.pts for packet in found] == [packet.pts for packet in encoded(encoder(bitrate_bps=300_000))]


def test_bad_input_is_refused_with_a_way_out() -> None:
    """Each wrong call raises one typed error, and the session stays usable."""
    refused: list[CodecfleetError] = []
    session = encoder(quality=30)
    with session:
        packets = session.encode(rgb(0))
        for wrong in (
            lambda: session.encode("picture"),
            lambda: session.encode(rgb(1)[:48]),
            lambda: session.encode(EncodeFrame(rgb(1)), keyframe=True),
            lambda: session.encode(rgb(1), sei_messages=["text"]),  # type: ignore[list-item]
        ):
            with pytest.raises(UsageError) as error:
                wrong()
            refused.append(error.value)
        packets += session.encode(rgb(1)) + session.finish()
        assert [packet.pts for packet in packets] == [0, 1]
        with pytest.raises(EncoderFailed, match="finished") as finished:
            session.encode(rgb(2))
        refused.append(finished.value)
    for options in (
        {"fps": 0},
        {"quality": 20, "bitrate_bps": 300_000},
        {"maxrate_bps": 300_000, "bufsize_bits": 300_000},
        {"bitrate_bps": 5},
    ):
        with pytest.raises(UsageError) as error:
            encoder(**options)
        refused.append(error.value)
    with pytest.raises(UsageError, match="closed"):
        session.encode(rgb(3))
    with encoder("vp9", encoder="nvenc") as nvenc, pytest.raises(EngineUnfit):
        nvenc.encode(rgb(0))
    assert all(each.next_step and pickle.dumps(each) for each in refused)

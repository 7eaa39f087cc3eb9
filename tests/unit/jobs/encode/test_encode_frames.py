"""``encode``: frames of every kind become one exact file, in software and on a fake NVENC."""

import asyncio
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import pytest
from av.video.stream import VideoStream
from numpy.typing import NDArray

import codecfleet
from codecfleet import EncodeFrame, EncodeReport, RateChange, SeiMessage
from codecfleet.errors import EngineUnfit
from codecfleet.testing.clips import Clip, constant_times, make_clip, picture
from codecfleet.testing.nvidia.fake_device import FakeDevice
from codecfleet.testing.nvidia.fake_nvenc import FakeNvenc
from tests.device_tensor import FakeDeviceTensor

from ..frame_encoding import (
    CODECS,
    COUNT,
    HEIGHT,
    TIMES,
    WIDTH,
    by_interface,
    close,
    encode,
    given,
    nv12,
    on_device,
    put,
    rgb,
    seconds,
    shown,
    timed,
)

HOST = {
    "frames": lambda _: [timed(n) for n in range(COUNT)],
    "pairs": lambda _: [(picture(n, WIDTH, HEIGHT), TIMES[n]) for n in range(COUNT)],
    "rgb": lambda _: [(rgb(n), TIMES[n]) for n in range(COUNT)],
    "nv12": lambda _: [(nv12(n), TIMES[n]) for n in range(COUNT)],
    "asked": lambda _: [EncodeFrame(nv12(n), time_s=TIMES[n]) for n in range(COUNT)],
    "asynchronous": lambda _: given([timed(n) for n in range(COUNT)]),
}


DEVICE = {
    "tensors": lambda device: [(on_device(device, n, "tensor"), TIMES[n]) for n in range(COUNT)],
    "arrays": lambda device: given([(on_device(device, n, "array"), TIMES[n]) for n in range(COUNT)]),
}


@pytest.mark.parametrize("kind", [*HOST, *DEVICE])
@pytest.mark.parametrize("encoder", ["software", "nvenc"])
def test_every_kind_of_frame_comes_out_once_at_its_time(tmp_path: Path, kind: str, encoder: str) -> None:
    """Arrays, software frames and tensors, with times in any form, are each shown once, at their exact time."""
    device, output = FakeDevice(), tmp_path / "out.mp4"
    report = encode((HOST | DEVICE)[kind](device), output, device, encoder=encoder)
    frames = shown(output)
    assert seconds(frames) == TIMES
    # YUV lacks some colours of RGB; red is checked below.
    assert kind == "rgb" or all(close(frame, number) for number, frame in enumerate(frames))
    assert (report.frames_in, report.frames_out) == (COUNT, COUNT)
    assert report.encoder == ("libx264" if encoder == "software" else "h264_nvenc")
    assert report.from_device == (kind in DEVICE and encoder == "nvenc")
    assert [made["from_host"] for made in device.encoder.made] == ([kind in HOST] if encoder == "nvenc" else [])
    assert report.output_bytes == output.stat().st_size
    assert list(tmp_path.iterdir()) == [output]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv420p10le"])
def test_frames_of_a_source_stay_on_the_device(tmp_path: Path, codec: str, pix_fmt: str) -> None:
    """Frames that ``frames`` decodes on the device are encoded there: same number, times and pictures."""
    encoder = "libx265" if pix_fmt.endswith("10le") else "libx264"
    quiet = (("x265-params", "log-level=none"),) if encoder == "libx265" else ()
    clip = Clip(times=constant_times(20), pix_fmt=pix_fmt, encoder=encoder, options=quiet)
    source, device = make_clip(tmp_path / "in.mp4", clip), FakeDevice()

    async def through() -> EncodeReport:
        frames = codecfleet.frames(source, place="device", gpu=device.gpu)
        return await codecfleet.encode(frames, tmp_path / "out.mkv", codec=codec, preset=1, gpu=device.gpu)

    report = asyncio.run(through())
    assert (report.encoder, report.from_device, report.fallback) == (f"{codec}_nvenc", True, "")
    assert (report.frames_in, report.frames_out, report.duration_s) == (20, 20, Fraction(20, 25))
    assert report.pix_fmt == pix_fmt
    found = shown(tmp_path / "out.mkv")
    assert seconds(found) == [Fraction(n, 25) for n in range(20)]
    assert {frame.format.name for frame in found} == {pix_fmt}


def test_without_nvenc_software_encodes_what_lies_on_a_device(tmp_path: Path) -> None:
    """Without NVENC, software encodes frames on a device and the report says why; a required NVENC is an error."""
    device = FakeDevice(encoder=FakeNvenc(capabilities={}))
    items = [(on_device(device, n, "tensor"), TIMES[n]) for n in range(COUNT)]
    report = encode(items, tmp_path / "out.mp4", device)
    assert (report.encoder, report.from_device) == ("libx264", False)
    assert "no h264 encoder" in report.fallback
    assert all(close(frame, number) for number, frame in enumerate(shown(tmp_path / "out.mp4")))
    with pytest.raises(EngineUnfit):
        encode(items, tmp_path / "again.mp4", device, encoder="nvenc")


@pytest.mark.parametrize(("name", "fps"), [("out.mp4", Fraction(30000, 1001)), ("out.webm", 25), ("out.h264", 50)])
def test_a_constant_rate_overrides_times(tmp_path: Path, name: str, fps: Fraction | int) -> None:
    """With a constant rate, frame n is shown at n / fps, in every container that keeps times."""
    report = encode([timed(n) for n in range(COUNT)], tmp_path / name, fps=fps)
    frames = shown(tmp_path / name)
    assert len(frames) == report.frames_out == COUNT
    assert report.duration_s == COUNT / Fraction(fps)
    if name != "out.h264":
        assert seconds(frames) == [n / Fraction(fps) for n in range(COUNT)]


@pytest.mark.parametrize(("matrix", "number"), [("bt709", 1), ("bt601", 6), ("bt2020", 9)])
def test_rgb_becomes_yuv_by_a_stated_matrix(tmp_path: Path, matrix: str, number: int) -> None:
    """Red stays red by the matrix that the file states."""
    red = np.zeros((HEIGHT, WIDTH, 3), dtype=np.uint8)
    red[:, :, 0] = 255
    report = encode([red] * 3, tmp_path / "out.mp4", fps=25, matrix=matrix, quality=1)
    frames = shown(tmp_path / "out.mp4")
    assert report.pix_fmt == "yuv420p"
    assert {(int(frame.colorspace), int(frame.color_range)) for frame in frames} == {(number, 1)}
    luma = {"bt709": 63, "bt601": 81, "bt2020": 74}[matrix]
    assert abs(int(frames[0].to_ndarray()[10, 10]) - luma) <= 2


def test_long_series_have_several_groups_of_pictures(tmp_path: Path) -> None:
    """Times are right across groups of pictures, with B pictures and with gaps between groups."""
    times = [Fraction(n, 25) + Fraction(n // 16, 10) for n in range(70)]
    items = ((picture(n, WIDTH, HEIGHT), time_s) for n, time_s in enumerate(times))
    report = encode(items, tmp_path / "out.mp4", preset=4, encoder_options=(("g", "16"),))
    assert report.frames_out == 70
    with av.open(str(tmp_path / "out.mp4")) as container:
        stream = container.streams.video[0]
        assert isinstance(stream, VideoStream)
        packets = [packet for packet in container.demux(stream) if packet.size]
        tick = Fraction(stream.time_base or 0)
    assert sum(packet.is_keyframe for packet in packets) >= 5
    dts = [packet.dts or 0 for packet in packets]
    assert dts == sorted(set(dts))
    assert any(packet.pts != packet.dts for packet in packets)
    assert sorted((packet.pts or 0) * tick for packet in packets) == times


@pytest.mark.parametrize("encoder", ["software", "nvenc"])
@pytest.mark.parametrize("codec", CODECS)
def test_a_keyframe_comes_where_it_is_asked_for(tmp_path: Path, codec: str, encoder: str) -> None:
    """With every encoder, keyframes come at the requested frames, and every frame at its time."""
    items = (EncodeFrame(picture(n, WIDTH, HEIGHT), keyframe=n in (5, 9)) for n in range(COUNT))
    encode(items, tmp_path / "out.mkv", codec=codec, encoder=encoder, fps=25)
    with av.open(str(tmp_path / "out.mkv")) as container:
        packets = [packet for packet in container.demux(container.streams.video[0]) if packet.size]
    assert [round((packet.pts or 0) / 40) for packet in packets if packet.is_keyframe] == [0, 5, 9]
    assert len(shown(tmp_path / "out.mkv")) == COUNT


def test_rates_and_messages_are_those_of_their_picture(tmp_path: Path) -> None:
    """NVENC gets new rates before the picture that they come with, and messages with their picture."""
    device = FakeDevice()
    message = SeiMessage(5, b"0123456789abcdef")

    def items() -> Iterator[object]:
        for number in range(6):
            assert len(device.encoder.reconfigured) == (number > 3)
            asked = {3: {"rates": RateChange(bitrate=9000)}, 4: {"sei_messages": [message]}}.get(number, {})
            yield EncodeFrame(rgb(number), **asked)  # type: ignore[arg-type]

    options = (("rc", "cbr"), ("bitrate", "50000"), ("gop", "50"))
    encode(items(), tmp_path / "out.mp4", device, fps=25, encoder="nvenc", encoder_options=options)
    (made,) = device.encoder.made
    assert (made["rc"], made["bitrate"], made["gop"], made["idrperiod"]) == ("cbr", 50000, 50, 50)
    assert "cq" not in made
    assert [each.averageBitrate for each in device.encoder.reconfigured] == [9000]
    assert [number for number, _ in device.encoder.sei_messages] == [4]


RAW = ["nv12", "yuv420p", "yuv444p", "rgb24", "bgra", "p010le", "yuv422p10le", "gray"]


@pytest.mark.parametrize("pix_fmt", RAW)
def test_raw_bytes_are_a_picture_of_a_stated_size(tmp_path: Path, pix_fmt: str) -> None:
    """Raw bytes, or a one-dimensional array, are a picture without padding, as FFmpeg's rawvideo writes it."""
    width, height = 66, 50  # rows that FFmpeg pads
    frames = [picture(n, width, height).reformat(format=pix_fmt) for n in range(3)]
    encoder = av.CodecContext.create("rawvideo", "w")
    encoder.width, encoder.height, encoder.pix_fmt = width, height, pix_fmt  # type: ignore[attr-defined]
    encoder.time_base = Fraction(1, 25)
    raw = [bytes(encoder.encode(frame)[0]) for frame in frames]  # type: ignore[attr-defined]
    options = {"fps": 25, "input_pix_fmt": pix_fmt, "size": (width, height)}
    wanted = encode(frames, tmp_path / "frames.mp4", fps=25)
    for number, items in enumerate(([memoryview(each) for each in raw], [np.frombuffer(each, "u1") for each in raw])):
        assert encode(items, tmp_path / f"{number}.mp4", **options).output_sha256 == wanted.output_sha256


def filled_later(device: FakeDevice, kind: str, samples: NDArray[np.uint8]) -> object:
    """Return an array on the device that holds noise until its producer's stream is done."""
    there = put(device, np.zeros_like(samples))
    stream = {"tensor": 1, "thread": 2}.get(kind) or int(device.driver.cuStreamCreate(1)[1])
    device.driver.put(stream, lambda: np.copyto(there, samples) or 0)
    if kind == "tensor":
        return FakeDeviceTensor(there.ctypes.data, samples.shape, item_bytes=1)
    if kind in ("array", "thread"):
        return by_interface(there, stream)
    planes = there[:HEIGHT].reshape(HEIGHT, WIDTH, 1), there[HEIGHT:].reshape(HEIGHT // 2, WIDTH // 2, 2)
    return SimpleNamespace(cuda=lambda: [by_interface(plane, stream) for plane in planes])


@pytest.mark.parametrize("kind", ["array", "thread", "tensor", "planes"])
@pytest.mark.parametrize("encoder", ["auto", "software"])
def test_a_producer_is_waited_for(tmp_path: Path, kind: str, encoder: str) -> None:
    """A picture is read only when its producer's stream has written it completely."""
    device = FakeDevice()
    device.gpu.opened()
    items = (filled_later(device, kind, nv12(n)) for n in range(COUNT))
    report = encode(items, tmp_path / "out.mp4", device, fps=25, encoder=encoder)
    assert report.from_device == (encoder == "auto")
    assert all(close(frame, number) for number, frame in enumerate(shown(tmp_path / "out.mp4")))


def test_a_buffer_may_be_used_again_for_the_next_frame(tmp_path: Path) -> None:
    """With a constant rate, a picture's memory may be reused once the next one is requested, on host and device."""
    device = FakeDevice()
    device.gpu.opened()
    there = put(device, nv12(0))

    def items() -> Iterator[object]:
        for number in range(COUNT):
            there[...] = nv12(number)
            yield FakeDeviceTensor(there.ctypes.data, there.shape, item_bytes=1)

    assert encode(items(), tmp_path / "out.mp4", device, fps=25).from_device
    assert all(close(frame, number) for number, frame in enumerate(shown(tmp_path / "out.mp4")))
    waited = device.driver.calls["cuStreamSynchronize"]
    assert waited >= 2 * COUNT


@pytest.mark.parametrize(
    "rate", [Fraction(24), Fraction(24000, 1001), Fraction(25), Fraction(30), Fraction(60), Fraction(1)]
)
def test_times_alone_give_the_whole_duration(tmp_path: Path, rate: Fraction) -> None:
    """Without a frame rate, the last picture lasts as long as the first."""
    pictures = [np.zeros((HEIGHT, WIDTH, 3), dtype=np.uint8)] * 4
    report = encode([(each, number / rate) for number, each in enumerate(pictures)], tmp_path / "out.mp4")
    assert report.duration_s == 4 / rate


def test_rgb_of_an_odd_size_says_why_it_is_not_yuv420p(tmp_path: Path) -> None:
    """RGB with an odd size becomes yuv444p, and the report says why."""
    odd = encode([np.zeros((91, 161, 3), dtype=np.uint8)], tmp_path / "odd.mp4", fps=25)
    assert (odd.width, odd.height, odd.pix_fmt) == (161, 91, "yuv444p")
    assert "yuv420p" in odd.substitute
    even = encode([np.zeros((90, 160, 3), dtype=np.uint8)], tmp_path / "even.mp4", fps=25)
    assert (even.pix_fmt, even.substitute) == ("yuv420p", "")

"""``encode`` with every form of picture on the real PyNvVideoCodec, from the host and the (simulated) device."""

import json
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from tests.sweeps import swept

from .scenario import Scenario, machine
from .simulated_driver import Ran, needs, run_simulated

pytestmark = needs("PyNvVideoCodec")

ADA = machine("rtx-4090")
BLACKWELL = machine("mixed-200", "blackwell-1")
WIDTH, HEIGHT = 160, 128
LAYOUTS = {
    "nv12": (1, 1.5, [(1, 1, 1), (2, 2, 2)]),
    "p010le": (2, 1.5, [(1, 1, 1), (2, 2, 2)]),
    "nv16": (1, 2, [(1, 1, 1), (1, 1, 1)]),
    "p210le": (2, 2, [(1, 1, 1), (1, 1, 1)]),
    "yuv444p": (1, 3, [(1, 1, 1)] * 3),
    "yuv420p": (1, 1.5, [(1, 1, 1), (2, 2, 1), (2, 2, 1)]),
}
"""For each of FFmpeg's formats: bytes per sample, rows of all planes per row of luma, and the planes of objects.

A plane is given by the divisors of its rows and columns, and the number of its components. PyNvVideoCodec counts 4:2:2
in samples.
"""

COMMON = (
    f"WIDTH, HEIGHT, COUNT = {WIDTH}, {HEIGHT}, 6\n"
    """
import asyncio, json, sys
from types import SimpleNamespace
import numpy as np
from cuda.bindings import driver
import codecfleet
from codecfleet import EncodeFrame, RateChange, SeiMessage
from codecfleet.cluster.worker.own_gpu import own_gpu
from tests.device_tensor import FakeDeviceTensor

folder = sys.argv[1]

def cuda(result):
    assert not int(result[0]), result
    return result[1] if len(result) > 1 else None

def on_device(data):
    own_gpu().opened().cuda.push()
    address = int(cuda(driver.cuMemAlloc(data.nbytes)))
    cuda(driver.cuMemcpyHtoD(address, data.ctypes.data, data.nbytes))
    return address

def encode(name, pictures, **options):
    options = {"fps": 25, "codec": "hevc", "encoder": "nvenc", "preset": 1} | options
    report = asyncio.run(codecfleet.encode(pictures, f"{folder}/{name}.mp4", **options))
    return [report.encoder, report.frames_out, report.pix_fmt, report.from_device, report.output_sha256]
"""
)

EVERY_FORM = """
layout, item, rows, planes = json.loads(sys.argv[2])
rows = int(HEIGHT * rows)
generator = np.random.default_rng(7)
data = [generator.integers(16, 235, rows * WIDTH).astype(f"u{item}") << (8 * (item - 1)) for _ in range(COUNT)]
own_gpu().opened().cuda.push()
stream = cuda(driver.cuStreamCreate(1))

def interface(address, shape, **more):
    return SimpleNamespace(__cuda_array_interface__=dict(
        shape=shape, typestr=f"|u{item}", data=(address, False), version=3, **more))

def in_planes(samples):
    address = on_device(samples)
    found = []
    for down, across, components in planes:
        shape = (HEIGHT // down, WIDTH // across, components)
        # As PyNvVideoCodec's own frames write it: a stream that is none, and strides in samples.
        strides = (shape[1] * components, components, 1)
        found.append(interface(address, shape, strides=strides, stream=0))
        address += shape[0] * shape[1] * components * item
    return SimpleNamespace(cuda=lambda: found)

forms = {
    "rows": lambda samples: interface(on_device(samples), (rows, WIDTH), strides=None, stream=int(stream)),
    "tensor": lambda samples: FakeDeviceTensor(on_device(samples), (rows, WIDTH), item_bytes=item),
    "nchw": lambda samples: FakeDeviceTensor(on_device(samples), (1, 1, rows, WIDTH), item_bytes=item),
    "planes": in_planes,
    "bytes": lambda samples: samples.tobytes(),
    "array": lambda samples: samples.reshape(rows, WIDTH),
}
for name, form in forms.items():
    given = None if name == "planes" else layout
    options = {"size": (WIDTH, HEIGHT)} if name == "bytes" else {}
    print(json.dumps([name, *encode(name, map(form, data), input_pix_fmt=given, quality=20, **options)]))
"""

PACKED = """
generator = np.random.default_rng(7)
pictures = [generator.integers(0, 256, (HEIGHT, WIDTH, 4)).astype(np.uint8) for _ in range(COUNT)]

def array(samples):
    return SimpleNamespace(__cuda_array_interface__=dict(
        shape=samples.shape, typestr="|u1", data=(on_device(samples), False), version=3, strides=None))

name, channels = sys.argv[2], int(sys.argv[3])
given = [np.ascontiguousarray(each[:, :, :channels]) for each in pictures]
host = encode("host", given, input_pix_fmt=name)
for encoder in ("nvenc", "auto"):
    print(json.dumps([host, encode(encoder, map(array, given), input_pix_fmt=name, encoder=encoder)]))
"""

DECODED = """
import PyNvVideoCodec
codec, on_device, source = sys.argv[2:]

def decoded():
    kind = getattr(PyNvVideoCodec.cudaVideoCodec, codec.upper())
    decoder = PyNvVideoCodec.CreateDecoder(gpuid=0, codec=kind, usedevicememory=on_device == "1")
    for packet in PyNvVideoCodec.CreateDemuxer(source):
        yield from decoder.Decode(packet)
    yield from decoder.Decode(PyNvVideoCodec.PacketData())

own_gpu().opened()
print(json.dumps(encode("again", decoded(), codec=codec, quality=18)))
"""

MODES = """
def nv12(n):
    picture = np.full((HEIGHT * 3 // 2, WIDTH), 128, np.uint8)
    picture[:HEIGHT] = (np.arange(WIDTH) + np.arange(HEIGHT)[:, None] + n * 7) % 220 + 16
    return picture

def noisy(n):
    picture = nv12(n)
    picture[:HEIGHT] = np.random.default_rng(n).integers(16, 235, (HEIGHT, WIDTH))
    return picture

def live():
    for n in range(60):
        yield EncodeFrame(
            noisy(n),
            keyframe=n == 20,
            sei_messages=[SeiMessage(5, b"0123456789abcdefhello")] if n in (3, 20) else (),
            rates=RateChange(bitrate=300_000) if n == 30 else None,
        )

options = (("rc", "cbr"), ("gop", "40"), ("bf", "0"))
for codec in ("h264", "hevc"):
    print(json.dumps(encode(f"live-{codec}", live(), codec=codec, bitrate_bps=3_000_000, encoder_options=options)))
for name, options in (
    ("lossless", (("tuning_info", "lossless"),)),
    ("constqp", (("constqp", "30,31,28"), ("bf", "1"))),
    ("periods", (("gop", "4"), ("idrperiod", "8"), ("bf", "0"), ("timinginfo", "1/50"))),
):
    print(json.dumps(encode(name, map(nv12, range(20)), encoder_options=options)))
"""


def told(ran: Ran) -> list[Any]:
    """Return the lines that a program printed."""
    assert ran.exit_code == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("[") and "][" not in line[:9]]


def run(program: str, folder: Path, *arguments: str, on: Any = ADA) -> Ran:
    """Run a program on one simulated GPU."""
    visible = "1" if on is BLACKWELL else "0"
    return run_simulated(
        COMMON + program, Scenario(machine=on), visible_devices=visible, arguments=[str(folder), *arguments]
    )


@pytest.mark.parametrize("layout", swept(LAYOUTS, is_slow=lambda layout: layout != "p010le"))
def test_every_form_of_a_picture_gives_the_same_file(tmp_path: Path, layout: str) -> None:
    """Arrays, tensors, planes and raw bytes of one layout give the same file; NVENC reads them in place if it can."""
    found = told(run(EVERY_FORM, tmp_path, json.dumps([layout, *LAYOUTS[layout]]), on=BLACKWELL))
    assert {tuple(each[1:3]) for each in found} == {("hevc_nvenc", 6)}
    assert len({each[-1] for each in found}) == 1, found
    from_device = {each[0] for each in found if each[4]}
    assert from_device == (set() if layout == "yuv420p" else {"rows", "tensor", "nchw", "planes"})


PACKED_FORMATS = [("rgb24", 3), ("bgra", 4), ("bgr24", 3), ("rgba", 4), ("argb", 4)]


@pytest.mark.parametrize(("pix_fmt", "channels"), swept(PACKED_FORMATS, is_slow=PACKED_FORMATS[1:].__contains__))
def test_packed_rgb_is_converted_alike_wherever_it_lies(tmp_path: Path, pix_fmt: str, channels: int) -> None:
    """RGB on the GPU is converted like RGB on the host, to the same file."""
    found = told(run(PACKED, tmp_path, pix_fmt, str(channels)))
    assert len(found) == 2
    for host, device in found:
        assert host == device == ["hevc_nvenc", 6, "yuv420p", False, host[-1]]


DECODERS = [
    ("h264", "yuv420p", "1"),
    ("hevc", "yuv420p10le", "0"),
    ("h264", "yuv420p", "0"),
    ("hevc", "yuv420p10le", "1"),
]


@pytest.mark.parametrize(("codec", "pix_fmt", "on_device"), swept(DECODERS, is_slow=DECODERS[2:].__contains__))
def test_frames_of_the_packages_decoder_are_taken(tmp_path: Path, codec: str, pix_fmt: str, on_device: str) -> None:
    """Pictures that PyNvVideoCodec decodes, on the device or to the host, are encoded unchanged."""
    source = tmp_path / f"source.{codec}"
    with av.open(str(source), "w") as container:
        stream: Any = container.add_stream({"h264": "libx264", "hevc": "libx265"}[codec], 25)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, pix_fmt
        stream.options = {"bf": "0", "crf": "12"} | ({"x265-params": "log-level=none"} if codec == "hevc" else {})
        for number in range(6):
            luma = (np.arange(WIDTH) + np.arange(HEIGHT)[:, None] + number * 9) % 220 + 16
            frame = av.VideoFrame.from_ndarray(luma.astype(np.uint8), format="gray").reformat(format=pix_fmt)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    (report,) = told(run(DECODED, tmp_path, codec, on_device, str(source)))
    assert report[1:4] == [6, pix_fmt, on_device == "1"]
    with av.open(str(source)) as before, av.open(str(tmp_path / "again.mp4")) as after:
        pairs = list(zip(before.decode(video=0), after.decode(video=0), strict=True))
    assert len(pairs) == 6
    for one, other in pairs:
        luma, again = (np.asarray(each.reformat(format="gray").to_ndarray()).astype(int) for each in (one, other))
        assert np.abs(luma - again).mean() < 3


def test_modes_of_one_session_are_in_the_file(tmp_path: Path) -> None:
    """Rates change during a session, keyframes and messages are at their pictures, and lossless is lossless."""
    ran = run(MODES, tmp_path)
    assert [each[1] for each in told(ran)] == [60, 60, 20, 20, 20]
    for codec in ("h264", "hevc"):
        sizes, keyframes, messages = looked_at(tmp_path / f"live-{codec}.mp4")
        # The simulator restarts HEVC at new rates; by its documentation the real driver does not.
        assert keyframes == ([0, 20] if codec == "h264" else [0, 20, 30])
        assert messages == [3, 20]
        assert sum(sizes[40:60]) < sum(sizes[0:20]) / 4
    rates = [line.values for line in ran.told("NvEncReconfigureEncoder") if "rcParams.averageBitRate" in line.values]
    assert [each["rcParams.averageBitRate"] for each in rates] == ["300000"] * 2
    # The simulator makes every I picture an IDR picture; the requested types are checked below.
    assert looked_at(tmp_path / "periods.mp4")[1] == [0, 4, 8, 12, 16]
    with av.open(str(tmp_path / "lossless.mp4")) as container:
        for number, frame in enumerate(container.decode(video=0)):
            wanted = (np.arange(WIDTH) + np.arange(HEIGHT)[:, None] + number * 7) % 220 + 16
            assert (frame.to_ndarray()[:HEIGHT] == wanted).all()
    initialized: dict[str, list[str]] = {}
    for line in ran.told("NvEncInitializeEncoder"):
        for name, value in line.values.items():
            initialized.setdefault(name, []).append(value)
    assert "4" in initialized["tuningInfo"]
    assert {"0", "1", "2"} <= set(initialized["rcParams.rateControlMode"])
    assert (initialized["gopLength"][-1], initialized["hevcConfig.idrPeriod"][-1]) == ("4", "8")
    assert "28" in initialized["rcParams.constQP.qpIntra"]
    assert "50" in initialized["hevcConfig.hevcVUIParameters.timeScale"]


def looked_at(path: Path) -> tuple[list[int], list[int], list[int]]:
    """Return packet sizes in display order, the numbers of keyframes, and those of packets with our message."""
    with av.open(str(path)) as container:
        packets = [packet for packet in container.demux(container.streams.video[0]) if packet.size]
    shown = sorted(packets, key=lambda packet: packet.pts or 0)
    with av.open(str(path)) as container:
        frames = list(container.decode(video=0))
    messages = [
        number for number, frame in enumerate(frames) if any(b"hello" in bytes(each) for each in frame.side_data)
    ]
    return [packet.size for packet in shown], [n for n, packet in enumerate(shown) if packet.is_keyframe], messages

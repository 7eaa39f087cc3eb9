"""NVENC sessions on the real PyNvVideoCodec and the driver simulator: the contract, end to end.

The simulator encodes in software behind NVENC's interface, so pictures and bitstreams are real; nothing here was seen
on an NVENC.
"""

import base64
import json
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib.util import find_spec
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from codecfleet.testing.clips import picture
from tests.sweeps import swept

from .nvenc_programs import settings_told
from .scenario import Action, Fault, Scenario, machine
from .simulated_driver import Ran, run_simulated

pytestmark = pytest.mark.skipif(find_spec("PyNvVideoCodec") is None, reason="PyNvVideoCodec is not installed")

WIDTH, HEIGHT = 320, 240
TIMES = [0, 40, 80, 81, 160, 205, 240, 1000, 1040, 1080, 1120, 1160]
BLACKWELL = machine("mixed-200", "blackwell-1")
ADA = machine("rtx-4090")
FORMATS = {
    "h264": ("yuv420p", "yuv444p"),
    "hevc": ("yuv420p", "yuv420p10le", "yuv444p"),
    "av1": ("yuv420p", "yuv420p10le"),
}
INPUTS = ("software", "device")
CASES = [
    *((codec, pix_fmt, "software") for codec, pix_fmts in FORMATS.items() for pix_fmt in pix_fmts),
    *((codec, FORMATS[codec][1], place) for codec in FORMATS for place in INPUTS[1:]),
]

COMMON = """
import base64, json, sys
from fractions import Fraction
import numpy as np
import PyNvVideoCodec
from codecfleet.actors.settle.nvenc import nvenc_request
from codecfleet.actors.settle.request import settle
from codecfleet.actors.encode.settings import Codec, RateControl
from codecfleet.actors.media.values import Colour, ContentLight, HdrStatic, VideoFormat
from codecfleet.actors.surfaces.device_frame import DeviceFrame, TimedPicture, device_planes
from codecfleet.actors.surfaces.formats import SurfaceLayout, surface_format
from codecfleet.actors.nvidia.nvenc.device import NvencDevice
from codecfleet.actors.nvidia.nvenc.inputs import host_input
from codecfleet.actors.nvidia.nvenc.session import NvencSession
from codecfleet.testing.clips import picture

TICK = Fraction(1, 1000)
LAYOUTS = {"yuv420p": SurfaceLayout.NV12, "yuv420p10le": SurfaceLayout.P016, "yuv444p": SurfaceLayout.YUV444}

def settled(device, codec, pix_fmt, preset=4, rate=None):
    shape = VideoFormat(320, 240, pix_fmt, Fraction(25), colour=Colour(1, 9, 16, 9, 3),
                        hdr=HdrStatic(light=ContentLight(1000, 400)))
    request = nvenc_request(Codec(codec), rate=rate, preset=preset)
    return settle(request, shape, TICK, device.capabilities(Codec(codec)))

def software(number, pix_fmt, ticks):
    frame = picture(number, 320, 240).reformat(format=pix_fmt)
    frame.pts, frame.time_base = ticks, TICK
    return frame

def told(packets):
    return [[p.pts_ticks, p.is_keyframe, base64.b64encode(p.payload).decode()] for p in packets]
"""

ENCODE = """
from cuda.bindings import driver
from codecfleet.actors.nvidia.cuda.context import Cuda

def cuda(result):
    assert not int(result[0]), result
    return result[1] if len(result) > 1 else None

codec, pix_fmt, place, times, count = json.loads(sys.argv[1])
known = Cuda(driver)
known.push()
device = NvencDevice(PyNvVideoCodec, cuda=known)
surface = surface_format(pix_fmt)
settings = settled(device, codec, pix_fmt)

def pixels(frame):
    data = host_input(frame, surface, 320, 240)
    address = int(cuda(driver.cuMemAlloc(data.nbytes)))
    cuda(driver.cuMemcpyHtoD(address, data.ctypes.data, data.nbytes))
    planes = device_planes(surface, address, 320, 240)
    bits = 10 if "10" in pix_fmt else 8
    return DeviceFrame(layout=LAYOUTS[pix_fmt], bits=bits, width=320, height=240, planes=planes, owner=None)

with NvencSession(device, settings, from_host=place == "software") as session:
    packets, sizes = [], []
    for number in range(count):
        frame = software(number, pix_fmt, times[number])
        given = frame if place == "software" else TimedPicture(pixels(frame), times[number])
        ready = session.encode(given)
        sizes.append(len(ready))
        packets += ready
    packets += session.finish()
    print(json.dumps([told(packets), session.extradata.hex(), session.reorder_frames, sizes]))
"""

TWICE = """
device = NvencDevice(PyNvVideoCodec)
settings = settled(device, sys.argv[1], "yuv420p", rate=RateControl(bitrate_bps=400_000))
def run(first, count):
    with NvencSession(device, settings) as session:
        packets = [p for n in range(count) for p in session.encode(software(first + n, "yuv420p", n * 40))]
        return told(packets + session.finish()), session.extradata.hex()
wanted = run(0, 8)
run(50, 5)
print(json.dumps([run(0, 8) == wanted, run(0, 1)[1] == wanted[1], device.counts.made, device.counts.open]))
"""

RECONFIGURE = """
from codecfleet.actors.encode.settings import RateChange
device = NvencDevice(PyNvVideoCodec)
with NvencSession(device, settled(device, "h264", "yuv420p", rate=RateControl(bitrate_bps=400_000))) as session:
    packets = [p for n in range(6) for p in session.encode(software(n, "yuv420p", n * 40))]
    session.reconfigure(RateChange(bitrate=300_000, maxbitrate=500_000, vbvbufsize=900_000, vbvinit=800_000))
    session.reconfigure(RateChange(multipass="fullres", fps=Fraction(50)))
    packets += [p for n in range(6, 12) for p in session.encode(software(n, "yuv420p", n * 40), keyframe=n == 6)]
    packets += session.finish()
    print(json.dumps(told(packets)))
"""

GRID = """
codec = sys.argv[1]
shape = VideoFormat(320, 240, "yuv420p", Fraction(25))
device = NvencDevice(PyNvVideoCodec)
request = nvenc_request(Codec(codec), preset=6, keyframe_interval_s=Fraction(2))
settings = settle(request, shape, TICK, device.capabilities(Codec(codec)))
with NvencSession(device, settings) as session:
    frames = (software(n, "yuv420p", n * 40) for n in range(40))
    packets = [p for n, frame in enumerate(frames) for p in session.encode(frame, keyframe=n in (0, 7, 20, 21))]
    packets += session.finish()
    print(json.dumps([told(packets), session.extradata.hex()]))
"""

FAIL = """
from codecfleet.errors import CodecfleetError
free = json.loads(sys.argv[1])
device = NvencDevice(PyNvVideoCodec, free_bytes=lambda: free)
held = []
try:
    settings = settled(device, sys.argv[2], "yuv420p")
    for _ in range(int(sys.argv[3])):
        session = NvencSession(device, settings)
        held.append(session)
        for number in range(6):
            session.encode(software(number, "yuv420p", number * 40))
        session.finish()
    print(json.dumps(["none", len(held), ""]))
except CodecfleetError as error:
    print(json.dumps([type(error).__name__, len(held), error.message]))
"""


@dataclass(frozen=True, slots=True)
class Encoded:
    """What a session gave: packets as (time, keyframe, payload), parameter sets, reorder bound, packets a call."""

    packets: list[tuple[int, bool, bytes]]
    extradata: bytes
    reorder_frames: int
    ready: list[int]


def answer(ran: Ran) -> Any:
    """Return what a program printed last."""
    assert ran.exit_code == 0, ran.stderr
    return json.loads(ran.stdout.strip().splitlines()[-1])


def packets_of(told: list[list[Any]]) -> list[tuple[int, bool, bytes]]:
    """Read packets as the child wrote them."""
    return [(ticks, is_keyframe, base64.b64decode(payload)) for ticks, is_keyframe, payload in told]


@cache
def encoded(codec: str, pix_fmt: str, place: str, count: int = len(TIMES)) -> Encoded:
    """Encode in a child with the simulated driver."""
    ran = run_simulated(
        COMMON + ENCODE,
        Scenario(machine=ADA),
        visible_devices="0",
        arguments=[json.dumps([codec, pix_fmt, place, TIMES, count])],
    )
    told, extradata, reorder_frames, ready = answer(ran)
    return Encoded(packets_of(told), bytes.fromhex(extradata), reorder_frames, ready)


def decoded(codec: str, extradata: bytes, packets: list[tuple[int, bool, bytes]]) -> list[av.VideoFrame]:
    """Decode with FFmpeg."""
    decoder = av.CodecContext.create({"av1": "libdav1d"}.get(codec, codec), "r")
    decoder.extradata = extradata
    frames: list[Any] = []
    for ticks, _, payload in packets:
        packet = av.Packet(payload)
        packet.pts, packet.time_base = ticks, Fraction(1, 1000)
        frames += decoder.decode(packet)
    return frames + list(decoder.decode(None))


def luma_of(frame: av.VideoFrame) -> NDArray[np.int64]:
    """Return a frame's luma in 8 bits."""
    wide = frame.format.components[0].bits > 8
    rows = np.frombuffer(memoryview(frame.planes[0]), dtype="<u2" if wide else "u1").reshape(HEIGHT, -1)[:, :WIDTH]
    return rows.astype(np.int64) >> (2 if wide else 0)


@pytest.mark.parametrize(("codec", "pix_fmt", "place"), CASES)
def test_every_picture_comes_out_exactly_once_and_decodes(codec: str, pix_fmt: str, place: str) -> None:
    """Three codecs, 8 and 10 bits, host and device: each picture at its own time, like the one that went in."""
    found = encoded(codec, pix_fmt, place)
    assert sorted(ticks for ticks, _, _ in found.packets) == TIMES
    assert found.packets[0][:2] == (0, True)
    assert found.ready[:3] == [0, 0, 0]
    order = [ticks for ticks, _, _ in found.packets]
    depth = found.reorder_frames
    assert all(sorted(order)[place - depth] <= order[place] for place in range(depth, len(order)))
    frames = decoded(codec, found.extradata, found.packets)
    assert [frame.pts for frame in frames] == TIMES
    assert {frame.format.name for frame in frames} == {pix_fmt}
    for number, frame in enumerate(frames):
        wanted = luma_of(picture(number, WIDTH, HEIGHT).reformat(format=pix_fmt))
        assert np.abs(luma_of(frame) - wanted).mean() < 12
    first = frames[0]
    assert (first.color_range, first.color_primaries, first.color_trc, first.colorspace) == (1, 9, 16, 9)


@pytest.mark.parametrize("codec", FORMATS)
def test_with_a_keyframe_interval_the_only_keyframes_are_those_asked_for(codec: str) -> None:
    """The driver is told of groups without end and no look-ahead; forced keyframes come where they were asked for."""
    ran = run_simulated(COMMON + GRID, Scenario(machine=ADA), visible_devices="0", arguments=[codec])
    packets, extradata = answer(ran)
    found = packets_of(packets)
    assert sorted(ticks for ticks, is_keyframe, _ in found if is_keyframe) == [0, 280, 800, 840]
    frames = decoded(codec, bytes.fromhex(extradata), found)
    assert [frame.pts for frame in frames] == [n * 40 for n in range(40)]
    told = settings_told(ran)
    assert told["gopLength"] == str(2**32 - 1)
    assert told["rcParams.lookaheadDepth"] == "0"


@pytest.mark.parametrize("codec", FORMATS)
def test_host_and_device_input_give_the_same_packets(codec: str) -> None:
    """Wherever the samples lie, the same bytes come out."""
    wanted = encoded(codec, FORMATS[codec][1], "software").packets
    assert all(encoded(codec, FORMATS[codec][1], place).packets == wanted for place in INPUTS[1:])


@pytest.mark.parametrize("codec", FORMATS)
@pytest.mark.parametrize("count", swept([2, 1, 4]))
def test_short_segments_are_flushed(codec: str, count: int) -> None:
    """A segment shorter than the encoder's delay comes out whole."""
    assert sorted(ticks for ticks, _, _ in encoded(codec, "yuv420p", "software", count).packets) == TIMES[:count]


@pytest.mark.parametrize("codec", FORMATS)
def test_a_session_starts_from_nothing(codec: str) -> None:
    """Other segments in between change no byte, and parameter sets are those of any length; every encoder is closed."""
    ran = run_simulated(COMMON + TWICE, Scenario(machine=ADA), visible_devices="0", arguments=[codec])
    assert answer(ran) == [True, True, 4, 0]
    # Each creation and the one question for capabilities open a session too: all of them are destroyed again.
    assert len(ran.calls("NvEncDestroyEncoder")) == len(ran.calls("NvEncOpenEncodeSessionEx"))
    assert len(ran.calls("NvEncOpenEncodeSessionEx")) == 1 + 2 * 4


def test_new_rates_reach_the_driver() -> None:
    """Each change carries every field, those of the change before included; a keyframe comes where asked."""
    ran = run_simulated(COMMON + RECONFIGURE, Scenario(machine=ADA), visible_devices="0")
    packets = packets_of(answer(ran))
    assert sorted(ticks for ticks, _, _ in packets) == [number * 40 for number in range(12)]
    assert sorted(ticks for ticks, is_keyframe, _ in packets if is_keyframe) == [0, 240]
    told: dict[str, str] = {}
    for line in ran.told("NvEncReconfigureEncoder"):
        told |= line.values
    wanted = {"averageBitRate": 300_000, "maxBitRate": 500_000, "vbvBufferSize": 900_000, "vbvInitialDelay": 800_000}
    assert {name: int(told[f"rcParams.{name}"]) for name in wanted} == wanted
    assert (told["rcParams.multiPass"], told["frameRateNum"], told["frameRateDen"]) == ("2", "50", "1")


@pytest.mark.parametrize(
    ("fault", "free_bytes", "error"),
    [
        (Fault(function="NvEncOpenEncodeSessionEx", action=Action.STATUS, value=2), None, "EngineUnfit"),
        (Fault(function="NvEncOpenEncodeSessionEx", action=Action.STATUS, value=10), 1 << 40, "SessionLimit"),
        (Fault(function="NvEncOpenEncodeSessionEx", action=Action.STATUS, value=10), 1 << 20, "DeviceMemory"),
        (Fault(function="NvEncInitializeEncoder", action=Action.STATUS, value=8), None, "EngineUnfit"),
        (Fault(function="NvEncEncodePicture", action=Action.STATUS, value=20, call=3), None, "EngineFailed"),
        (Fault(function="NvEncLockBitstream", action=Action.STATUS, value=5, call=2), None, "DeviceLost"),
        (Fault(function="cuMemcpy2DAsync", action=Action.STATUS, value=700), None, "DeviceLost"),
        (Fault(function="cuMemAllocPitch", action=Action.STATUS, value=2), None, "DeviceMemory"),
    ],
)
def test_a_fault_of_the_driver_is_one_of_our_errors(fault: Fault, free_bytes: int | None, error: str) -> None:
    """What the real package says of each fault is read for what it means."""
    ran = run_simulated(
        COMMON + FAIL,
        Scenario(machine=ADA, faults=(fault,)),
        visible_devices="0",
        arguments=[json.dumps(free_bytes), "h264", "1"],
    )
    assert answer(ran)[0] == error


@pytest.mark.parametrize("call", [1, 3])
def test_an_av1_packet_that_is_cut_short_is_an_error(call: int) -> None:
    """AV1 states the sizes of what it holds; H.264 and HEVC do not, and a short packet of theirs is not seen here."""
    fault = Fault(function="NvEncLockBitstream", action=Action.SHORT, call=call)
    ran = run_simulated(
        COMMON + FAIL, Scenario(machine=ADA, faults=(fault,)), visible_devices="0", arguments=["null", "av1", "1"]
    )
    assert answer(ran)[0] == "EngineFailed"


def test_a_lost_device_is_told_by_asking_it() -> None:
    """The package words it like any failed picture, and ends the process with the encoder: our error comes first."""
    asking = """
from codecfleet.actors.nvidia.cuda.context import Cuda
from cuda.bindings import driver
known = Cuda(driver)
"""
    program = COMMON + asking + FAIL.replace("free_bytes=lambda: free", "free_bytes=known.free_bytes")
    fault = Fault(function="NvEncEncodePicture", action=Action.LOSE, call=2)
    ran = run_simulated(
        program, Scenario(machine=ADA, faults=(fault,)), visible_devices="0", arguments=["null", "h264", "1"]
    )
    assert json.loads(ran.stdout.strip().splitlines()[0])[0] == "DeviceLost"
    assert ran.exit_code == 1


def test_one_session_too_many_is_a_limit() -> None:
    """A GeForce driver opens a fixed number of encoders and no more, whatever memory is free."""
    ran = run_simulated(
        COMMON + FAIL, Scenario(machine=ADA), visible_devices="0", arguments=[str(1 << 40), "h264", "20"]
    )
    error, held, message = answer(ran)
    assert error == "SessionLimit"
    assert 0 < held < 20
    assert f"{held} encoders of this process are open" in message


def test_a_gpu_without_an_encoder_says_so() -> None:
    """An H200 decodes and does not encode."""
    ran = run_simulated(
        COMMON + FAIL,
        Scenario(machine=machine("h200-l40s")),
        visible_devices="0",
        arguments=["null", "h264", "1"],
    )
    assert answer(ran)[0] == "EngineUnfit"
    assert "no encoder" in answer(ran)[2]


def test_ten_bits_of_h264_need_a_blackwell() -> None:
    """The same settings open where the GPU can, and are refused before an encoder is made where it cannot."""
    program = COMMON + FAIL.replace('"yuv420p")', '"yuv420p10le")').replace(
        '"yuv420p", number', '"yuv420p10le", number'
    )
    can = run_simulated(program, Scenario(machine=BLACKWELL), visible_devices="1", arguments=["null", "h264", "1"])
    assert answer(can)[0] == "none"
    cannot = run_simulated(program, Scenario(machine=ADA), visible_devices="0", arguments=["null", "h264", "1"])
    assert answer(cannot)[0] == "EngineUnfit"
    assert "10-bit" in answer(cannot)[2]

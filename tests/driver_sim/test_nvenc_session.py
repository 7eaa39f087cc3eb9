"""What only a driver shows of NVENC sessions, with the real PyNvVideoCodec on the driver simulator.

The simulator encodes in software behind NVENC's interface, so pictures and bitstreams are real; nothing here was seen
on an NVENC. ``test_contracts.py`` has what every encoder session promises.
"""

import base64
import json
from dataclasses import dataclass
from fractions import Fraction
from importlib.util import find_spec
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from codecfleet.testing.clips import picture

from .scenario import Action, Fault, Scenario, machine
from .simulated_driver import Ran, run_simulated

pytestmark = pytest.mark.skipif(find_spec("PyNvVideoCodec") is None, reason="PyNvVideoCodec is not installed")

WIDTH, HEIGHT = 320, 240
TIMES = [0, 40, 80, 81, 160, 205, 240, 1000, 1040, 1080, 1120, 1160]
BLACKWELL = machine("mixed-200", "blackwell-1")
ADA = machine("rtx-4090")
FORMATS = {"h264": "yuv444p", "hevc": "yuv420p10le", "av1": "yuv420p10le"}
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

codec, pix_fmt, place, times = json.loads(sys.argv[1])
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

with NvencSession(device, settings, from_host=place == "host") as session:
    packets, sizes = [], []
    for number, ticks in enumerate(times):
        frame = software(number, pix_fmt, ticks)
        given = frame if place == "host" else TimedPicture(pixels(frame), ticks)
        ready = session.encode(given)
        sizes.append(len(ready))
        packets += ready
    packets += session.finish()
    print(json.dumps([told(packets), session.extradata.hex(), sizes]))
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
    """What a session gave: packets as (time, keyframe, payload), parameter sets, and how many packets at each call."""

    packets: list[tuple[int, bool, bytes]]
    extradata: bytes
    ready: list[int]


def answer(ran: Ran) -> Any:
    """Return what a program printed last."""
    assert ran.exit_code == 0, ran.stderr
    return json.loads(ran.stdout.strip().splitlines()[-1])


def packets_of(told: list[list[Any]]) -> list[tuple[int, bool, bytes]]:
    """Read packets as the child wrote them."""
    return [(ticks, is_keyframe, base64.b64decode(payload)) for ticks, is_keyframe, payload in told]


def encoded(codec: str, pix_fmt: str, place: str) -> Encoded:
    """Encode in a child with the simulated driver."""
    ran = run_simulated(
        COMMON + ENCODE,
        Scenario(machine=ADA),
        visible_devices="0",
        arguments=[json.dumps([codec, pix_fmt, place, TIMES])],
    )
    told, extradata, ready = answer(ran)
    return Encoded(packets_of(told), bytes.fromhex(extradata), ready)


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


@pytest.mark.parametrize(("codec", "pix_fmt"), FORMATS.items())
def test_host_and_device_input_give_the_same_packets(codec: str, pix_fmt: str) -> None:
    """Wherever the samples lie, the same bytes come out, of that format, with colours, from the fourth picture on."""
    found, on_device = (encoded(codec, pix_fmt, place) for place in ("host", "device"))
    assert found.packets == on_device.packets
    assert found.ready[:3] == [0, 0, 0]
    frames = decoded(codec, found.extradata, found.packets)
    assert [frame.pts for frame in frames] == TIMES
    for number, frame in enumerate(frames):
        wanted = luma_of(picture(number, WIDTH, HEIGHT).reformat(format=pix_fmt))
        assert np.abs(luma_of(frame) - wanted).mean() < 12
        assert frame.format.name == pix_fmt
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
    told = {name: value for line in ran.told("NvEncInitializeEncoder") for name, value in line.values.items()}
    assert told["gopLength"] == str(2**32 - 1)
    assert told["rcParams.lookaheadDepth"] == "0"


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


def test_one_session_too_many_is_a_limit() -> None:
    """A GeForce driver opens a fixed number of encoders and no more, whatever memory is free."""
    ran = run_simulated(
        COMMON + FAIL, Scenario(machine=ADA), visible_devices="0", arguments=[str(1 << 40), "h264", "20"]
    )
    error, held, message = answer(ran)
    assert error == "SessionLimit"
    assert 0 < held < 20
    assert f"{held} encoders of this process are open" in message


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


@pytest.mark.parametrize(("driver", "variant"), [("535.183.01", "_121."), ("580.95.05", "_130.")])
def test_the_driver_decides_which_interface_is_used(driver: str, variant: str) -> None:
    """The package loads the variant for the driver's interface, and with either 10 bits stay 10 bits."""
    shown = """
print([line for line in open("/proc/self/maps") if "PyNvVideoCodec_1" in line][0].split("/")[-1])
"""
    ran = run_simulated(
        COMMON + shown + ENCODE,
        Scenario(machine=ADA, driver=driver),
        visible_devices="0",
        arguments=[json.dumps(["hevc", "yuv420p10le", "host", TIMES])],
    )
    packets, extradata, _ = answer(ran)
    assert variant in ran.stdout.splitlines()[0]
    frames = decoded("hevc", bytes.fromhex(extradata), packets_of(packets))
    assert {frame.format.name for frame in frames} == {"yuv420p10le"}


def test_an_old_driver_is_refused_by_the_package() -> None:
    """A driver whose interface is older than the package knows is refused at import."""
    result = run_simulated("import PyNvVideoCodec", Scenario(machine=ADA, driver="525.60.13"))
    assert result.exit_code == 1
    assert "too old" in result.stderr

"""Properties of NVENC sessions that need a driver, with the real PyNvVideoCodec on the driver simulator.

The simulator encodes in software behind NVENC's interface, so pictures and bitstreams are real, but these tests show
nothing about a real NVENC. ``test_contracts.py`` tests the properties of all encoder sessions.
"""

import base64
import json
from typing import Any

import av
import pytest

from .scenario import Action, Fault, Scenario, machine
from .simulated_driver import Ran, needs, run_on_gpu, run_simulated

pytestmark = needs("PyNvVideoCodec")

BLACKWELL = machine("mixed-200", "blackwell-1")
COMMON = """
import base64, json, sys
from fractions import Fraction
import PyNvVideoCodec
from codecfleet.actors.settle.nvenc import nvenc_request
from codecfleet.actors.settle.request import settle
from codecfleet.actors.encode.settings import Codec, RateControl
from codecfleet.actors.media.values import Colour, ContentLight, HdrStatic, VideoFormat
from codecfleet.actors.nvidia.nvenc.device import NvencDevice
from codecfleet.actors.nvidia.nvenc.session import NvencSession
from codecfleet.testing.clips import picture

TICK = Fraction(1, 1000)

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


TEN_BITS = """
library = [line for line in open("/proc/self/maps") if "PyNvVideoCodec_1" in line][0].split("/")[-1]
device = NvencDevice(PyNvVideoCodec)
with NvencSession(device, settled(device, "hevc", "yuv420p10le")) as session:
    packets = [p for n in range(6) for p in session.encode(software(n, "yuv420p10le", n * 40))] + session.finish()
    print(json.dumps([library, session.extradata.hex(), told(packets)]))
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


def answer(ran: Ran) -> Any:
    """Return the last line that a program printed."""
    assert ran.exit_code == 0, ran.stderr
    return json.loads(ran.stdout.strip().splitlines()[-1])


def packets_of(told: list[list[Any]]) -> list[tuple[int, bool, bytes]]:
    """Read packets that the child process wrote."""
    return [(ticks, is_keyframe, base64.b64decode(payload)) for ticks, is_keyframe, payload in told]


def test_new_rates_reach_the_driver() -> None:
    """Each change has every field, including those of the previous change; a keyframe comes where requested."""
    ran = run_on_gpu(COMMON + RECONFIGURE)
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
    """The real package's message for each fault is understood."""
    assert answer(run_on_gpu(COMMON + FAIL, json.dumps(free_bytes), "h264", 1, faults=[fault]))[0] == error


def test_one_session_too_many_is_a_limit() -> None:
    """A GeForce driver opens a fixed number of encoders, however much memory is free."""
    error, held, message = answer(run_on_gpu(COMMON + FAIL, 1 << 40, "h264", 20))
    assert error == "SessionLimit"
    assert 0 < held < 20
    assert f"{held} encoders of this process are open" in message


def test_ten_bits_of_h264_need_a_blackwell() -> None:
    """Settings open if the GPU supports them; otherwise they are refused before an encoder is made."""
    program = COMMON + FAIL.replace('"yuv420p")', '"yuv420p10le")').replace(
        '"yuv420p", number', '"yuv420p10le", number'
    )
    can = run_simulated(program, Scenario(machine=BLACKWELL), visible_devices="1", arguments=["null", "h264", "1"])
    assert answer(can)[0] == "none"
    cannot = run_on_gpu(program, "null", "h264", 1)
    assert answer(cannot)[0] == "EngineUnfit"
    assert "10-bit" in answer(cannot)[2]


@pytest.mark.parametrize(("driver", "variant"), [("535.183.01", "_121."), ("580.95.05", "_130.")])
def test_the_driver_decides_which_interface_is_used(driver: str, variant: str) -> None:
    """The package loads the variant for the driver's interface, and with each variant 10 bits stay 10 bits."""
    ran = run_on_gpu(COMMON + TEN_BITS, driver=driver)
    library, extradata, packets = answer(ran)
    assert variant in library
    decoder = av.CodecContext.create("hevc", "r")
    decoder.extradata = bytes.fromhex(extradata)
    payloads = [payload for _, _, payload in packets_of(packets)]
    frames = [frame for payload in payloads for frame in decoder.decode(av.Packet(payload))] + decoder.decode(None)
    assert [frame.format.name for frame in frames] == ["yuv420p10le"] * 6


def test_an_old_driver_is_refused_by_the_package() -> None:
    """A driver with an older interface than the package supports is refused at import."""
    result = run_on_gpu("import PyNvVideoCodec", driver="525.60.13")
    assert result.exit_code == 1
    assert "too old" in result.stderr

"""Pictures of every surface format into the real PyNvVideoCodec, from the host and from the (simulated) device."""

import json
from importlib.util import find_spec

import pytest

from codecfleet.actors.nvidia.nvenc_surfaces import NvencSurface

from .scenario import Scenario, machine
from .simulated_driver import run_simulated

pytestmark = pytest.mark.skipif(find_spec("PyNvVideoCodec") is None, reason="PyNvVideoCodec is not installed")

BLACKWELL = machine("mixed-200", "blackwell-1")

EVERY_WAY = """
import json, sys
from types import SimpleNamespace
import numpy as np
import PyNvVideoCodec
from cuda.bindings import driver
from codecfleet.actors.encoder_settings import Codec
from codecfleet.actors.nvidia.nvenc_device import NvencDevice
from codecfleet.actors.nvidia.nvenc_inputs import CudaPlanes, device_input, host_input
from codecfleet.actors.nvidia.nvenc_settings import NvencSettings, Qp, RateMode
from codecfleet.actors.nvidia.nvenc_surfaces import NvencSurface
from codecfleet.testing.fake_nvenc_tensor import FakeDeviceTensor

def cuda(result):
    assert not int(result[0]), result
    return result[1] if len(result) > 1 else None

surface = NvencSurface(sys.argv[1])
cuda(driver.cuInit(0))
context = cuda(driver.cuDevicePrimaryCtxRetain(cuda(driver.cuDeviceGet(0))))
cuda(driver.cuCtxSetCurrent(context))
device = NvencDevice(PyNvVideoCodec, cuda_context=int(context))
settings = NvencSettings(codec=Codec.HEVC, rc=RateMode.CONSTQP, constqp=Qp.same(20), bf=0)
size = (320, 240)
data = np.random.default_rng(7).integers(0, 256, surface.frame_bytes(*size)).astype(np.uint8)
address = int(cuda(driver.cuMemAlloc(data.nbytes)))
cuda(driver.cuMemcpyHtoD(address, data.ctypes.data, data.nbytes))

def encoded(picture, from_host):
    encoder = device.open(settings, surface, *size, from_host=from_host)
    try:
        return [entry["data"] for entry in encoder.call("Encode", picture) + encoder.call("EndEncode")]
    finally:
        encoder.close()

shapes = surface.planes(*size)
columns, item = shapes[0].columns * shapes[0].components, shapes[0].component_bytes
rows = data.nbytes // (columns * item)
interface = dict(shape=(rows, columns), typestr=f"|u{item}", data=(address, False), version=3)
ways = {
    "planes": CudaPlanes(address, surface, *size, None),
    "rows": SimpleNamespace(__cuda_array_interface__=interface),
    "tensor": FakeDeviceTensor(address, (rows, columns), item_bytes=item),
    "nchw": FakeDeviceTensor(address, (1, 1, rows, columns), item_bytes=item),
}
found = {name: encoded(device_input(picture, surface, *size), False) for name, picture in ways.items()}
if surface is not NvencSurface.YUV420:
    found |= {
        "array": encoded(host_input(data, surface, *size), True),
        "bytes": encoded(host_input(data.tobytes(), surface, *size), True),
        "wide": encoded(host_input(data.view(np.uint16), surface, *size), True),
    }
print(json.dumps({name: [len(packets), packets == found["planes"]] for name, packets in found.items()}))
"""

DECODED = """
import json, sys
from fractions import Fraction
import numpy as np
import PyNvVideoCodec
from codecfleet.actors.encoder_settings import Codec
from codecfleet.actors.media import VideoFormat
from codecfleet.actors.nvidia.nvenc_device import NvencDevice
from codecfleet.actors.nvidia.nvenc_inputs import TimedPicture
from codecfleet.actors.nvidia.nvenc_profiles import settle_nvenc
from codecfleet.actors.nvidia.nvenc_session import NvencSession
from codecfleet.testing.clips import picture

TICK = Fraction(1, 25)
device = NvencDevice(PyNvVideoCodec)
codec, pix_fmt = Codec(sys.argv[1]), sys.argv[2]
settings = settle_nvenc(codec, format=VideoFormat(320, 240, pix_fmt, Fraction(25)), rate=None, preset=2,
                        time_base=TICK, capabilities=device.capabilities(codec))

def packets_of(session, pictures):
    return [packet for given in pictures for packet in session.encode(given)] + session.finish()

def software():
    for number in range(6):
        frame = picture(number, 320, 240).reformat(format=pix_fmt)
        frame.pts, frame.time_base = number, TICK
        yield frame

def decoded(first, on_device):
    kind = getattr(PyNvVideoCodec.cudaVideoCodec, codec.name)
    decoder = PyNvVideoCodec.CreateDecoder(gpuid=0, codec=kind, usedevicememory=on_device)
    taken = 0
    for data in [*first, None]:
        packet = PyNvVideoCodec.PacketData()
        if data is not None:
            held = np.frombuffer(data, np.uint8)
            packet.bsl, packet.bsl_data = held.size, held.ctypes.data
        for frame in decoder.Decode(packet):
            yield TimedPicture(frame, taken)
            taken += 1

with NvencSession(device, settings) as session:
    source = [packet.payload for packet in packets_of(session, software())]
    source[0] = session.extradata + source[0]
results = []
for on_device in (True, False):
    with NvencSession(device, settings, from_host=not on_device) as session:
        results.append(packets_of(session, decoded(source, on_device)))
print(json.dumps([[packet.pts_ticks for packet in results[0]], results[0] == results[1]]))
"""


@pytest.mark.parametrize("surface", NvencSurface)
def test_every_surface_is_taken_in_every_form(surface: NvencSurface) -> None:
    """The package takes what our checks let through, and every form of a picture gives the same packet."""
    ran = run_simulated(EVERY_WAY, Scenario(machine=BLACKWELL), visible_devices="1", arguments=[surface.value])
    assert ran.exit_code == 0, ran.stderr
    found = json.loads(ran.stdout.strip().splitlines()[-1])
    assert len(found) == (4 if surface is NvencSurface.YUV420 else 7)
    assert set(map(tuple, found.values())) == {(1, True)}


@pytest.mark.parametrize(("codec", "pix_fmt"), [("h264", "yuv420p"), ("hevc", "yuv420p10le")])
def test_frames_of_the_packages_decoder_are_taken_as_they_are(codec: str, pix_fmt: str) -> None:
    """What the package decodes, on the device or to the host, goes into the session with no copy of ours."""
    ran = run_simulated(DECODED, Scenario(machine=machine("rtx-4090")), visible_devices="0", arguments=[codec, pix_fmt])
    assert ran.exit_code == 0, ran.stderr
    assert json.loads(ran.stdout.strip().splitlines()[-1]) == [list(range(6)), True]

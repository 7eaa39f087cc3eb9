"""``frames`` and ``encode`` on the simulator, with a GPU, context and stream that the caller names."""

from pathlib import Path

from .scenario import Scenario, machine
from .simulated_driver import needs, run_simulated
from .test_frames import answers, clip

pytestmark = needs("PyNvVideoCodec")

L4S = machine("l4-x4")

PLACES = """
import asyncio, hashlib, json, sys
from uuid import UUID
from cuda.bindings import driver
import codecfleet
from codecfleet.errors import UsageError

source, output = sys.argv[1:]

def cuda(result):
    assert not int(result[0]), result
    return result[1] if len(result) > 1 else None

def current():
    return int(cuda(driver.cuCtxGetCurrent()))

def hashes(**options):
    found = []
    for frame in codecfleet.frames(source, **options):
        device = frame.__dlpack_device__()[1] if frame.on_device else None
        found.append((device, hashlib.md5(frame.to_ndarray().tobytes()).hexdigest()))
        del frame
        assert current() == own
    return found

def answer(call):
    try:
        return call()
    except UsageError as error:
        return error.message

cuda(driver.cuInit(0))
own = int(cuda(driver.cuCtxCreate(None, 0, 2)))
wanted = [digest for _, digest in hashes(decoder="software")]
uuid = f"GPU-{UUID(bytes=bytes(cuda(driver.cuDeviceGetUuid(3)).bytes))}"
for options in ({"device": 1}, {"device": uuid}, {"context": own}):
    found = hashes(place="device", decoder="nvdec", stream=1, **options)
    print(json.dumps([[digest for _, digest in found] == wanted, sorted({device for device, _ in found})]))
frames = list(codecfleet.frames(source, place="device", decoder="nvdec", device=1))
print(json.dumps([
    answer(lambda: asyncio.run(codecfleet.encode(frames, output, fps=25))),
    answer(lambda: hashes(place="device", device=9)),
    answer(lambda: hashes(place="device", device="GPU-00000000-0000-0000-0000-000000000000")),
    answer(lambda: hashes(place="device", device=1, context=own)),
    answer(lambda: hashes(place="device", context=4096)),
    answer(lambda: hashes(decoder="software", device=1)),
]))
report = asyncio.run(codecfleet.encode(frames, output, fps=25, device=1, encoder="nvenc"))
print(json.dumps([report.encoder, report.from_device, report.frames_out]))
frames.clear()
print(json.dumps([current() == own]))
"""


def test_frames_come_from_the_gpu_and_the_context_that_are_named(tmp_path: Path) -> None:
    """With an ordinal, UUID or context, frames are on that device, and the caller's context stays current."""
    ran = run_simulated(PLACES, Scenario(machine=L4S), arguments=[str(clip(tmp_path)), str(tmp_path / "out.mp4")])
    *places, refusals, report, same = answers(ran)
    assert places == [[True, [1]], [True, [3]], [True, [2]]]
    assert refusals[:3] == [
        "a frame is on GPU 1 of this process, but frames are encoded on GPU 0",
        "this process has no CUDA device 9; it sees 4, numbered from 0",
        "this process has no CUDA device GPU-00000000-0000-0000-0000-000000000000; it sees 4, numbered from 0",
    ]
    assert refusals[3] == "the context belongs to device 2, and not to device 1"
    assert refusals[4].startswith("this process has no CUDA context 4096: ")
    assert "software decodes to the host" in refusals[5]
    assert report == ["h264_nvenc", True, 40]
    assert same == [True]


TO_HOST = """
import json, sys
import codecfleet

for frame in codecfleet.frames(sys.argv[1], place="device", decoder="nvdec"):
    frame.to_ndarray()
print(json.dumps([]))
"""


def test_frames_that_come_to_the_host_share_a_stream(tmp_path: Path) -> None:
    """However many frames are copied, streams are opened only for three sessions, the pool and the movers."""
    ran = run_simulated(TO_HOST, Scenario(machine=L4S), visible_devices="0", arguments=[str(clip(tmp_path))])
    assert answers(ran) == [[]]
    assert len(ran.calls("cuMemcpyDtoHAsync")) >= 40
    assert len(ran.calls("cuStreamCreate")) < 10

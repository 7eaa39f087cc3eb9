"""``frames`` and ``encode`` with the real PyNvVideoCodec on the driver simulator.

The simulator decodes and encodes in software behind NVDEC's and NVENC's interfaces: pictures and bitstreams are real,
but these tests show nothing about a GPU.
"""

import json
from pathlib import Path
from typing import Any

import av
import pytest

from codecfleet.testing.clips import Clip, constant_times, make_clip
from tests.spliced import TrackPacket, splice

from .scenario import Action, Fault
from .simulated_driver import Ran, needs, run_on_gpu

pytestmark = needs("PyNvVideoCodec")

COUNT = 40
GOPS = {
    "libx264": ("x264-params", "keyint=10:min-keyint=10:scenecut=0:bframes=2"),
    "libx265": ("x265-params", "keyint=10:min-keyint=10:scenecut=0:log-level=none"),
}

COMMON = """
import asyncio, gc, hashlib, json, sys
from fractions import Fraction
import codecfleet
from codecfleet.jobs.frames.request import FrameRequest
from codecfleet.jobs.frames.stream import FrameStream
from codecfleet.cluster.worker.own_gpu import own_gpu

def stream(source, **options):
    return FrameStream(FrameRequest(source=source, segment_s=Fraction(1, 2), threads=3, **options), own_gpu)

def told(frame):
    return [frame.index, str(frame.time_s), hashlib.sha256(frame.to_ndarray().tobytes()).hexdigest()]
"""

DECODE = """
async def read(**options):
    frames = stream(sys.argv[1], **options)
    found = [[*told(frame), frame.on_device] async for frame in frames]
    return found, frames.report

async def main():
    wanted, _ = await read(decoder="software")
    answers = []
    for place in ("host", "device", "auto"):
        found, report = await read(place=place)
        same = [each[:3] for each in found] == [each[:3] for each in wanted]
        answers.append([place, len(found), same, found[0][3], report.decoded_by, report.fallbacks])
    print(json.dumps(answers))

asyncio.run(main())
"""

OPTIONS = """
from codecfleet import NvdecOptions
from codecfleet.errors import EngineUnfit

async def read(place="host", decoder="nvdec", **options):
    nvdec = NvdecOptions(**options) if options else NvdecOptions()
    return [frame async for frame in stream(sys.argv[1], place=place, decoder=decoder, nvdec=nvdec)]

async def main():
    wanted = [told(frame) for frame in await read(decoder="software")]
    same = []
    for options in ({"latency": "low"}, {"latency": "zero"}, {"largest": (640, 480)}):
        for place in ("host", "device"):
            same.append([told(frame) for frame in await read(place, **options)] == wanted)
    found = await read("device", sei_messages=True)
    same.append([told(frame) for frame in found] == wanted)
    print(json.dumps(same))
    print(json.dumps([[message.kind for message in frame.notes.sei_messages] for frame in found]))
    print(json.dumps([b"x264" in found[0].notes.sei_messages[0].payload]))
    try:
        await read(statistics=True)
    except EngineUnfit as error:
        print(json.dumps([error.message]))

asyncio.run(main())
"""

ENCODE = """
async def main():
    report = await codecfleet.encode(stream(sys.argv[1], place="device"), sys.argv[2], codec=sys.argv[3], preset=4)
    print(json.dumps([report.encoder, report.from_device, report.frames_in, report.frames_out, report.fallback]))
    async def read(source):
        return [(str(frame.time_s), frame.planes[0].astype(int)) async for frame in stream(source, decoder="software")]
    before, after = await read(sys.argv[1]), await read(sys.argv[2])
    print(json.dumps([
        [time for time, _ in before] == [time for time, _ in after],
        max(float(abs(a - b).mean()) for (_, a), (_, b) in zip(before, after)),
    ]))

asyncio.run(main())
"""

TENSORS = """
import ctypes
from codecfleet.actors.surfaces.device_tensor import device_tensor

async def main():
    frames = stream(sys.argv[1], place="device")
    async for frame in frames:
        tensor = device_tensor(frame)
        rows = ctypes.string_at(tensor.address, tensor.shape[0] * tensor.shape[1] * tensor.item_bytes)
        surface = frame.to_video_frame().reformat(format="nv12").to_ndarray().tobytes()
        print("between frames", flush=True)
        break
    await frames.aclose()
    print(json.dumps([rows == surface, list(tensor.shape), frame.__dlpack_device__()]))

asyncio.run(main())
print("after the stream")
"""


def clip(folder: Path, encoder: str = "libx264", pix_fmt: str = "yuv420p") -> Path:
    """Make a film of four groups of pictures, large enough for NVDEC and NVENC."""
    options = Clip(
        times=constant_times(COUNT), encoder=encoder, options=(GOPS[encoder],), width=192, height=160, pix_fmt=pix_fmt
    )
    return make_clip(folder / "in.mp4", options)


def answers(ran: Ran) -> list[Any]:
    """Return the lines that a program printed."""
    assert ran.exit_code == 0, ran.stderr
    return [
        json.loads(line) for line in ran.stdout.splitlines() if line.startswith("[") and not line.startswith("[WARN ]")
    ]


@pytest.mark.parametrize(("encoder", "pix_fmt"), [("libx264", "yuv420p"), ("libx265", "yuv420p10le")])
def test_frames_on_the_device_are_software_s(tmp_path: Path, encoder: str, pix_fmt: str) -> None:
    """Frames on host and device have software's hashes, order and times; sessions are shared, without fallbacks."""
    (found,) = answers(run_on_gpu(COMMON + DECODE, clip(tmp_path, encoder, pix_fmt)))
    assert [each[:4] for each in found] == [
        ["host", COUNT, True, False],
        ["device", COUNT, True, True],
        ["auto", COUNT, True, True],
    ]
    assert all(set(decoded_by) == {"nvdec"} and not fallbacks for *_, decoded_by, fallbacks in found)


@pytest.mark.parametrize("codec", ["h264", "hevc", "av1"])
def test_frames_on_the_device_are_encoded_there(tmp_path: Path, codec: str) -> None:
    """Frames decoded on NVDEC and encoded on NVENC never reach the host; count, times and pictures stay the same."""
    output = tmp_path / "out.mp4"
    ran = run_on_gpu(COMMON + ENCODE, clip(tmp_path), output, codec)
    report, (same_times, difference) = answers(ran)
    assert report == [f"{codec}_nvenc", True, COUNT, COUNT, ""]
    assert same_times
    assert difference < 12
    # Of each of the four segments, the first two pictures and the two after its end are hashed on the host.
    assert 0 < len(ran.calls("cuMemcpyDtoHAsync")) <= 4 * 4


def test_options_of_nvdec_reach_the_decoder(tmp_path: Path) -> None:
    """Latency, largest size and SEI messages change no sample; drivers without statistics refuse to give them."""
    ordered = "keyint=10:min-keyint=10:scenecut=0:bframes=0:force-cfr=1:nal-hrd=none"
    sizes = ((192, 160), (320, 240))
    clips = [
        Clip(times=constant_times(COUNT), options=(("x264-params", ordered),), width=width, height=height)
        for width, height in sizes
    ]
    first, packets = splice(tmp_path, ".ts", clips)
    film = remuxed(first, packets, tmp_path / "film.ts")
    ran = run_on_gpu(COMMON + OPTIONS, film)
    same, kinds, user_data, refusal = answers(ran)
    assert same == [True] * 7
    assert len(kinds) == 2 * COUNT
    assert [number for number, each in enumerate(kinds) if 5 in each] == [0, COUNT]
    assert user_data == [True]
    assert refusal[0].startswith("statistics: this GPU's driver has no decode statistics")
    delays = [line.values["delay"] for line in ran.told("cuvidCreateVideoParser")]
    assert delays.count("0") >= 2
    assert ran.calls("cuvidReconfigureDecoder")


def remuxed(template: Path, packets: list[TrackPacket], path: Path) -> Path:
    """Write packets into a file, as the track of ``template``."""
    with av.open(str(template)) as source, av.open(str(path), "w") as output:
        track = source.streams.video[0]
        stream = output.add_stream_from_template(track)
        for each in packets:
            packet = av.Packet(each.data)
            packet.pts = packet.dts = each.pts
            packet.time_base, packet.stream, packet.is_keyframe = track.time_base, stream, each.is_keyframe
            output.mux(packet)
    return path


def test_a_segment_with_a_picture_that_nvdec_spoils_is_decoded_in_software(tmp_path: Path) -> None:
    """The driver's report of a wrong picture counts for frames on host and device; its text reaches standard output."""
    spoilt = Fault(function="cuvidDecodePicture", action=Action.CORRUPT, call=12)
    in_one_segment = COMMON.replace("Fraction(1, 2)", "Fraction(60)")  # a wrong picture here would be noticed at a seam
    ran = run_on_gpu(in_one_segment + DECODE, clip(tmp_path), faults=[spoilt])
    (found,) = answers(ran)
    assert [each[:3] for each in found] == [["host", COUNT, True], ["device", COUNT, True], ["auto", COUNT, True]]
    assert [each[4] for each in found] == [{"software": 1}, {"nvdec": 1}, {"nvdec": 1}]
    assert found[0][5] == ["NVDEC reported wrong pictures of this source, or of another source decoded meanwhile"]
    assert "Decode Error occurred for picture" in ran.stdout


def test_a_tensor_is_the_decoder_s_surface_and_output_is_the_program_s_own(tmp_path: Path) -> None:
    """DLPack gives the memory with NV12; the program's own output appears in order."""
    ran = run_on_gpu(COMMON + TENSORS, clip(tmp_path))
    assert answers(ran) == [[True, [240, 192], [2, 0]]]
    lines = ran.stdout.splitlines()
    assert [line for line in lines if "frames" in line or "stream" in line] == ["between frames", "after the stream"]

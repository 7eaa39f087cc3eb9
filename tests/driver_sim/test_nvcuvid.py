import json
import sys
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgpack
import pytest

from .clips import Clip, encoded, film_packets, software_frames
from .scenario import Action, Fault, Scenario, machine
from .simulated_driver import Ran, run_simulated

pytestmark = pytest.mark.skipif(find_spec("PyNvVideoCodec") is None, reason="PyNvVideoCodec is not installed")

PROGRAM = Path(__file__).with_name("program_decode.py")
CAPS = """
import json, PyNvVideoCodec as nvc
kinds = [("H264", 8), ("H264", 10), ("HEVC", 10), ("VP9", 8), ("AV1", 8), ("JPEG", 8)]
chroma = getattr(nvc.cudaVideoChromaFormat, "420")
codecs = [(getattr(nvc.cudaVideoCodec, name), depth) for name, depth in kinds]
caps = [nvc.GetDecoderCaps(gpuid=0, codec=codec, chromaformat=chroma, bitdepth=depth) for codec, depth in codecs]
print(json.dumps([[one["supported"], one["num_decoder_engines"], one["width_max"]] for one in caps]))
"""

SEI = """
import json, sys, msgpack, numpy as np, PyNvVideoCodec as nvc
told = []
for codec, packets in msgpack.unpackb(open(sys.argv[1], "rb").read()):
    decoder = nvc.CreateDecoder(gpuid=0, codec=getattr(nvc.cudaVideoCodec, codec), enableSEIMessage=True)
    frames = []
    for data, pts in [*packets, (b"", 0)]:
        packet, buffer = nvc.PacketData(), np.frombuffer(data, np.uint8)
        packet.bsl, packet.bsl_data, packet.pts = len(data), buffer.ctypes.data if data else 0, pts
        frames += [frame.getSEIMessage() for frame in decoder.Decode(packet)]
    told.append([[[kind["sei_type"], bytes(data)[16:20].decode()] for kind, data in each] for each in frames])
print(json.dumps(told))
"""


@dataclass(frozen=True)
class Job:
    """What a decoder is fed: segments of packets."""

    codec: str
    segments: list[list[tuple[bytes, int]]]
    device_memory: bool = False
    latency: str = "NATIVE"


@dataclass
class Decoded:
    """What came of the jobs, and how the process ran."""

    ran: Ran
    answers: list[dict[str, Any]] = field(default_factory=list)

    def frames(self, job: int = 0, segment: int = 0) -> list[list[Any]]:
        """The frames of a segment."""
        frames: list[list[Any]] = self.answers[job]["segments"][segment]
        return frames


def decode(folder: Path, *jobs: Job, scenario: Scenario | None = None, timeout_s: float = 60) -> Decoded:
    """Decode on the simulated machine; without answers where the process did not come to its end."""
    (folder / "jobs").write_bytes(msgpack.packb({"jobs": [vars(job) for job in jobs]}))
    command = [sys.executable, str(PROGRAM), str(folder / "jobs")]
    ran = run_simulated(command, scenario or Scenario(machine=machine("l4-x4")), timeout_s=timeout_s)
    if ran.exit_code != 0:
        return Decoded(ran)
    return Decoded(ran, json.loads(ran.stdout.splitlines()[-1]))


@cache
def h264() -> Clip:
    """A closed and an open GOP: the second begins at a recovery point that is not an IDR picture."""
    options = {"g": "12", "bf": "2", "x264-params": "open-gop=1:keyint=12:scenecut=0:ref=2"}
    return encoded("libx264", "h264", 24, options)


@cache
def hevc() -> Clip:
    """10 bits, with CRA pictures and RASL pictures after them."""
    gop = "open-gop=1:keyint=12:min-keyint=12:bframes=3:b-adapt=0:scenecut=0"
    options = {"x265-params": f"{gop}:repeat-headers=1:log-level=none"}
    return encoded("libx265", "hevc", 30, options, "yuv420p10le")


def nal_types(data: bytes) -> list[int]:
    """Return the HEVC NAL unit types of an access unit."""
    parts = data.split(b"\0\0\1")[1:]
    return [part[0] >> 1 & 0x3F for part in parts]


def test_the_wheel_reads_the_scenarios_capabilities() -> None:
    """GetDecoderCaps answers what the device of the scenario can, with its engines, and no for the rest."""
    l4 = run_simulated(CAPS, Scenario(machine=machine("l4-x4")))
    h200 = run_simulated(CAPS, Scenario(machine=machine("h200-l40s")))
    no = [0, 0, 0]
    yes = [1, 4, 4096], no, [1, 4, 8192], [1, 4, 8192], [1, 4, 8192], [1, 1, 32768]
    assert json.loads(l4.stdout) == list(yes), l4.stderr
    assert json.loads(h200.stdout) == [[1, 7, 4096], no, [1, 7, 8192], [1, 7, 8192], no, [1, 1, 32768]]


def test_a_slice_without_nvdec_decodes_nothing() -> None:
    """A MIG instance that has no NVDEC has no capabilities, though its GPU's engines could."""
    node = machine("a100-mig")
    profiles = {each.profile: each.uuid for device in node.devices for each in device.slices}
    answers = [
        json.loads(run_simulated(CAPS, Scenario(machine=node), visible_devices=profiles[profile]).stdout)
        for profile in ("1g.5gb", "3g.20gb")
    ]
    assert [answer[0] for answer in answers] == [[0, 0, 0], [1, 2, 4096]]


def test_a_film_decodes_bit_identically_to_software(tmp_path: Path, film: Path) -> None:
    """The bundled film's frames, in host and in device memory, are software's, in order, with their PTS."""
    clip = film_packets(film, 24)
    expected = software_frames(clip)
    jobs = [Job("H264", [clip.fed()], device_memory=device) for device in (False, True)]
    done = decode(tmp_path, *jobs)
    assert [answer["error"] for answer in done.answers] == ["", ""], done.ran.stderr
    assert done.frames(0) == expected
    assert done.frames(1) == expected
    created = done.ran.told("cuvidCreateDecoder")[0].values
    assert (created["width"], created["height"], created["depth"]) == ("1920", "1088", "8")


def test_every_codec_decodes_bit_identically_to_software(tmp_path: Path) -> None:
    """VP8, VP9, AV1 and MPEG-2 give software's frames; VP9 gives each picture the PTS of the one before, as an H200."""
    clips = [
        ("VP8", encoded("libvpx", "vp8", 12, {"g": "6", "deadline": "realtime"})),
        ("VP9", encoded("libvpx-vp9", "vp9", 12, {"g": "6", "deadline": "realtime", "cpu-used": "8"})),
        ("AV1", encoded("libsvtav1", "libdav1d", 12, {"preset": "12", "svtav1-params": "lp=1"})),
        ("MPEG2", encoded("mpeg2video", "mpeg2video", 12, {"g": "6", "bf": "2"})),
    ]
    done = decode(tmp_path, *[Job(codec, [clip.fed()]) for codec, clip in clips])
    expected = [software_frames(clip) for _, clip in clips]
    for number, frames in enumerate(expected):
        times = [pts for pts, _ in frames]
        told = times if number != 1 else [times[0], *times[:-1]]
        shown = [[pts, digest] for pts, (_, digest) in zip(told, frames, strict=True)]
        assert done.frames(number) == shown, f"{clips[number][0]}: {done.answers[number]['error']}"


def test_hevc_segments_that_begin_at_a_cra_picture(tmp_path: Path) -> None:
    """A start at a CRA picture loses it to its RASL pictures, as on an H200; without them all frames are exact."""
    clip = hevc()
    expected = software_frames(clip)
    cra = next(n for n, packet in enumerate(clip.packets) if n > 0 and packet.is_keyframe)
    start_pts = clip.packets[cra].pts
    with_leading = clip.fed(cra)
    leading = [pts for data, pts in with_leading if {8, 9} & set(nal_types(data))]
    without = [(data, pts) for data, pts in with_leading if pts not in leading or pts > start_pts]
    assert min(leading) < start_pts < max(leading)  # of this CRA picture, and of the next
    done = decode(tmp_path, Job("HEVC", [clip.fed(), without, with_leading]))
    from_start = [frame for frame in expected if int(str(frame[0])) >= start_pts]
    assert done.frames(0, 0) == expected
    assert done.frames(0, 1) == from_start
    times = [pts for pts, _ in done.frames(0, 2)]
    assert start_pts not in times
    assert [pts for pts in times if pts < start_pts] == sorted(pts for pts in leading if pts < start_pts)
    assert done.frames(0, 2)[-5:] == from_start[-5:]
    assert done.ran.told("cuvidCreateDecoder")[0].values["format"] == "1"
    assert len(done.ran.told("cuvidCreateDecoder")) == 1


def test_h264_segments_need_their_parameter_sets(tmp_path: Path) -> None:
    """After a flush no H.264 picture comes before SPS and PPS; with them a recovery point starts exactly."""
    clip = h264()
    expected = software_frames(clip)
    entry = next(n for n, packet in enumerate(clip.packets) if n > 0 and packet.is_keyframe)
    start_pts = clip.packets[entry].pts
    first = clip.packets[0].data
    parameter_sets = first[: first.index(b"\0\0\1\x06") if b"\0\0\1\x06" in first else first.index(b"\0\0\1\x65")]
    bare = [(data.replace(parameter_sets, b""), pts) for data, pts in clip.fed(entry)]
    whole = [(parameter_sets + bare[0][0], bare[0][1]), *bare[1:]]
    done = decode(tmp_path, Job("H264", [clip.fed(), bare, whole]))
    assert done.frames(0, 0) == expected
    assert done.frames(0, 1) == []
    later = [frame for frame in done.frames(0, 2) if frame[0] >= start_pts]
    assert later == [frame for frame in expected if int(str(frame[0])) >= start_pts]


def test_a_codec_that_the_device_lacks_is_refused(tmp_path: Path) -> None:
    """On a device without AV1 the wheel raises what it raises on an H200."""
    clip = encoded("libsvtav1", "libdav1d", 2, {"preset": "12", "svtav1-params": "lp=1"})
    done = decode(tmp_path, Job("AV1", [clip.fed()]), scenario=Scenario(machine=machine("h200-l40s")))
    assert done.answers[0]["error"].startswith("PyNvVCExceptionUnsupported")
    assert "801" in done.answers[0]["error"]


def test_zero_latency_gives_each_picture_at_once(tmp_path: Path) -> None:
    """A picture that is flagged as whole comes out of the call that took it."""
    clip = encoded("libx264", "h264", 6, {"tune": "zerolatency", "preset": "ultrafast"})
    done = decode(tmp_path, Job("H264", [[packet] for packet in clip.fed()], latency="ZERO"))
    digests = [frames[0][1] for frames in done.answers[0]["segments"] if frames]
    assert digests == [digest for _, digest in software_frames(clip)][: len(digests)]
    assert len(digests) >= 1


def test_sei_messages_come_with_their_pictures(tmp_path: Path) -> None:
    """The encoders' own user data (SEI type 5) is told with the first picture of H.264 and of HEVC, and no other."""
    options = {"x265-params": "info=1:keyint=9:log-level=none"}
    clips = [("H264", h264()), ("HEVC", encoded("libx265", "hevc", 6, options))]
    packed = msgpack.packb([[codec, clip.fed(0, 6)] for codec, clip in clips])
    (tmp_path / "packets").write_bytes(packed)
    ran = run_simulated(SEI, Scenario(machine=machine("l4-x4")), arguments=[str(tmp_path / "packets")])
    first, second = json.loads(ran.stdout.splitlines()[-1])
    assert [5, "x264"] in first[0]
    assert [5, "x265"] in second[0]
    assert all(5 not in [kind for kind, _ in each] for each in (*first[1:], *second[1:]))


def faulty(*faults: Fault) -> Scenario:
    """Return a machine on which something goes wrong."""
    return Scenario(machine=machine("l4-x4"), faults=faults)


def test_pictures_are_left_out_and_spoilt(tmp_path: Path) -> None:
    """``short`` leaves a picture out, ``corrupt`` shows it with an error that the driver tells of."""
    clip = h264()
    expected = software_frames(clip)
    decoding = "cuvidDecodePicture"
    scenario = faulty(
        Fault(function=decoding, action=Action.SHORT, call=2), Fault(function=decoding, action=Action.CORRUPT, call=1)
    )
    done = decode(tmp_path, Job("H264", [clip.fed()]), scenario=scenario)
    frames = done.frames()
    assert [pts for pts, _ in frames] == [pts for pts, _ in expected if pts != clip.packets[1].pts]
    assert [frame for frame in frames if frame not in expected] == [frames[0]]
    assert "Decode Error occurred for picture" in done.ran.stdout


@pytest.mark.parametrize(
    ("function", "value"), [("cuvidCreateDecoder", 2), ("cuvidDecodePicture", 999), ("cuvidMapVideoFrame", 205)]
)
def test_a_status_reaches_the_wheel(tmp_path: Path, function: str, value: int) -> None:
    """A status that a fault gives is the one that the wheel raises."""
    scenario = faulty(Fault(function=function, action=Action.STATUS, value=value, call=1))
    done = decode(tmp_path, Job("H264", [h264().fed()]), scenario=scenario)
    assert f"returned error {value}" in done.answers[0]["error"]


def test_a_decoder_may_hang_exit_and_be_lost(tmp_path: Path) -> None:
    """A hanging call never returns, an exiting one ends the process, a lost device answers nothing any more."""
    job = Job("H264", [h264().fed()])
    decoding = "cuvidDecodePicture"
    hung = decode(tmp_path, job, scenario=faulty(Fault(function=decoding, action=Action.HANG, call=3)), timeout_s=5)
    ended = Fault(function=decoding, action=Action.EXIT, value=41, call=3)
    lost = decode(tmp_path, job, scenario=faulty(Fault(function=decoding, action=Action.LOSE, call=3)))
    assert hung.ran.exit_code is None
    assert len(hung.ran.calls(decoding)) == 3
    assert decode(tmp_path, job, scenario=faulty(ended)).ran.exit_code == 41
    assert lost.ran.exit_code == 1  # the wheel ends the process when it cannot give its context back
    assert "CUDA_ERROR_UNKNOWN" in lost.ran.stdout


def test_a_decoder_takes_memory_and_is_refused_where_there_is_none(tmp_path: Path) -> None:
    """A decoder whose surfaces do not fit into the device's memory is refused with CUDA_ERROR_OUT_OF_MEMORY."""
    node = machine("l4-x4")
    small = replace(node, devices=tuple(replace(device, memory_bytes=1 << 20) for device in node.devices))
    done = decode(tmp_path, Job("H264", [h264().fed()]), scenario=Scenario(machine=small))
    assert "returned error 2" in done.answers[0]["error"]

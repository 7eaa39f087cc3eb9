"""Decoder sessions of the product on the simulated driver: what is asked of them arrives, and pictures are exact."""

import json
import sys
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgpack
import pytest

from .clips import Clip, encoded, software_frames
from .scenario import Scenario, machine
from .simulated_driver import Ran, run_simulated

pytestmark = pytest.mark.skipif(find_spec("PyNvVideoCodec") is None, reason="PyNvVideoCodec is not installed")

PROGRAM = Path(__file__).with_name("program_sessions.py")
SIZES = (192, 160), (320, 232), (96, 72)
"""The second and third are not a whole number of macroblocks high."""
X265 = "keyint=24:bframes=3:log-level=none"
ENCODERS = {
    "h264": ("libx264", "h264", {"bf": "2"}, "yuv420p"),
    "hevc": ("libx265", "hevc", {"x265-params": X265}, "yuv420p10le"),
    "vp9": ("libvpx-vp9", "vp9", {"deadline": "realtime", "cpu-used": "8"}, "yuv420p"),
    "vp8": ("libvpx", "vp8", {"deadline": "realtime"}, "yuv420p"),
    "av1": ("libsvtav1", "libdav1d", {"preset": "12", "svtav1-params": "lp=1"}, "yuv420p"),
}


@cache
def clip(codec: str, size: tuple[int, int], frames: int = 6) -> Clip:
    """Return a clip of a codec."""
    encoder, decoder, options, pixel_format = ENCODERS[codec]
    return encoded(encoder, decoder, frames, options, pixel_format, size=size)


@dataclass
class Job:
    """What one session is fed."""

    codec: str
    clips: list[tuple[tuple[int, int], Clip]]
    options: dict[str, Any] = field(default_factory=dict)

    def packed(self) -> dict[str, Any]:
        """Return it as the program takes it."""
        return {
            "codec": self.codec,
            "pix_fmt": ENCODERS[self.codec][3],
            "options": self.options,
            "ranges": [[*size, each.fed()] for size, each in self.clips],
        }


@dataclass
class Done:
    """What came of the jobs, and how the process ran."""

    ran: Ran
    answers: list[dict[str, Any]]

    def digests(self, job: int) -> list[list[str]]:
        """Return the pictures of a job's ranges."""
        assert self.answers[job]["error"] == "", self.ran.stderr
        return [[digest for _, digest, *_ in range_] for range_ in self.answers[job]["ranges"]]


def run(folder: Path, *jobs: Job) -> Done:
    """Run jobs on a simulated L4."""
    (folder / "jobs").write_bytes(msgpack.packb({"jobs": [job.packed() for job in jobs]}))
    ran = run_simulated([sys.executable, str(PROGRAM), str(folder / "jobs")], Scenario(machine=machine("l4-x4")))
    assert ran.exit_code == 0, ran.stderr
    return Done(ran, json.loads(ran.stdout.splitlines()[-1]))


def software(clips: list[tuple[tuple[int, int], Clip]]) -> list[list[str]]:
    """Return what software makes of clips."""
    return [[str(digest) for _, digest in software_frames(each)] for _, each in clips]


def test_a_session_is_turned_from_size_to_size(tmp_path: Path) -> None:
    """Every codec: pictures of each size are software's, larger, smaller and cropped, on one decoder."""
    order = [SIZES[0], SIZES[1], SIZES[2], SIZES[2], SIZES[0], SIZES[1]]
    jobs = [Job(codec, [(size, clip(codec, size)) for size in order], {"largest": (640, 480)}) for codec in ENCODERS]
    done = run(tmp_path, *jobs)
    for number, job in enumerate(jobs):
        assert done.digests(number) == software(job.clips), job.codec
    created = done.ran.told("cuvidCreateDecoder")
    assert [(one.values["width_most"], one.values["height_most"]) for one in created] == [("640", "480")] * len(jobs)
    assert len(done.ran.told("cuvidReconfigureDecoder")) == 4 * len(jobs)


def test_a_size_that_is_too_large_is_refused(tmp_path: Path) -> None:
    """Without room for it, a session is turned to no larger size."""
    job = Job("h264", [(size, clip("h264", size)) for size in SIZES[:2]])
    (answer,) = run(tmp_path, job).answers
    assert len(answer["ranges"]) == 1
    assert answer["error"]


@pytest.mark.parametrize("frames", [1, 2, 3])
def test_tiny_ranges_come_whole(tmp_path: Path, frames: int) -> None:
    """One, two and three pictures come out of a flush, range after range, with every codec."""
    jobs = [Job(codec, [(SIZES[0], clip(codec, SIZES[0], frames))] * 3) for codec in ENCODERS]
    done = run(tmp_path, *jobs)
    for number, job in enumerate(jobs):
        assert done.digests(number) == software(job.clips), job.codec
        assert done.digests(number)[0]
    assert len(done.ran.told("cuvidCreateDecoder")) == len(jobs)


def test_latency_arrives(tmp_path: Path) -> None:
    """The parser holds back pictures, or none: without latency each comes with its own packet, and all are the same."""
    plain = encoded("libx264", "h264", 6, {"tune": "zerolatency", "preset": "ultrafast"})
    clips = [(SIZES[0], plain)]
    jobs = [Job("h264", clips, {"latency": latency}) for latency in ("native", "low", "zero")]
    done = run(tmp_path, *jobs)
    assert [done.digests(number) for number in range(3)] == [software(clips)] * 3
    delays = [int(line.values["delay"]) for line in done.ran.told("cuvidCreateVideoParser")]
    assert delays[0] > 0
    assert delays[1:] == [0, 0]
    native, _, zero = ([fed for *_, fed in answer["ranges"][0]] for answer in done.answers)
    assert zero == [1, 2, 3, 4, 5, 6]
    assert all(late > at_once for late, at_once in zip(native, zero, strict=True))


def test_messages_come_where_they_are_asked_for(tmp_path: Path) -> None:
    """The encoder's user data (type 5) is told of the first picture; without the option nothing is."""
    clips = [(SIZES[0], clip("h264", SIZES[0]))]
    done = run(tmp_path, Job("h264", clips, {"sei_messages": True}), Job("h264", clips))
    told, silent = ([kinds for _, _, kinds, _ in answer["ranges"][0]] for answer in done.answers)
    assert [5 in kinds for kinds in told] == [True, *[False] * 5]
    assert silent == [[]] * 6
    assert done.digests(0) == done.digests(1) == software(clips)


def test_statistics_are_refused_where_the_driver_has_none(tmp_path: Path) -> None:
    """The option reaches the package, which warns; the session says so by its name."""
    done = run(tmp_path, Job("h264", [(SIZES[0], clip("h264", SIZES[0]))], {"statistics": True}))
    assert "Decode statistics requested but not supported" in done.ran.stdout
    assert done.answers[0]["error"].startswith("EngineUnfit: statistics: ")

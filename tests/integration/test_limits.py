"""What a job does at its limits: a thousand segments, little memory, full disks, sources that change, sudden deaths."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import av
import fsspec
import numpy as np
import psutil
import pytest
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from fsspec.implementations.memory import MemoryFileSystem

from codecfleet import Fleet, Job, Report, TranscodeSpec
from codecfleet.actors.bitstream import RandomAccess
from codecfleet.actors.decoding import SOFTWARE, DecodeRange, DecodeTally, decode_range, picture_hash
from codecfleet.errors import Cancelled, CodecfleetError, InputUnreadable, OutputExists, StorageFailed
from codecfleet.jobs.cuts import choose_cuts
from codecfleet.jobs.events import Event, SegmentFinished
from codecfleet.jobs.index import KEY, TrackIndex
from codecfleet.jobs.source import read_source
from codecfleet.testing import LocalPool
from codecfleet.testing.clips import Clip, constant_times, make_clip

LOSSLESS: dict[str, object] = {"codec": "h264", "quality": 0, "preset": 1}
FULL_S = 20


def spec_of(source: Path | str, output: Path | str, **options: object) -> TranscodeSpec:
    """Return what to ask for."""
    return TranscodeSpec.model_validate({"source": str(source), "output": str(output), **options})


def transcode(spec: TranscodeSpec, act: Callable[[Job, Event], object] = lambda *_: None, *, slots: int = 2) -> Report:
    """Transcode on threads of this process; ``act`` sees every event while the job runs."""

    async def run() -> Report:
        async with Fleet(pool=LocalPool(slots)) as fleet:
            job = await fleet.transcode(spec)
            async for event in job.events():
                act(job, event)
            return await job

    return asyncio.run(run())


def pictures(path: Path) -> list[tuple[Fraction, bytes]]:
    """Return the time and the hash of every picture of a sequential decode."""
    index = read_source(str(path)).index
    whole = DecodeRange(
        source=str(path),
        stream_index=index.stream_index,
        time_base=index.time_base,
        nominal_ticks=index.nominal_ticks,
        expected_ticks=index.expected_from(None, None),
    )
    decoded = (picture_hash(ticks, frame) for ticks, frame in decode_range(whole, DecodeTally(), SOFTWARE))
    return [(picture.ticks * index.time_base, picture.digest) for picture in decoded]


# --- Many segments, much film, little memory ---


def test_twelve_hundred_segments_join_exactly(tmp_path: Path) -> None:
    """A cut before every frame: 1,200 segments, each seam proven, every picture at its time, once."""
    count = 1200
    clip = Clip(
        times=constant_times(count),
        keyframes=frozenset(range(count)),
        options=(("preset", "ultrafast"),),
        width=32,
        height=32,
    )
    source = make_clip(tmp_path / "source.mkv", clip)
    report = transcode(spec_of(source, tmp_path / "o.mp4", segment_s=Fraction(1, 25), **LOSSLESS))
    assert len(report.segments) == count
    assert (report.proof.seams, report.proof.seams_equal, report.proof.output_frames) == (count - 1, count - 1, count)
    assert pictures(tmp_path / "o.mp4") == pictures(source)
    assert {path.name for path in tmp_path.iterdir()} == {"source.mkv", "o.mp4"}


def noise(path: Path, frames: int) -> Path:
    """Write a clip that hardly compresses: each picture costs about its size, in the source and in the output."""
    chance = np.random.default_rng(7)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=25)
        assert isinstance(stream, VideoStream)
        stream.width, stream.height, stream.pix_fmt = 96, 64, "gray"
        for number in range(frames):
            frame = VideoFrame.from_ndarray(chance.integers(0, 256, (64, 96), dtype=np.uint8), format="gray")
            frame.pts, frame.time_base = number, Fraction(1, 25)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def test_memory_goes_by_what_is_in_flight(tmp_path: Path) -> None:
    """Ten times the film does not take ten times the memory: finished payloads lie on disk, not in it."""
    peaks, sizes = [], []
    for frames in (100, 1000):
        source = noise(tmp_path / f"{frames}.mkv", frames)
        spec = spec_of(source, tmp_path / f"{frames}.mp4", segment_s=Fraction(2, 5), **LOSSLESS)
        tracemalloc.start()
        try:
            report = transcode(spec)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        sizes.append(report.output_bytes)
        assert len(report.segments) > frames // 15
    assert sizes[1] - sizes[0] > 5_000_000
    assert peaks[1] - peaks[0] < 2_000_000


def regular_index(packets: int) -> TrackIndex:
    """Return the index of a film at 25 fps with a keyframe every two seconds, and a scene change every seven."""
    flags = np.zeros(packets, dtype=np.uint8)
    keys = sorted({*range(0, packets, 50), *range(0, packets, 177)})
    flags[keys] = KEY
    times = np.arange(packets, dtype=np.int64) * 40
    return TrackIndex(
        source="film",
        stream_index=0,
        codec="h264",
        time_base=Fraction(1, 1000),
        frame_rate=Fraction(25),
        pts=times,
        dts=times,
        pos_bytes=times,
        sizes_bytes=times,
        flags=flags,
        kinds=dict.fromkeys(keys, RandomAccess.IDR),
        shifts=(),
    )


def calls_of(work: Callable[[], object]) -> int:
    """Count the calls that ``work`` makes: a measure of effort that no busy machine disturbs."""
    count = 0

    def note(*_: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_planning_grows_with_the_film_and_no_faster() -> None:
    """Cutting ten times the film takes about ten times the steps: 100,000 packets are no trouble."""
    small, large = (calls_of(lambda n=n: choose_cuts(regular_index(n))) for n in (10_000, 100_000))  # type: ignore[misc]
    assert large < 15 * small


# --- Disks and descriptors ---

PROGRAM = """
import sys
from codecfleet import Fleet
from codecfleet.cli import run
from codecfleet.cli_services import Services
from codecfleet.testing import LocalPool
from codecfleet.jobs.source import read_source
sys.exit(run(sys.argv[1:], Services(open_fleet=lambda _address, _workers: Fleet(pool=LocalPool(slots=2)))))
"""


def can_mount() -> bool:
    """Tell whether this user may mount a small disk of its own."""
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "-m", "sh", "-c", "mount -t tmpfs -o size=64k tmpfs /mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(("room_kib", "what"), [(64, "segment-"), (900, "output.mp4")])
def test_a_full_disk_leaves_nothing_behind(room_kib: int, what: str, tmp_path: Path) -> None:
    """Whether a payload or the output finds no room: exit code 5, one line that says so, and an empty disk."""
    if not can_mount():
        pytest.skip("only root may mount a small disk")
    clip = Clip(times=constant_times(60), width=160, height=96, options=(("qp", "0"), ("preset", "ultrafast")))
    source = make_clip(tmp_path / "source.mp4", clip)
    assert 500_000 < source.stat().st_size < 800_000
    disk = tmp_path / "disk"
    disk.mkdir()
    script = (
        f"mount -t tmpfs -o size={room_kib}k tmpfs {disk}; "
        f'"$@" transcode --quality 0 --preset 1 {source} {disk}/o.mp4; echo "code $?"; ls -A {disk}'
    )
    command = ["unshare", "-m", "sh", "-c", script, "sh", sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=FULL_S, check=False)
    assert done.stdout == "code 5\n", done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("codecfleet: error: no space left at ")
    assert what in last
    assert "Traceback" not in done.stderr


def test_few_descriptors_are_enough(tmp_path: Path) -> None:
    """With 64 open files allowed, a job of many segments still runs: none is held open for each segment."""
    clip = Clip(times=constant_times(200), keyframes=frozenset(range(0, 200, 2)), options=(("preset", "ultrafast"),))
    source = make_clip(tmp_path / "source.mp4", clip)
    script = 'ulimit -n 64; exec "$@"'
    arguments = ["transcode", "--quiet", "--preset", "1", "--segment-seconds", "0.08", source, tmp_path / "o.mp4"]
    command = ["sh", "-c", script, "sh", sys.executable, "-c", PROGRAM, *(str(a) for a in arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# --- Trouble while a job runs ---


@pytest.fixture
def film(tmp_path: Path) -> Path:
    """A clip of 20 s with an access point every half second, alone in a folder."""
    clip = Clip(times=constant_times(500), keyframes=frozenset(range(0, 500, 12)), options=(("preset", "ultrafast"),))
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    return make_clip(tmp_path / "in" / "film.mp4", clip)


def later(trouble: Callable[[], object], *, after: int = 2) -> Callable[[Job, Event], None]:
    """Return what makes trouble once so many segments are finished."""
    seen = 0

    def act(_job: Job, event: Event) -> None:
        nonlocal seen
        seen += isinstance(event, SegmentFinished)
        if isinstance(event, SegmentFinished) and seen == after:
            trouble()

    return act


def other_film(film: Path) -> None:
    """Put another film in the place of this one, as a download that is repeated would."""
    clip = Clip(times=constant_times(200), keyframes=frozenset(range(0, 200, 10)), width=80, height=64)
    make_clip(film.with_name("other.mp4"), clip).replace(film)


def folder_instead(film: Path) -> None:
    """Put a folder in the place of the film."""
    film.unlink()
    film.mkdir()


def pipe_instead(film: Path) -> None:
    """Put a pipe in the place of the film, that nobody writes to."""
    film.unlink()
    os.mkfifo(film)


CHANGES: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "emptied": lambda film: os.truncate(film, 0),
    "cut short": lambda film: os.truncate(film, film.stat().st_size // 3),
    "grown": lambda film: film.write_bytes(film.read_bytes() + b"\0" * 1000),
    "replaced": other_film,
    "a folder": folder_instead,
    "a pipe": pipe_instead,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_source_that_changes_under_a_job(change: str, film: Path) -> None:
    """A source that is written to, replaced or removed ends the job with that reason, and nothing is published."""
    out = film.parents[1] / "out"
    spec = spec_of(film, out / "o.mp4", segment_s=Fraction(1, 2), scale=(640, 360))
    with pytest.raises(InputUnreadable, match="was changed or removed while it was read"):
        transcode(spec, later(lambda: CHANGES[change](film)))
    assert list(out.iterdir()) == []


def test_an_output_name_that_is_taken_meanwhile(film: Path) -> None:
    """Whoever took the name while the job ran keeps it."""
    out = film.parents[1] / "out"
    with pytest.raises(OutputExists):
        transcode(spec_of(film, out / "o.mp4", preset=1), later(lambda: (out / "o.mp4").write_text("mine"), after=1))
    assert (out / "o.mp4").read_text() == "mine"
    assert len(list(out.iterdir())) == 1


@pytest.mark.parametrize("what", ["work folder", "output folder", "payloads"])
def test_work_that_somebody_tidies_away(what: str, film: Path) -> None:
    """If the work folder is removed or written over, the job fails with exit code 5 and publishes nothing."""
    out = film.parents[1] / "out"
    trouble: Mapping[str, Callable[[], object]] = {
        "work folder": lambda: list(map(shutil.rmtree, out.iterdir())),
        "output folder": lambda: shutil.rmtree(out),
        "payloads": lambda: [path.write_bytes(b"x") for path in out.glob(".*/segment-*")],
    }
    spec = spec_of(film, out / "o.mp4", segment_s=Fraction(1, 2), scale=(640, 360))
    with pytest.raises(StorageFailed):
        transcode(spec, later(trouble[what]))
    assert not out.exists() or list(out.iterdir()) == []


def test_jobs_that_race_for_one_name(film: Path) -> None:
    """Of three jobs that write the same output one publishes, and the others are told that the name is taken."""
    out = film.parents[1] / "out"

    async def race() -> list[Report | BaseException]:
        async with Fleet(pool=LocalPool(2)) as fleet:
            jobs = [await fleet.transcode(spec_of(film, out / "o.mp4", preset=1)) for _ in range(3)]
            return await asyncio.gather(*jobs, return_exceptions=True)

    ended = asyncio.run(race())
    assert sorted(type(end).__name__ for end in ended) == ["OutputExists", "OutputExists", "Report"]
    assert [path.name for path in out.iterdir()] == ["o.mp4"]


@pytest.mark.parametrize("events", [0, 1, 3, 9])
def test_a_cancelled_job_leaves_nothing(events: int, film: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Cancelled at its start, in its plan or in the middle, a job ends as cancelled, in silence, in an empty folder."""
    out = film.parents[1] / "out"

    async def run() -> None:
        async with Fleet(pool=LocalPool(2)) as fleet:
            job = await fleet.transcode(spec_of(film, out / "o.mp4", segment_s=Fraction(1, 2), scale=(640, 360)))
            if events:
                seen = 0
                async for _ in job.events():
                    seen += 1
                    if seen == events:
                        break
            await job.cancel()
            with pytest.raises(Cancelled):
                await job

    asyncio.run(run())
    assert list(out.iterdir()) == []
    assert caplog.records == []


class SlowStore(MemoryFileSystem):  # type: ignore[misc] # fsspec publishes no types
    """A store that takes a file only once somebody lets it."""

    protocol = "slow"
    begun = threading.Event()
    go_on = threading.Event()

    def put_file(self, lpath: str, rpath: str, *_: object, **__: object) -> None:
        """Wait, then take the whole file."""
        self.begun.set()
        assert self.go_on.wait(FULL_S)
        self.pipe_file(rpath, Path(lpath).read_bytes())


def test_a_cancellation_that_comes_too_late(film: Path) -> None:
    """Publishing cannot be taken back: a job that is cancelled in the middle of it is done, and says so."""
    fsspec.register_implementation("slow", SlowStore, clobber=True)

    async def run() -> Report:
        async with Fleet(pool=LocalPool(2)) as fleet:
            job = await fleet.transcode(spec_of(film, "slow://films/o.mp4", preset=1))
            await asyncio.to_thread(SlowStore.begun.wait, FULL_S)
            cancelling = asyncio.create_task(job.cancel())
            await asyncio.sleep(0)
            SlowStore.go_on.set()
            await cancelling
            return await job

    report = asyncio.run(run())
    with fsspec.open("slow://films/o.mp4", "rb") as stored:
        assert len(stored.read()) == report.output_bytes


def test_a_failure_is_one_of_ours(film: Path) -> None:
    """Whatever a source turns into while it is read, the error is in our tree, and says what to do."""
    out = film.parents[1] / "out"
    data = film.read_bytes()
    chance = np.random.default_rng(3)
    for _ in range(5):
        film.write_bytes(data)
        place = int(chance.integers(0, len(data)))
        with pytest.raises(CodecfleetError) as caught:
            transcode(
                spec_of(film, out / "o.mp4", segment_s=Fraction(1, 2), scale=(320, 240)),
                later(lambda place=place: film.write_bytes(data[:place] + chance.bytes(len(data))), after=1),  # type: ignore[misc]
            )
        assert caught.value.next_step


# --- Sudden deaths, in the real thing ---


@contextmanager
def program(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run the real program in a group of its own."""
    with subprocess.Popen(
        [sys.executable, "-m", "codecfleet", "transcode", "--json", *(str(a) for a in arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(process: subprocess.Popen[str], kind: str) -> None:
    """Read events until one is of this kind."""
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["event"] == kind:
            return
    pytest.fail(f"no {kind}: {process.stderr.read() if process.stderr else ''}")


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return every process below the program."""
    return list(psutil.Process(process.pid).children(recursive=True))


def gone(processes: list[psutil.Process], within_s: float = 10) -> bool:
    """Wait until all of them have ended."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if not [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]:
            return True
        time.sleep(0.05)
    return False


def addresses(processes: list[psutil.Process]) -> set[str]:
    """Return where they listen."""
    return {c.laddr.ip for p in processes for c in p.net_connections() if c.status == psutil.CONN_LISTEN}


def long_job(film: Path, name: str) -> list[object]:
    """Return the arguments of a job that takes a few seconds."""
    return [*("--segment-seconds", "1", "--preset", "4", "--scale", "480x270"), film, film.parents[1] / "out" / name]


@pytest.mark.ray
def test_a_killed_worker_changes_nothing(film: Path) -> None:
    """With a worker process killed in the middle, the job finishes, and the output is the same, byte for byte."""
    out = film.parents[1] / "out"
    whole = transcode(spec_of(film, out / "whole.mp4", segment_s=Fraction(1), scale=(480, 270)))
    with program(*long_job(film, "killed.mp4")) as process:
        wait_for(process, "segment_finished")
        workers = [p for p in family(process) if "RayWorker" in " ".join(p.cmdline())]
        assert workers
        assert addresses(family(process)) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
        workers[0].kill()
        rest, err = process.communicate(timeout=60)
    done = json.loads(rest.splitlines()[-1])
    assert (process.returncode, done["event"]) == (0, "done"), err
    assert done["report"]["proof"]["output_sha256"] == whole.proof.output_sha256
    assert (out / "killed.mp4").read_bytes() == (out / "whole.mp4").read_bytes()
    assert len(list(out.iterdir())) == 2


@pytest.mark.ray
def test_a_killed_program(film: Path) -> None:
    """Killed outright, the program leaves its hidden work folder at most, and no process."""
    out = film.parents[1] / "out"
    with program(*long_job(film, "o.mp4")) as process:
        wait_for(process, "segment_finished")
        below = family(process)
        process.kill()
        process.wait()
    assert below
    assert gone(below)
    assert [path.name[: len(".o.mp4.")] for path in out.iterdir()] == [".o.mp4."]


@pytest.mark.ray
@pytest.mark.parametrize("moment", ["planned", "segment_finished"])
def test_ctrl_c_in_the_middle(moment: str, film: Path) -> None:
    """Ctrl-C, which the whole process group gets, ends it within two seconds; no file and no process is left."""
    out = film.parents[1] / "out"
    with program(*long_job(film, "o.mp4")) as process:
        wait_for(process, moment)
        below = family(process)
        began = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=FULL_S)
        took_s = time.monotonic() - began
    assert (process.returncode, took_s < 3) == (130, True)
    assert err.splitlines()[-1].startswith("codecfleet: error: interrupted. ")
    assert "Traceback" not in err
    assert gone(below)
    assert list(out.iterdir()) == []

"""One round: a job, its faults, and whether it ended as promised."""

import hashlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from codecfleet.testing.clips import Clip, constant_times, make_clip

from .driver import Driver
from .places import MARK, Place, marked, work_locations
from .schedule import ENDS_THE_DRIVER, SEGMENTS, Fault, Round, Strike

SEGMENT_FRAMES: Final = 24
PROGRAM: Final = Path(sys.executable).parent / "codecfleet"
OPTIONS: Final = ("--segment-seconds", f"{SEGMENT_FRAMES / 25}", "--scale", "1280x720", "--json")
ROUND_S: Final = 240.0
"""A job of some seconds that takes longer has hung."""
ENDED_S: Final = 10.0
"""How long what a driver started may take to end."""
TERMINATED: Final = 128 + signal.SIGTERM
DISK_BYTES: Final = 64 << 20
_STORAGE_FAILED: Final = 5


@dataclass
class Result:
    """What came of a round. ``recoveries_s`` has, for each fault, the time until lost work ran again."""

    round: Round
    problems: list[str] = field(default_factory=list)
    recoveries_s: list[tuple[str, float | None]] = field(default_factory=list)
    redone: int = 0
    allowed: int = 0
    wall_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the row of the report."""
        return {
            "seed": self.round.seed,
            "shape": self.round.shape.value,
            "strikes": [[s.fault.value, s.after_segments, round(s.delay_s, 3)] for s in self.round.strikes],
            "beside": self.round.beside,
            "problems": self.problems,
            "recoveries_s": self.recoveries_s,
            "redone": self.redone,
            "allowed": self.allowed,
            "wall_s": round(self.wall_s, 1),
        }


@dataclass(frozen=True, slots=True)
class Film:
    """The source of every job, and the SHA-256 of the output of a job without any fault."""

    path: Path
    expected_sha256: str

    @classmethod
    def make(cls, folder: Path) -> "Film":
        """Make a film of ``SEGMENTS`` segments."""
        frames = SEGMENTS * SEGMENT_FRAMES
        keyframes = frozenset(range(0, frames, SEGMENT_FRAMES))
        clip = Clip(times=constant_times(frames), keyframes=keyframes, width=640, height=360)
        path = make_clip(folder / "film.mp4", clip)
        output = folder / "undisturbed.mp4"
        subprocess.run([PROGRAM, "transcode", path, output, *OPTIONS], check=True, capture_output=True)
        return cls(path, _sha256(output))


class Attack:
    """Runs one round in a place. Used once."""

    def __init__(self, plan: Round, place: Place, film: Film, folder: Path) -> None:
        self.result = Result(plan)
        self._place = place
        self._film = film
        self._folder = folder
        self._mark = secrets.token_hex(4)
        self._drivers: list[Driver] = []
        self._until_s = time.monotonic() + ROUND_S
        self._started_s = time.monotonic()

    def run(self) -> Result:
        """Do it, and check everything."""
        beside = self._start("beside.mp4") if self.result.round.beside else None
        self._drivers.append(self._start("out.mp4"))
        for strike in self.result.round.strikes:
            self._carry_out(strike)
        self._ended(self._drivers[-1], "the job", "out.mp4")
        if beside is not None:
            self._ended(beside, "the job beside", "beside.mp4")
        self._count()
        self._look_for_leftovers()
        self.result.wall_s = time.monotonic() - self._started_s
        return self.result

    def _start(self, output: str) -> Driver:
        own = {MARK: self._mark, "TMPDIR": str(self._folder / "tmp")}
        if not self._place.shape.node_cpus:
            own["RAY_TMPDIR"] = own["TMPDIR"]
        command = [PROGRAM, "transcode", self._film.path, self._folder / "out" / output, *OPTIONS]
        return Driver.start(command, self._place.env | own)

    def _carry_out(self, strike: Strike) -> None:
        driver = self._drivers[-1]
        finished_before = sum(len(other.finished) for other in self._drivers[:-1])
        if not driver.wait_for_segments(strike.after_segments - finished_before, self._until_s):
            return
        time.sleep(strike.delay_s)
        if driver.has_ended:
            return
        self.result.allowed += driver.in_flight
        struck_s = time.monotonic()
        if strike.fault in ENDS_THE_DRIVER:
            self._end_driver(strike.fault, driver)
            self._drivers.append(self._start("out.mp4"))
            # A segment may have begun, or come back, between the look and the fault.
            self.result.allowed += 1
            lost = True
        else:
            lost = self._place.strike(strike, driver)
        if lost:
            self.result.recoveries_s.append((strike.fault.value, self._recovered(struck_s)))

    def _recovered(self, struck_s: float) -> float | None:
        """Return how long it took until a lost segment ran again; None if none was lost."""
        driver, again = self._drivers[-1], None
        until_s = min(self._until_s, time.monotonic() + ROUND_S)
        while again is None and not driver.has_ended and time.monotonic() < until_s:
            again = next((said for said in driver.started if said.at_s > struck_s and self._is_again(said.event)), None)
            if again is None and driver.finished and not self._awaits(driver, struck_s):
                return None
            time.sleep(0.02)
        return None if again is None else round(again.at_s - struck_s, 3)

    def _is_again(self, event: Any) -> bool:
        return len(self._drivers) > 1 or event["attempt"] > 1

    def _awaits(self, driver: Driver, struck_s: float) -> bool:
        """Tell whether a segment that ran at the fault is not back."""
        ran = {said.event["segment"] for said in driver.started if said.at_s <= struck_s}
        return bool(ran - driver.finished) or len(self._drivers) > 1

    def _end_driver(self, fault: Fault, driver: Driver) -> None:
        if fault is Fault.DISK_FULL:
            self._fill_disk(driver)
            return
        driver.process.send_signal(signal.SIGTERM if fault is Fault.DRIVER_TERMINATED else signal.SIGKILL)
        code = driver.wait(self._until_s)
        if fault is Fault.DRIVER_TERMINATED and code not in (TERMINATED, 0):
            self._problem(f"SIGTERM ended the driver with {code}: {''.join(driver.stderr)[-300:]}")
        if fault is Fault.DRIVER_TERMINATED and code == TERMINATED and "resume" not in "".join(driver.stderr):
            self._problem(f"no resume command after SIGTERM: {''.join(driver.stderr)[-300:]}")
        self._check_processes()
        self._damage(fault)

    def _fill_disk(self, driver: Driver) -> None:
        ballast = self._folder / "out" / "ballast"
        with ballast.open("wb") as stream:
            try:
                while True:
                    stream.write(bytes(1 << 16))
                    stream.flush()
            except OSError:
                pass
        code = driver.wait(self._until_s)
        if code not in (0, _STORAGE_FAILED) or "Traceback" in "".join(driver.stderr):
            self._problem(f"a full disk ended the driver with {code}: {''.join(driver.stderr)[-300:]}")
        ballast.unlink()

    def _damage(self, fault: Fault) -> None:
        """Change what the killed driver has left, as a disk might."""
        locations = work_locations(self._folder / "out")
        files = [path for location in locations for path in location.rglob("*") if path.is_file()]
        journals = [path for path in files if path.name.startswith("journal") and path.stat().st_size]
        payloads = [path for path in files if path not in journals and path.stat().st_size]
        generator = self.result.round.seed
        if fault is Fault.JOURNAL_CUT and journals:
            os.truncate(journals[0], max(0, journals[0].stat().st_size - 1 - generator % 7))
            self.result.allowed += 1
        if fault is Fault.JOURNAL_DAMAGED and journals:
            _flip(journals[0], -1 - generator % 16)
            self.result.allowed += 1
        if fault is Fault.PAYLOAD_DAMAGED and payloads:
            victim = payloads[generator % len(payloads)]
            _flip(victim, generator % victim.stat().st_size)
            self.result.allowed += 1

    def _ended(self, driver: Driver, name: str, output: str) -> None:
        code = driver.wait(self._until_s)
        if code is None:
            self._problem(f"{name} did not end within {ROUND_S:.0f} s; last: {driver.said[-1:]}")
            return
        said = "".join(driver.stderr)
        path = self._folder / "out" / output
        if code == 0 and _sha256(path) != self._film.expected_sha256:
            self._problem(f"{name} has other bytes")
        elif code == 0 and "Traceback" in said:
            self._problem(f"{name} printed a traceback: {said[-300:]}")
        elif code != 0:
            self._problem(f"{name} ended with {code}: {said[-400:]}")

    def _count(self) -> None:
        """Count the starts that were needed because of the faults."""
        starts = sum(len(driver.started) for driver in self._drivers)
        segments = {said.event["segment"] for driver in self._drivers for said in driver.started}
        self.result.redone = starts - len(segments)
        if self.result.redone > self.result.allowed:
            self._problem(f"{self.result.redone} segments ran again, {self.result.allowed} were in flight")

    def _look_for_leftovers(self) -> None:
        names = {"out.mp4", *(("beside.mp4",) if self.result.round.beside else ())}
        for path in (self._folder / "out").iterdir():
            if path.name not in names:
                self._problem(f"left in the output's folder: {path.name}")
        self._check_processes()
        for path in (self._folder / "tmp").iterdir():
            self._problem(f"left in the temporary folder: {path.name}")
        self.result.problems += self._place.leftovers()

    def _check_processes(self) -> None:
        until_s = time.monotonic() + ENDED_S
        while left := [process for process in marked(self._mark) if self._is_not_beside(process.pid)]:
            if time.monotonic() > until_s:
                self._problem(f"processes left: {[process.cmdline()[:4] for process in left]}")
                for process in left:
                    process.kill()
            time.sleep(0.1)

    def _is_not_beside(self, process: int) -> bool:
        running = {driver.process.pid for driver in self._drivers if not driver.has_ended}
        return process not in running and not self.result.round.beside

    def _problem(self, what: str) -> None:
        self.result.problems.append(" ".join(what.split()))


@contextmanager
def round_folder() -> Iterator[Path]:
    """Yield a folder for a round's files, with a short path and a small disk for outputs where root allows one."""
    folder = Path(tempfile.mkdtemp(prefix="cx-", dir="/tmp"))
    (folder / "tmp").mkdir()
    (folder / "out").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "codecfleet-chaos", folder / "out"]
    has_disk = os.geteuid() == 0 and subprocess.run(mount, check=False, capture_output=True).returncode == 0
    try:
        yield folder
    finally:
        if has_disk:
            subprocess.run(["umount", "--lazy", folder / "out"], check=False, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0x10
    path.write_bytes(data)

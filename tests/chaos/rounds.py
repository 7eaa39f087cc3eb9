"""One round of a program that a user has started: its faults, and whether it ended as promised."""

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from codecfleet.cluster.fleet_variables import EVENTS
from codecfleet.jobs.join.publish import work_folder
from codecfleet.jobs.join.spool import JOURNAL_FILE, PAYLOAD_PREFIX
from tests.replaying import replayed

from .accounts import Struck, allowed, recovery_s, redone
from .driver import Driver
from .films import PROGRAM, Film, sha256
from .places import Place
from .processes import MARK, marked
from .schedule import ENDS_THE_DRIVER, OF_A_DEVICE, OF_THE_STORE, Fault, Round, Strike
from .shaky_server import Mood, ShakyServer, shaky_server

ROUND_S: Final = 400.0
"""A job of some seconds that takes longer has hung."""
ENDED_S: Final = 10.0
"""How long what a driver started may take to end."""
DOWN_S: Final = 1.0
LOOK_S: Final = 0.05
TERMINATED: Final = 128 + signal.SIGTERM
DISK_BYTES: Final = 64 << 20
_WITHOUT_STORAGE: Final = (0, 4, 5)
"""It was finished; the output was refused before the work; ``StorageFailed``."""


@dataclass
class Result:
    """The result of a round. ``recoveries_s`` has, for each fault, the time until lost work ran again."""

    round: Round
    problems: list[str] = field(default_factory=list)
    recoveries_s: list[tuple[str, float | None]] = field(default_factory=list)
    redone: int = 0
    allowed: int = 0
    wall_s: float = 0.0
    events: int = 0
    """How many events of supervisors were decided again."""
    recorded: dict[str, bytes] = field(default_factory=dict)
    """Of a round that went wrong, what supervisors decided, by the name of its file."""
    said: list[list[tuple[float, Any]]] = field(default_factory=list)
    """Of a round that went wrong, what each program of the job said, and when."""

    def to_json(self) -> dict[str, Any]:
        return {
            "seed": self.round.seed,
            "shape": self.round.shape.value,
            "strikes": [[s.fault.value, s.after_segments, round(s.delay_s, 3)] for s in self.round.strikes],
            "beside": self.round.beside,
            "problems": self.problems,
            "recoveries_s": self.recoveries_s,
            "redone": self.redone,
            "allowed": self.allowed,
            "events": self.events,
            "wall_s": round(self.wall_s, 1),
            "said": self.said,
        }


class Attack:
    """Runs one round in a place. Use it once."""

    def __init__(self, plan: Round, place: Place, film: Film, folder: Path) -> None:
        self.result = Result(plan)
        self._place = place
        self._film = film
        self._folder = folder
        self._mark = secrets.token_hex(4)
        self._drivers: list[Driver] = []
        self._struck: list[Struck] = []
        self._server: ShakyServer | None = None
        self._started_s = time.monotonic()
        self._until_s = self._started_s + ROUND_S
        self.events = folder / "events"
        """What supervisors of this round have decided."""

    def run(self) -> Result:
        with ExitStack() as stack:
            if self.result.round.is_remote:
                self._server = stack.enter_context(shaky_server(self._film.path))
            self._attack()
        self.result.wall_s = time.monotonic() - self._started_s
        if self.result.problems:
            self._keep_evidence()
        return self.result

    def _keep_evidence(self) -> None:
        self.result.said = [self._said_by(driver) for driver in self._drivers]
        self.result.recorded = {path.name: path.read_bytes() for path in self.events.glob("*")}

    def _said_by(self, driver: Driver) -> list[tuple[float, Any]]:
        told = [said for said in driver.said if said.kind not in ("progress", "done")]
        return [(round(said.at_s - self._started_s, 3), said.event) for said in told]

    def _attack(self) -> None:
        self._play()
        self._count()
        self._look_for_leftovers()
        self._decide_again()

    def _play(self) -> None:
        """Run the job, carry out its faults, and look at its end."""
        self._place.prepare(self.result.round, self._folder)
        beside = self._start("beside.mp4") if self.result.round.beside else None
        self._drivers.append(self._start("out.mp4"))
        for strike in self.result.round.strikes:
            self._carry_out(strike)
        self._ended(self._drivers[-1], "the job", "out.mp4")
        if beside is not None:
            self._ended(beside, "the job beside", "beside.mp4")

    def _start(self, output: str) -> Driver:
        own = {MARK: self._mark, "TMPDIR": str(self._folder / "tmp"), EVENTS: str(self.events)}
        if not self._place.shape.node_cpus:
            own["RAY_TMPDIR"] = own["TMPDIR"]
        source = self._film.path if self._server is None or output != "out.mp4" else self._server.url
        command = [PROGRAM, "transcode", source, self._folder / "out" / output, *self._film.options]
        return Driver.start([*self._place.prefix, *command], self._place.env | own)

    def _carry_out(self, strike: Strike) -> None:
        driver = self._drivers[-1]
        if strike.fault in OF_A_DEVICE:
            while not driver.has_ended and time.monotonic() < self._until_s and not self._sees_device_fault():
                time.sleep(LOOK_S)
            return
        finished_before = sum(len(other.finished) for other in self._drivers[:-1])
        if not driver.wait_for_segments(strike.after_segments - finished_before, self._until_s):
            return
        time.sleep(strike.delay_s)
        if driver.has_ended:
            return
        self._sees_device_fault()
        struck = Struck(strike.fault, len(self._drivers) - 1, time.monotonic())
        if self._strike(strike, driver):
            self._struck.append(struck)

    def _sees_device_fault(self) -> bool:
        """Return whether the round's fault of a device has struck, and count it once; others may be planned before."""
        if any(struck.fault in OF_A_DEVICE for struck in self._struck):
            return True
        if not self._place.has_met_its_fault:
            return False
        fault = next(strike.fault for strike in self.result.round.strikes if strike.fault in OF_A_DEVICE)
        self._struck.append(Struck(fault, len(self._drivers) - 1, time.monotonic()))
        return True

    def _strike(self, strike: Strike, driver: Driver) -> bool:
        if strike.fault in OF_THE_STORE:
            self._shake(strike.fault)
        if strike.fault in ENDS_THE_DRIVER:
            self._end_driver(strike.fault, driver)
            if driver.wait(self._until_s) != 0:  # it may have finished in spite of the fault
                self._drivers.append(self._start("out.mp4"))
            return True
        return strike.fault in OF_THE_STORE or self._place.strike(strike, driver)

    def _shake(self, fault: Fault) -> None:
        assert self._server is not None
        if fault is Fault.STORAGE_DOWN:
            self._server.be_down(DOWN_S)
        else:
            self._server.mood = Mood.SLOW if fault is Fault.STORAGE_SLOW else Mood.DOWN

    def _end_driver(self, fault: Fault, driver: Driver) -> None:
        if fault is Fault.DISK_FULL:
            self._fill_disk(driver)
            return
        if fault is Fault.STORAGE_GONE:
            self._outwait_storage(driver)
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
        with ballast.open("wb", buffering=0) as stream:
            try:
                while True:
                    stream.write(bytes(1 << 16))
            except OSError:
                pass
        self._check_failure(driver, "a full disk")
        ballast.unlink()

    def _outwait_storage(self, driver: Driver) -> None:
        assert self._server is not None
        self._check_failure(driver, "a store that is gone")
        self._server.mood = Mood.GOOD

    def _check_failure(self, driver: Driver, cause: str) -> None:
        """Wait until the program has ended: in time with a whole output, or with one line."""
        code = driver.wait(self._until_s)
        if code not in _WITHOUT_STORAGE or "Traceback" in "".join(driver.stderr):
            self._problem(f"{cause} ended the driver with {code}: {''.join(driver.stderr)[-300:]}")

    def _damage(self, fault: Fault) -> None:
        """Damage files of the killed driver, as a disk might."""
        output = self._folder / "out" / "out.mp4"
        # if the journal of a finished output is damaged, the output is refused as a stranger's
        if output.exists():
            return
        files = sorted(path for path in work_folder(str(output)).rglob("*") if path.is_file() and path.stat().st_size)
        journals = [path for path in files if path.name == JOURNAL_FILE]
        payloads = [path for path in files if path.name.startswith(PAYLOAD_PREFIX)]
        generator = self.result.round.seed
        if fault is Fault.JOURNAL_CUT and journals:
            os.truncate(journals[0], max(0, journals[0].stat().st_size - 1 - generator % 7))
        if fault is Fault.JOURNAL_DAMAGED and journals:
            _flip(journals[0], -1 - generator % 16)
        if fault is Fault.PAYLOAD_DAMAGED and payloads:
            victim = payloads[generator % len(payloads)]
            _flip(victim, generator % victim.stat().st_size)

    def _ended(self, driver: Driver, name: str, output: str) -> None:
        code = driver.wait(self._until_s)
        if code is None:
            self._problem(f"{name} did not end within {ROUND_S:.0f} s; last: {driver.said[-1:]}")
            return
        said = "".join(driver.stderr)
        path = self._folder / "out" / output
        if code == 0 and sha256(path) != self._film.expected_sha256:
            self._problem(f"{name} has other bytes")
        elif code == 0 and "Traceback" in said:
            self._problem(f"{name} printed a traceback: {said[-300:]}")
        elif code != 0:
            self._problem(f"{name} ended with {code}: {said[-400:]}")

    def _count(self) -> None:
        programs = [tuple(driver.said) for driver in self._drivers]
        times = [(struck.fault.value, recovery_s(programs, self._struck, n)) for n, struck in enumerate(self._struck)]
        self.result.recoveries_s = times
        self.result.redone = redone(programs)
        self.result.allowed = allowed(programs, self._struck)
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

    def _decide_again(self) -> None:
        """Check that supervisors would decide the same from the same events."""
        for path in self._place.kept_events(self.events):
            count, differences = replayed(path.read_bytes())
            self.result.events += count
            for difference in differences:
                self._problem(f"another decision, in {path.name}: {difference[:2000]}")

    def _check_processes(self) -> None:
        until_s = time.monotonic() + ENDED_S
        while left := [process for process in marked(self._mark) if self._is_ours(process.pid)]:
            if time.monotonic() > until_s:
                self._problem(f"processes left: {[process.cmdline()[:4] for process in left]}")
                for process in left:
                    process.kill()
            time.sleep(0.1)

    def _is_ours(self, process: int) -> bool:
        """Return whether a process that has the round's mark should have ended."""
        running = {driver.process.pid for driver in self._drivers if not driver.has_ended}
        return process not in running and not self.result.round.beside

    def _problem(self, what: str) -> None:
        self.result.problems.append(" ".join(what.split()))


@contextmanager
def round_folder() -> Iterator[Path]:
    """Yield a folder for a round's files, with a short path and, if root allows it, a small disk for outputs."""
    folder = Path(tempfile.mkdtemp(prefix="cx-", dir="/tmp"))
    (folder / "tmp").mkdir()
    (folder / "out").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "codecfleet-chaos", str(folder / "out")]
    has_disk = os.geteuid() == 0 and subprocess.run(mount, check=False, capture_output=True).returncode == 0
    try:
        yield folder
    finally:
        if has_disk:
            subprocess.run(["umount", "--lazy", folder / "out"], check=False, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


def _flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0x10
    path.write_bytes(data)

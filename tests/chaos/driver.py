"""The program under attack, as its events describe it."""

import json
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Said:
    """An event, and the time of its arrival on the monotonic clock."""

    at_s: float
    event: Mapping[str, Any]

    @property
    def kind(self) -> str:
        return str(self.event["event"])

    @property
    def is_start(self) -> bool:
        return self.kind == "segment_started"


@dataclass
class Driver:
    """A running ``codecfleet transcode --json``, in a session of its own."""

    process: "subprocess.Popen[str]"
    said: list[Said] = field(default_factory=list)
    stderr: list[str] = field(default_factory=list)
    news: threading.Condition = field(default_factory=threading.Condition)
    readers: list[threading.Thread] = field(default_factory=list)

    @classmethod
    def start(cls, command: Sequence[str | Path], env: Mapping[str, str]) -> "Driver":
        pipe = subprocess.PIPE
        driver = cls(subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True, start_new_session=True))
        for listen in (driver._listen, driver._note):
            driver.readers.append(threading.Thread(target=listen, daemon=True))
            driver.readers[-1].start()
        return driver

    @property
    def started(self) -> list[Said]:
        return [said for said in self.said if said.is_start]

    @property
    def finished(self) -> set[int]:
        return {said.event["segment"] for said in self.said if said.kind == "segment_finished"}

    def wait_for_segments(self, count: int, until_s: float) -> bool:
        """Wait until ``count`` segments are finished; return False if the program ended earlier, or time is up."""
        with self.news:
            self.news.wait_for(
                lambda: len(self.finished) >= count or self.has_ended, timeout=max(0.0, until_s - time.monotonic())
            )
        return len(self.finished) >= count and not self.has_ended

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def wait(self, until_s: float) -> int | None:
        """Return the exit code; if time is up, kill the program and return None."""
        try:
            code = self.process.wait(timeout=max(0.0, until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self._end_reading()
            return None
        self._end_reading()
        return code

    def _end_reading(self) -> None:
        for reader, pipe in zip(self.readers, (self.process.stdout, self.process.stderr), strict=True):
            reader.join(timeout=5)
            if pipe is not None and not reader.is_alive():
                pipe.close()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self.news:
                self.said.append(Said(time.monotonic(), json.loads(line)))
                self.news.notify_all()
        self.process.wait()
        with self.news:
            self.news.notify_all()

    def _note(self) -> None:
        assert self.process.stderr is not None
        self.stderr.extend(self.process.stderr)

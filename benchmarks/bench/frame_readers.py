"""Runs each reader of frames in a process, and lets the readers take turns."""

import json
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .frame_cases import Job
from .program import module_command

__all__ = ["ReaderFailed", "ReaderProcess", "ratios", "reader_processes"]


class ReaderFailed(Exception):
    """A reader's process failed or ended."""


class ReaderProcess:
    """A reader in its own process, run by the interpreter that has its packages."""

    def __init__(self, name: str, place: str, python: str) -> None:
        command, environment = module_command("frame_child", name, place, python=python)
        self.name = name
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process; a pipe that nobody reads fills up
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        try:
            self.version: str = self._answer()["version"]
        except ReaderFailed:
            self.close()
            raise

    def run(self, job: Job) -> dict[str, Any]:
        """Return (wall_s, cpu_s, pictures) of a job. Raises ReaderFailed."""
        assert self._process.stdin is not None  # noqa: S101 - the stream is a pipe
        try:
            print(json.dumps(job.to_dict()), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise ReaderFailed(f"{self.name} ended") from None
        return self._answer()

    def looks(self, job: Job) -> NDArray[np.float32]:
        """Return the small pictures of a job that requests them. Raises ReaderFailed."""
        return np.array(self.run(job)["looks"], np.float32)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None  # noqa: S101 - the stream is a pipe
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            last = next(iter(self._errors.read().strip().splitlines()[-1:]), "no message")
            raise ReaderFailed(f"{self.name} ended: {last}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ReaderFailed(f"{self.name}: {answer['error']}")
        return answer


def reader_processes(names: Sequence[str], place: str, pythons: Sequence[str]) -> list[ReaderProcess]:
    """Start the readers; leave out readers that fail to start, and print why."""
    started = []
    for name, python in zip(names, pythons, strict=True):
        try:
            started.append(ReaderProcess(name, place, python))
        except (ReaderFailed, OSError) as error:
            print(f"left out: {error}", flush=True)
    return started


def ratios(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the ratio of codecfleet's speed to that of each peer, for the same case and film (above 1: faster)."""
    found = []
    for ours in records:
        for peer in records:
            is_peer = (peer["case"], peer["film"]) == (ours["case"], ours["film"]) and peer is not ours
            if ours["reader"] == "codecfleet" and is_peer:
                ratio = ours["fps"]["median"] / peer["fps"]["median"]
                found.append({"case": ours["case"], "film": ours["film"], "over": peer["reader"], "fps": ratio})
    return found

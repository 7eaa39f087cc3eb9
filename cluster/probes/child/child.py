"""Runs a probe in a process of its own, with a time limit: for calls that may hang, crash or call exit().

Initialising CUDA, importing PyNvVideoCodec and creating a decoder can end the process without an exception. So such a
probe is an importable function that takes and returns plain values (what msgpack carries), and is run by name.
"""

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import msgpack

from ...parent_death import end_with

SAID_KEPT_CHARACTERS = 2000
STUCK_S = 2.0
"""How long a killed child is waited for: one that is stuck in the kernel's driver never ends."""


class ChildEnd(Enum):
    """How the child ended."""

    RETURNED = "returned"  #: it said all it had to say
    RAISED = "raised"  #: an exception ended it; ``detail`` names it
    EXITED = "exited"  #: the process ended itself; ``detail`` holds its exit code
    KILLED = "killed"  #: a signal ended it: a crash
    TIMED_OUT = "timed out"  #: it was killed at its time limit


@dataclass(frozen=True, slots=True)
class ChildOutcome:
    """What came of a probe that ran in a child process.

    ``values`` are what it returned (one value), or what it had yielded by the time it ended, however it ended.
    ``detail`` is one line for people, "" when it returned; ``said`` is the end of what it printed.
    """

    end: ChildEnd
    values: tuple[Any, ...] = ()
    detail: str = ""
    said: str = ""
    took_s: float = 0.0

    @property
    def returned(self) -> bool:
        """Whether it came to its own end."""
        return self.end is ChildEnd.RETURNED


def run_in_child(
    probe: str,
    arguments: Mapping[str, Any],
    limit_s: float,
    environment: Mapping[str, str] | None = None,
) -> ChildOutcome:
    """Run ``probe`` ("package.module:function") in a child process; never raises for what happens there.

    ``probe`` is an importable function, or a generator function whose items are kept as they come; its keyword
    ``arguments`` and all results are values that msgpack carries. After ``limit_s`` the child is killed, with its own
    children; with this process it ends at once. ``environment`` is set over this process's own.
    """
    began = time.monotonic()
    try:
        answer = os.memfd_create("codecfleet-probe")
    except OSError as refused:
        return ChildOutcome(ChildEnd.EXITED, detail=f"the child process did not start: {refused}")
    try:
        end, detail, said = _run(probe, msgpack.packb(dict(arguments)), limit_s, environment or {}, answer)
        values, error = _read(answer)
    finally:
        os.close(answer)
    if error is not None:
        end, detail = ChildEnd.RAISED, error
    return ChildOutcome(end, values, detail, said, time.monotonic() - began)


def _run(
    probe: str, packed: bytes, limit_s: float, environment: Mapping[str, str], answer: int
) -> tuple[ChildEnd, str, str]:
    # -P: whatever lies in the current folder must not be imported for ours.
    command = [sys.executable, "-P", "-m", __name__, probe, str(answer), str(os.getpid())]
    try:
        child = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(answer,),
            env={**os.environ, "PYTHONPATH": _import_path(), **environment},
            start_new_session=True,
        )
    except OSError as error:
        return ChildEnd.EXITED, f"the child process did not start: {error}", ""
    try:
        said, _ = child.communicate(packed, timeout=limit_s)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        try:
            said, _ = child.communicate(timeout=STUCK_S)
        except subprocess.TimeoutExpired:
            said = b""  # stuck inside the kernel driver, where no signal reaches: nothing waits for it
        return ChildEnd.TIMED_OUT, f"no answer within {limit_s:g} s", _tail(said)
    if child.returncode < 0:
        return ChildEnd.KILLED, f"the process was ended by {_signal_name(-child.returncode)}", _tail(said)
    if child.returncode > 0:
        return ChildEnd.EXITED, f"the process exited with code {child.returncode}", _tail(said)
    return ChildEnd.RETURNED, "", _tail(said)


def _import_path() -> str:
    """Return a PYTHONPATH from which the child finds this package, wherever this process got it from."""
    here = str(Path(__file__).parents[len(__name__.split(".")) - 1])
    # An empty entry would be the current folder, whose files must not be imported for ours.
    others = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return os.pathsep.join([here, *others])


def _read(answer: int) -> tuple[tuple[Any, ...], str | None]:
    os.lseek(answer, 0, os.SEEK_SET)
    with os.fdopen(os.dup(answer), "rb") as file:
        unpacker = msgpack.Unpacker(file, strict_map_key=False)
        values: list[Any] = []
        error = None
        # A child that was killed may have left half an answer; what came before it counts.
        with suppress(msgpack.OutOfData):
            for kind, value in unpacker:
                if kind == "value":
                    values.append(value)
                else:
                    error = value
    return tuple(values), error


def _tail(said: bytes) -> str:
    return said.decode(errors="replace")[-SAID_KEPT_CHARACTERS:]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _main(probe: str, answer: int) -> None:
    module, _, function = probe.partition(":")
    with os.fdopen(answer, "wb", buffering=0) as file:
        try:
            arguments = msgpack.unpackb(sys.stdin.buffer.read())
            found = getattr(importlib.import_module(module), function)(**arguments)
            for value in found if isinstance(found, Iterator) else (found,):
                file.write(msgpack.packb(("value", value)))
        except Exception as error:  # noqa: BLE001 - whatever the probe raised is its answer
            file.write(msgpack.packb(("error", f"{type(error).__name__}: {error}")))


if __name__ == "__main__":
    end_with(int(sys.argv[3]))
    _main(sys.argv[1], int(sys.argv[2]))

"""Runs a program against the driver simulator: a child process, since libraries are found when a process starts."""

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from .build import built_libraries
from .fork_server import REPOSITORY, fork_program
from .scenario import Fault, Scenario, machine

__all__ = ["REPOSITORY", "Ran", "Traced", "needs", "run_on_gpu", "run_simulated", "simulated_environment"]

_SEED = "1"
"""The seed of deferred work: streams run nothing before a wait, and the seed decides what else runs at a wait."""


@dataclass(frozen=True, slots=True)
class Traced:
    """One line of the trace: the function, and its arguments or its further actions."""

    function: str
    values: Mapping[str, str]

    @property
    def is_call(self) -> bool:
        """Whether this is the line that every call writes, not a line with more details of a call."""
        return "call" in self.values


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The result of a program. ``exit_code`` is None if the program did not end in time and was killed."""

    exit_code: int | None
    stdout: str
    stderr: str
    trace: tuple[Traced, ...]

    def calls(self, function: str) -> tuple[Traced, ...]:
        """Return the calls of a function, in order."""
        return tuple(line for line in self.trace if line.function == function and line.is_call)

    def told(self, function: str) -> tuple[Traced, ...]:
        """Return the lines with more details of a function's calls, in order."""
        return tuple(line for line in self.trace if line.function == function and not line.is_call)


def simulated_environment(scenario: Scenario, folder: Path, *, shared_state: bool = False) -> dict[str, str]:
    """Return the variables with which a program finds the simulated driver; ``folder`` gets the scenario's files.

    The trace is ``folder / "trace"``. With ``shared_state`` all processes with these variables see one machine: they
    share Xids, lost devices, memory and fault counters. The work of CUDA's streams is deferred (deferred_work.h);
    ``DRIVER_SIM_DEFER`` in this process's environment is the seed of its order, 0 for none.

    Raises:
        BuildError: the simulator could not be compiled.
    """
    scenario.write(folder / "scenario")
    searched = [str(built_libraries()), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    variables = {
        "DRIVER_SIM_DEFER": os.environ.get("DRIVER_SIM_DEFER", _SEED),
        "LD_LIBRARY_PATH": os.pathsep.join(searched),
        "DRIVER_SIM": str(folder / "scenario"),
        "DRIVER_SIM_TRACE": str(folder / "trace"),
    }
    if shared_state:
        variables["DRIVER_SIM_STATE"] = str(folder / "state")
    return variables


def run_simulated(
    program: str | Sequence[str],
    scenario: Scenario,
    *,
    visible_devices: str | None = None,
    environment: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
    timeout_s: float = 60,
) -> Ran:
    """Run Python code (a string) or a command (a sequence) with the simulated driver, and return the result.

    Python code runs in a fork of a process that has imported the package (``fork_server.py``), with the repository
    importable, and with ``arguments`` in ``sys.argv[1:]``. ``visible_devices`` is CUDA_VISIBLE_DEVICES; ``environment``
    is added to this process's own.

    Raises:
        BuildError: the simulator could not be compiled.
    """
    with tempfile.TemporaryDirectory(prefix="driver-sim-") as name:
        folder = Path(name)
        variables = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
        variables |= simulated_environment(scenario, folder) | dict(environment or {})
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
        if visible_devices is not None:
            variables["CUDA_VISIBLE_DEVICES"] = visible_devices
        if isinstance(program, str):
            code, stdout, stderr = fork_program(program, arguments, variables, folder, timeout_s)
        else:
            code, stdout, stderr = _run([*program, *arguments], variables, timeout_s)
        return Ran(exit_code=code, stdout=stdout, stderr=stderr, trace=_read_trace(folder / "trace"))


def needs(*packages: str) -> pytest.MarkDecorator:
    """Skip a test if one of NVIDIA's packages is not installed."""
    missing = [package for package in packages if find_spec(package) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{' and '.join(missing)} not installed")


def run_on_gpu(program: str, *arguments: object, faults: Sequence[Fault] = (), driver: str = "") -> Ran:
    """Run Python code on a machine with one RTX 4090, the only device that it sees."""
    known = {"driver": driver} if driver else {}
    scenario = Scenario(machine=machine("rtx-4090"), faults=tuple(faults), **known)
    return run_simulated(program, scenario, visible_devices="0", arguments=[str(each) for each in arguments])


def _run(command: Sequence[str], variables: Mapping[str, str], timeout_s: float) -> tuple[int | None, str, str]:
    with subprocess.Popen(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as child:
        try:
            stdout, stderr = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            child.kill()
            stdout, stderr = child.communicate()
            return None, stdout, stderr
        return child.returncode, stdout, stderr


def _read_trace(path: Path) -> tuple[Traced, ...]:
    if not path.is_file():
        return ()
    return tuple(_read_line(line) for line in path.read_text(encoding="utf-8").splitlines())


def _read_line(line: str) -> Traced:
    function, *pairs = line.split(" ")
    return Traced(function, dict(pair.split("=", 1) for pair in pairs if "=" in pair))

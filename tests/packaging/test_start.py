"""Imports at the start of the program or the package: a command loads only what it uses."""

import subprocess
import sys
from pathlib import Path

import pytest

from codecfleet.testing.clips import Clip, constant_times, make_clip
from tests.sweeps import swept

NVIDIA = {"PyNvVideoCodec", "cuda", "pynvml"}
NOT_AT_FIRST = {"ray", "av", "numpy", "pydantic", "fsspec", "asyncio", "importlib.metadata"} | NVIDIA
"""Modules that no start needs."""
DEVICES = "codecfleet.actors.nvidia"
CLUSTER = {f"codecfleet.cluster.{room}" for room in ("placement", "probes", "supervisor", "survey")}

MEDIA = {"ray", "av", "numpy", "fsspec", DEVICES} | NVIDIA
LOCAL = {"ray", "fsspec", "codecfleet.cluster.supervisor", DEVICES} | NVIDIA
"""Modules that a job with local files does not need if its workers are in another process."""

IMPORTS = {
    "import codecfleet": NOT_AT_FIRST | {"typer", "rich", "codecfleet.actors", "codecfleet.cluster", "codecfleet.jobs"},
    "from codecfleet import Fleet": MEDIA | {"codecfleet.cluster.supervisor"},
    "from codecfleet import TranscodeSpec": MEDIA,
    # A job on a warm fleet or a host.
    "import codecfleet.cli.commands.transcode, codecfleet.jobs.run.job_run, codecfleet.cluster.fleet.default": LOCAL
    | {"codecfleet.cli.commands.batch"},
    # A process that transcodes a batch's small files one after another.
    "import codecfleet.cluster.worker.helper_program, codecfleet.jobs.batch.whole_file, codecfleet.jobs.run.job_run": (
        LOCAL
    ),
    # What a fleet's host loads before it starts its workers, then the host, and its worker.
    "import codecfleet.cluster.fleet.host.program": NOT_AT_FIRST - {"asyncio"} | CLUSTER,
    "import codecfleet.cluster.fleet.host.running, codecfleet.cluster.fleet.leases.leased_pool": MEDIA - {"fsspec"},
    "import codecfleet.cluster.worker.program, codecfleet.actors.segment.encoding": {"ray", "pydantic", DEVICES}
    | NVIDIA
    | CLUSTER,
}
COMMANDS = {
    "--version": NOT_AT_FIRST - {"importlib.metadata"} | {"typer", "rich", "codecfleet.actors", "codecfleet.jobs"},
    "--help": NOT_AT_FIRST | {"codecfleet.actors", "codecfleet.cluster", "codecfleet.jobs"},
    "transcode --help": MEDIA | CLUSTER,
    "probe {film}": LOCAL | {"rich", "codecfleet.jobs.run"} | CLUSTER,
    "plan {film} out.mp4": LOCAL | {"rich", "asyncio", "codecfleet.cluster.probes.vgpu"},
}
NEVER = {"opentelemetry"}
"""Modules that no start loads, since they are slow and traces are off."""


def loaded(code: str) -> set[str]:
    """Run code in a fresh Python and return the modules that it has loaded."""
    told = f"import sys\n{code}\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("code", swept(IMPORTS, is_slow=lambda code: code.startswith("from") or "helper" in code))
def test_an_import_loads_nothing_that_it_does_not_need(code: str) -> None:
    """A name is imported when it is first used."""
    assert loaded(code) & (IMPORTS[code] | NEVER) == set()


@pytest.mark.parametrize("line", swept(COMMANDS, is_slow=lambda line: line in ("--version", "transcode --help")))
def test_a_command_loads_nothing_that_it_does_not_need(line: str, tmp_path: Path) -> None:
    """A command's help and answer load only its own modules."""
    film = tmp_path / "film.mkv"
    make_clip(film, Clip(times=constant_times(10)))
    arguments = line.format(film=film).split()
    code = f"from codecfleet.cli.app import run\nassert run({arguments!r}) == 0"
    assert loaded(code) & (COMMANDS[line] | NEVER) == set()

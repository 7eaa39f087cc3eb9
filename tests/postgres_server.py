"""A PostgreSQL server of Debian's package, for one test module."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.integration.test_killed_programs import gone

PROGRAMS = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None)


class PostgresServer:
    """A server in ``folder``, which listens on a Unix socket alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"postgresql://queue@/postgres?host={folder}"

    def command(self, program: str, *arguments: str) -> list[str]:
        """Return the command of one of the server's programs, as another user than root, whom they refuse."""
        assert PROGRAMS is not None
        user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        return [*user, str(PROGRAMS / program), "-D", str(self.folder / "data"), *arguments]

    def run(self, program: str, *arguments: str) -> None:
        """Run one of the server's programs."""
        quiet = subprocess.DEVNULL
        subprocess.run(self.command(program, *arguments), check=True, stdout=quiet, stderr=quiet, cwd="/")

    def start(self) -> None:
        """Start the server; it does not flush its files, since a test has nothing to lose."""
        settings = f"-k {self.folder} -c listen_addresses='' -c fsync=off"
        self.run("pg_ctl", "-w", "-l", str(self.folder / "log"), "-o", settings, "start")

    def stop(self, mode: str = "immediate") -> None:
        """End the server; by default without any preparation."""
        self.run("pg_ctl", *_stop(mode))

    def processes(self) -> list[psutil.Process]:
        """Return the running server's processes, the first of which starts the others."""
        first = psutil.Process(int(self._pid_file.read_text().split()[0]))
        return [first, *first.children(recursive=True)]

    def kill(self) -> None:
        """Kill each of the server's processes, as a power failure does."""
        found = self.processes()
        for each in found:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        assert gone(found)
        self._pid_file.unlink(missing_ok=True)  # a process that nobody has reaped would seem to run

    @property
    def _pid_file(self) -> Path:
        return self.folder / "data" / "postmaster.pid"


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Start a new server; skip the test if there is none on this machine."""
    pytest.importorskip("psycopg")
    if PROGRAMS is None or not (os.geteuid() or shutil.which("runuser")):
        pytest.skip("PostgreSQL's server is not installed")
    folder = Path(tempfile.mkdtemp(prefix="cf-pg-", dir="/tmp"))
    server = PostgresServer(folder)
    with _ended_with_this_process(server):
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
        server.run("initdb", "--username", "queue", "--auth", "trust", "--no-sync")
        server.start()
        yield server


def _stop(mode: str) -> tuple[str, ...]:
    return "-w", "-m", mode, "stop"


@contextmanager
def _ended_with_this_process(server: PostgresServer) -> Iterator[None]:
    """End the server, and remove its folder, after the block, or when this process is killed."""
    # A server is no child of this process, so another process waits for the end of its standard input.
    command = ["sh", "-c", 'read -r word; "$@"; rm -rf "$0"', str(server.folder)]
    command += server.command("pg_ctl", *_stop("immediate"))
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, cwd="/", start_new_session=True
    ) as guard:
        try:
            yield
        finally:
            guard.communicate()

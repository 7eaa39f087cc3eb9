"""What the benchmarks count of a command is what its tree of processes really uses."""

import sys

import pytest
from bench.failures import CommandFailed
from bench.measure import Role, measure, role_of
from bench.processes import parse_stat

BURN = "sum(n * n for n in range(4_000_000))"


COUNTED = f"import time; b = time.process_time(); {BURN}; print(time.process_time() - b, flush=True)"


def python(program: str) -> list[str]:
    """Return the command that runs a program in a bare Python."""
    return [sys.executable, "-I", "-S", "-c", program]


class TestMeasure:
    """What a command and all it starts has cost."""

    def test_own_time(self) -> None:
        """A command's own CPU time is counted."""
        measured = measure(python(COUNTED))
        assert measured.cpu_s >= float(measured.output)
        assert measured.wall_s > 0
        assert measured.killed == 0

    def test_daemons(self) -> None:
        """What a daemon uses whose parents are gone is counted, exactly, although it outlives the command."""
        detached = f"""if True:
            import os
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    {COUNTED}
                os._exit(0)
            """
        measured = measure(python(detached))
        assert measured.cpu_s >= float(measured.output)
        assert measured.sampled_cpu_s == 0

    def test_parent_that_does_not_want_to_know(self) -> None:
        """What a child uses whose parent ignores its end, as Ray's do, is counted to the last sample."""
        ignoring = f"""if True:
            import os, signal, time
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            if os.fork() == 0:
                {COUNTED}
                time.sleep(0.5)
                os._exit(0)
            try:
                os.wait()
            except ChildProcessError:
                pass
            """
        measured = measure(python(ignoring))
        assert measured.sampled_cpu_s == pytest.approx(float(measured.output), abs=0.1)
        assert measured.cpu_s >= measured.sampled_cpu_s

    def test_memory_of_all_together(self) -> None:
        """Memory is that of all processes at once, each page counted once."""
        forking = """if True:
            import os, time
            shared = bytearray(b"x") * (64 << 20)
            told, tell = os.pipe()
            child = os.fork()
            own = bytearray(b"y") * (32 << 20)
            if child:
                os.read(told, 1)
                time.sleep(1)
                os.kill(child, 9)
                os.wait()
            else:
                os.write(tell, b"1")
                time.sleep(60)
            """
        measured = measure(python(forking))
        if measured.memory_kind == "RSS":
            pytest.skip("this kernel does not tell PSS")
        assert 128 <= measured.peak_bytes / 2**20 < 128 + 40

    def test_failure(self) -> None:
        """A command that fails is an error that says what it said."""
        with pytest.raises(CommandFailed, match=r"status 3: it broke"):
            measure(python("import sys; print('it broke', file=sys.stderr); sys.exit(3)"))

    @pytest.mark.parametrize(
        ("command", "role"),
        [
            ("ray::RayWorker", Role.WORKERS),
            ("ray::IDLE", Role.WORKERS),
            ("ray::DashboardAgent", Role.RAY),
            ("/venv/lib/python3.11/site-packages/ray/core/src/ray/raylet/raylet --x", Role.RAY),
            ("python /venv/lib/site-packages/ray/_private/workers/default_worker.py", Role.WORKERS),
            ("/bin/ffmpeg -i a b", Role.OTHER),
        ],
    )
    def test_roles(self, command: str, role: Role) -> None:
        """Ray's workers are told from the rest of Ray by what they call themselves."""
        assert role_of(7, command, main_pid=6) is role
        assert role_of(7, command, main_pid=7) is Role.MAIN

    def test_names_with_brackets(self) -> None:
        """A process may call itself anything without confusing the fields after its name."""
        numbers = " ".join(str(n) for n in range(4, 60))
        found = parse_stat(f"41 (a) b (c)) S 3 {numbers[2:]}")
        assert (found.pid, found.parent) == (41, 3)

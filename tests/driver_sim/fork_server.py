"""Runs programs in forks of a process that has already imported the package, which takes a second.

``python -m tests.driver_sim.fork_server DESCRIPTOR`` is the server; ``fork_program`` is its only client. The server
loads no library of the driver: each fork loads its own, with its own scenario.
"""

import atexit
import ctypes
import gc
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from ctypes.util import find_library
from functools import cache
from importlib import import_module
from pathlib import Path
from signal import SIGKILL
from types import ModuleType

__all__ = ["fork_program"]

REPOSITORY = Path(__file__).resolve().parents[2]
IMPORTED = (
    "asyncio",
    "numpy",
    "av.video.frame",
    "codecfleet.testing.clips",
    "codecfleet.actors.nvidia.egl.images",
    "codecfleet.actors.nvidia.nvenc.session",
    "codecfleet.actors.settle.request",
    "codecfleet.cluster.probes.gpus.health_poll",
    "codecfleet.cluster.worker.own_gpu",
    "codecfleet.jobs.frames.stream",
    "codecfleet.jobs.infer.job",
    "codecfleet.testing",
    "tests.driver_sim.fault_programs",
)
IF_INSTALLED = ("cuda.bindings.driver", "pynvml")
MEDIA = ("avcodec", "swscale")
"""What the simulator's codecs link to, with 90 more libraries: a fork would load them for each session."""


def fork_program(
    program: str, arguments: Sequence[str], variables: Mapping[str, str], folder: Path, timeout_s: float
) -> tuple[int | None, str, str]:
    """Run Python code as ``python -c`` does; return its exit code (None: killed in time), output and errors."""
    request = folder / "program.json"
    described = [program, ["-c", *arguments], dict(variables), str(Path.cwd())]
    request.write_text(json.dumps(described), encoding="utf-8")
    server = _server(variables["LD_LIBRARY_PATH"])
    ends = [os.pipe(), os.pipe()]
    socket.send_fds(server, [f"{request}\n".encode()], [writing for _, writing in ends])
    for _, writing in ends:
        os.close(writing)
    with ThreadPoolExecutor(2) as readers, server.makefile("r", encoding="utf-8") as answers:
        child = int(answers.readline())
        outputs = [readers.submit(_read, reading) for reading, _ in ends]
        is_late = True
        try:
            is_late = bool(wait(outputs, timeout_s).not_done)
        finally:  # a test's own time limit may also end the wait
            if is_late:
                with suppress(ProcessLookupError):
                    os.kill(child, SIGKILL)
            code = int(answers.readline())
        return None if is_late else code, outputs[0].result(), outputs[1].result()


def _read(descriptor: int) -> str:
    with open(descriptor, encoding="utf-8", errors="replace") as opened:
        return opened.read()


@cache
def _server(libraries: str) -> socket.socket:
    """Start the server; it ends when this process does."""
    ours, theirs = socket.socketpair()
    variables = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
    variables |= {"LD_LIBRARY_PATH": libraries, "PYTHONPATH": str(REPOSITORY)}
    variables |= {"OPENBLAS_NUM_THREADS": "1"}  # a process with threads must not be forked
    command = [sys.executable, "-m", "tests.driver_sim.fork_server", str(theirs.fileno())]
    with theirs:
        child = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=variables, cwd=REPOSITORY)

    def end() -> None:
        ours.close()
        child.wait()

    atexit.register(end)
    return ours


def _serve(channel: socket.socket) -> None:
    """Fork for each request, until no request is left."""
    for name in IMPORTED:
        import_module(name)
    for name in IF_INSTALLED:
        with suppress(ImportError):
            import_module(name)
    for found in filter(None, map(find_library, MEDIA)):
        ctypes.CDLL(found)
    gc.freeze()
    while True:
        request, outputs, _, _ = socket.recv_fds(channel, 4096, 2)
        if not request:
            return
        program, sys.argv[:], variables, folder = json.loads(Path(request.decode().strip()).read_text(encoding="utf-8"))
        child = os.fork()
        if child == 0:
            channel.close()
            for number, descriptor in enumerate(outputs, 1):
                os.dup2(descriptor, number)
                os.close(descriptor)
            os.environ.clear()
            os.environ.update(variables)
            os.chdir(folder)
            sys.path[0] = ""
            os._exit(_run(program))
        for descriptor in outputs:
            os.close(descriptor)
        channel.sendall(f"{child}\n".encode())
        _, status = os.waitpid(child, 0)
        channel.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _run(program: str) -> int:
    """Run a program to its end, and return its exit code.

    The usual steps at exit are done, except the removal of modules, which takes longer than most programs.
    """
    main = sys.modules["__main__"] = ModuleType("__main__")
    code: object = 0
    try:
        exec(compile(program, "<string>", "exec"), main.__dict__)  # noqa: S102 -- what ``python -c`` does
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException as error:  # noqa: BLE001 -- as the interpreter does
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    main.__dict__.clear()
    gc.collect()
    if not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as served:
        _serve(served)

"""A command that a film has taken over reaches only its input, its output and the system's programs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from codecfleet.cluster.sandbox.confine import why_not
from codecfleet.testing.clips import Clip, constant_times, make_clip

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(bool(why_not()), reason=f"commands are not confined here: {why_not()}"),
]

REPLACED = """
import sys
from pathlib import Path
from codecfleet.cluster.sandbox.confine import FileAccess, confine
film = Path(sys.argv[1])
confine(FileAccess(reads=(film,)), 4 << 30)
from codecfleet.actors.media.opening import open_source
from codecfleet.errors import InputUnreadable
print("confined", flush=True)
sys.stdin.readline()
try:
    with open_source(str(film)):
        print("opened")
except InputUnreadable as error:
    print(error.message)
"""

TAKEN_OVER = """
import ctypes, fcntl, json, mmap, os, platform, pty, resource, signal, socket, subprocess, sys, termios
from pathlib import Path
_, terminal = pty.openpty()
os.setsid()
fcntl.ioctl(terminal, termios.TIOCSCTTY)
from codecfleet.cluster.sandbox.confine import FileAccess, confine
folder = Path(sys.argv[1])
confine(FileAccess(reads=(folder / "in.mp4",), writes=(folder / "out",)), 4 << 30)
import av

def opened_by_ffmpeg(name, **given):
    with av.open(str(name), **given) as container:
        return [packet.size for packet in container.demux()]

NEW_USER, NEW_NETWORK = 1 << 28, 1 << 30
UNUSED = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE

def new_namespace(flags):
    number = {"x86_64": 56, "aarch64": 220}[platform.machine()]
    call = ctypes.CDLL(None, use_errno=True).syscall
    child = call(*map(ctypes.c_long, (number, flags | signal.SIGCHLD, 0, 0, 0, 0)))
    if child == 0:
        os._exit(0)
    if child < 0:
        raise OSError(ctypes.get_errno(), "refused")
    os.waitpid(child, 0)

secret = folder / "secret.mp4"
(folder / "out" / "list.txt").write_text(f"ffconcat version 1.0\\nfile {secret}\\n")
program = folder / "out" / "program"
program.write_text("#!/bin/sh\\n")
program.chmod(0o755)
TRIES = {
    "read another file": lambda: secret.read_bytes(),
    "read it by a link": lambda: ((folder / "out" / "link").symlink_to(secret), (folder / "out" / "link").read_bytes()),
    "read it in a child": lambda: subprocess.run(["cat", str(secret)], check=True, capture_output=True),
    "read it by FFmpeg": lambda: opened_by_ffmpeg(secret),
    "read it by a script of FFmpeg": lambda: opened_by_ffmpeg(
        folder / "out" / "list.txt", format="concat", options={"safe": "0"}
    ),
    "list the home": lambda: os.listdir(Path.home()),
    "read the keys": lambda: Path("/etc/shadow").read_bytes(),
    "write elsewhere": lambda: (folder / "planted").write_bytes(b"x"),
    "write over the input": lambda: (folder / "in.mp4").write_bytes(b"x"),
    "truncate the secret": lambda: os.truncate(secret, 0),
    "remove it": lambda: secret.unlink(),
    "move the output away": lambda: (folder / "out" / "list.txt").rename(folder / "moved"),
    "run what was written": lambda: subprocess.run([str(program)], check=True),
    "connect": lambda: socket.create_connection(("127.0.0.1", 9)),
    "send a datagram": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
    "reach a daemon": lambda: socket.socket(socket.AF_UNIX),
    "fetch by FFmpeg": lambda: opened_by_ffmpeg("http://127.0.0.1:9/a.mp4"),
    "stop its parent": lambda: os.kill(os.getppid(), 0),
    "look into its parent": lambda: Path(f"/proc/{os.getppid()}/environ").read_bytes(),
    "take its parent's CPU time": lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CPU),
    "be root in a namespace": lambda: new_namespace(NEW_USER),
    "have a network of its own": lambda: new_namespace(NEW_USER | NEW_NETWORK),
    "take more memory than twice what there is": lambda: mmap.mmap(-1, 9 << 30, flags=UNUSED),
    "type into the terminal": lambda: fcntl.ioctl(terminal, termios.TIOCSTI, b"x"),
}
worked = []
for name, attempt in TRIES.items():
    try:
        attempt()
    except (OSError, subprocess.CalledProcessError, av.error.FFmpegError):
        continue
    worked.append(name)
MAY = {
    "ask for memory and not use it, as encoders do": lambda: mmap.mmap(-1, 5 << 30, flags=UNUSED),
    "read the input": lambda: (folder / "in.mp4").read_bytes(),
    "decode it": lambda: opened_by_ffmpeg(folder / "in.mp4"),
    "write the output": lambda: (folder / "out" / "a").write_bytes(b"x"),
    "publish it": lambda: (folder / "out" / "a").rename(folder / "out" / "b"),
    "speak with its own": lambda: socket.socketpair(),
    "start Python": lambda: subprocess.run([sys.executable, "-c", "import av, numpy"], check=True),
}
for attempt in MAY.values():
    attempt()
print(json.dumps(worked))
"""


def test_nothing_else_can_be_reached(tmp_path: Path) -> None:
    """The command and its children reach no other file, no socket, no new program and no other process."""
    clip = make_clip(tmp_path / "in.mp4", Clip(times=constant_times(5)))
    (tmp_path / "secret.mp4").write_bytes(clip.read_bytes())
    (tmp_path / "out").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", TAKEN_OVER, str(tmp_path)], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
    assert (tmp_path / "secret.mp4").read_bytes() == clip.read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"in.mp4", "secret.mp4", "out"}


def test_another_film_under_its_name_is_named(tmp_path: Path) -> None:
    """A film that replaced a confined command's input cannot be opened, and the error says that it was replaced."""
    clip, other = (make_clip(tmp_path / name, Clip(times=constant_times(5))) for name in ("in.mp4", "other.mp4"))
    command = [sys.executable, "-c", REPLACED, str(clip)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "confined\n"
        other.replace(clip)
        process.stdin.write("go on\n")
        process.stdin.flush()
        assert process.stdout.readline() == f"{clip} was changed or removed while it was read\n"


def run_cli(*arguments: object, sandbox: str = "required") -> "subprocess.CompletedProcess[str]":
    """Run the program."""
    command = [sys.executable, "-m", "codecfleet", *map(str, arguments)]
    others = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "CODECFLEET_"))}
    environment = others | {"CODECFLEET_SANDBOX": sandbox}
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, env=environment)


def test_questions_are_answered(tmp_path: Path) -> None:
    """Probing and planning need nothing that is refused."""
    clip = make_clip(tmp_path / "in.mp4", Clip(times=constant_times(25)))
    for command in ("probe", "plan"):
        done = run_cli(command, clip)
        assert (done.returncode, done.stderr) == (0, ""), command


@pytest.mark.slow
def test_a_confined_job_makes_the_same_bytes(tmp_path: Path) -> None:
    """Host and workers are confined in the same way, without an effect on the output."""
    clip = make_clip(tmp_path / "in.mp4", Clip(times=constant_times(50), keyframes=frozenset({0, 25})))
    (tmp_path / "out").mkdir()
    for sandbox in ("required", "off"):
        output = tmp_path / "out" / f"{sandbox}.mp4"
        done = run_cli("transcode", "--quiet", "--preset", "1", clip, output, sandbox=sandbox)
        assert (done.returncode, done.stderr) == (0, "")
    first, second = sorted((tmp_path / "out").iterdir())
    assert first.read_bytes() == second.read_bytes()


def test_where_it_is_required_and_impossible(tmp_path: Path) -> None:
    """A remote film gives exit code 4, and no message about the sandbox if that is off."""
    done = run_cli("probe", "memory://nothing/a.mkv")
    assert done.returncode == 4
    assert "cannot be confined: it reads from or writes to a remote URL" in done.stderr
    assert run_cli("probe", "memory://nothing/a.mkv", sandbox="auto").returncode == 3
    assert not list(tmp_path.iterdir())


def test_a_confined_worker_runs_work_alone(tmp_path: Path) -> None:
    """The helper for work that twice lost its worker starts, with the memory limit that it has inherited."""
    program = """
import asyncio, resource, sys
from pathlib import Path
from codecfleet.cluster import machine
from codecfleet.cluster.sandbox.confine import FileAccess, confine
confine(FileAccess(reads=(), writes=(Path(sys.argv[1]),)), machine.memory_bytes())
from codecfleet.actors.worker.helper import Helper
from codecfleet.cluster.worker.helper_program import CPU, spawn_helper

def limited(slots):
    started = spawn_helper(CPU, slots)
    limits.append(resource.getrlimit(resource.RLIMIT_DATA))
    return started

async def main():
    helper = Helper(limited, 1)
    await helper.is_up.wait()
    print(helper.has_been_ready, helper.gone, limits[0][0] == 2 * machine.memory_bytes())
    helper.end("it is not needed")

limits = []
asyncio.run(main())
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("True  True\n", 0), done.stderr


def test_other_threads_are_not_left_outside() -> None:
    """If a process has other threads, it is not confined at all."""
    program = """
import threading, pathlib
from codecfleet.cluster.sandbox.confine import FileAccess, confine
threading.Thread(target=threading.Event().wait, daemon=True).start()
try:
    confine(FileAccess(reads=()), 1 << 40)
except OSError as error:
    print(error, pathlib.Path("/etc/hostname").exists() and bool(pathlib.Path("/etc").iterdir()))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "this process has other threads True\n"

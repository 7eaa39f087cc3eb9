"""Start and end of a node in the foreground, with shell programs instead of Ray."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from codecfleet.cluster.fleet_variables import KEEPER as ITS_SOCKET
from codecfleet.cluster.node.registry import kept_nodes, registered
from codecfleet.cluster.ray.keeper import Driving, Word, tell_keeper
from tests.live_processes import is_live
from tests.metadata_server import FakeMetadata, metadata_server

KEEPER = """
import os, signal, sys, threading
from functools import partial
from codecfleet.actors.backoff import Backoff
from codecfleet.cluster.node import keeping, own_driver
from codecfleet.cluster.node.spot import Spot
from codecfleet.cluster.node.spot_watch import SpotWatch, ask_server
from codecfleet.errors import FleetUnavailable

keeping.STOP_S = 0
own_driver.AGAIN, own_driver.HAND_BACK_S = Backoff(0.1, 1.0), float(sys.argv[5])
driver = own_driver.OwnDriver(["sh", "-c", sys.argv[4]] if sys.argv[4] else [], os.environ, partial(print, flush=True))
keeping.ray_command = lambda arguments, orders: ["sh", "-c", *arguments, "sh", f"/proc/self/fd/{orders}"]
port = int(sys.argv[3])
watch = SpotWatch(Spot.AWS if port else Spot.OFF, partial(ask_server, server=("127.0.0.1", port)), lambda _: False)

def up():
    print("up", flush=True)
    for number in sys.argv[6:]:
        signal.pthread_kill(threading.get_ident(), int(number))

try:
    keeping.keep([sys.argv[1]], {"MARK": "ours"}, notice_s=int(sys.argv[2]), watch=watch, driver=driver, on_start=up)
except FleetUnavailable as error:
    print(error)
    sys.exit(5)
print("down")
"""
NAMESPACE = pytest.mark.skipif(os.geteuid() != 0, reason="a namespace of processes needs root")
UP = "echo 'Ray runtime started.'; "
RUN = "while kill -0 $PPID; do sleep 0.05; done"
OBEDIENT = f"{UP}trap 'echo drained; exit 1' TERM; {RUN}"
DEAF = f"{UP}trap '' TERM; {RUN}"
DRIVER = f"trap 'echo handed back; exit' TERM; echo drives; {RUN}"
DEAF_DRIVER = f"trap '' TERM; echo drives; {RUN}"


@contextmanager
def keeper(
    ray: str,
    *,
    notice_s: int = 60,
    first: bool = False,
    aside: Sequence[int] = (),
    metadata: int = 0,
    driver: str = "",
    hand_back_s: float = 60,
) -> "Iterator[subprocess.Popen[str]]":
    """Start a process that keeps a node, and kill it at the end if it still runs.

    With ``first`` it is the first process of its own namespace. It sends itself the signals ``aside`` once the node is
    up, and has a thread other than the main one receive them. ``metadata`` is the port of its cloud's metadata server,
    ``driver`` a shell program in the place of the node's driver.
    """
    space = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"] if first else []
    command = [
        *space,
        sys.executable,
        "-c",
        textwrap.dedent(KEEPER),
        ray,
        str(notice_s),
        str(metadata),
        driver,
        str(hand_back_s),
        *map(str, aside),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()  # Otherwise, leaving the block would wait for it without end.


def come_up(process: "subprocess.Popen[str]") -> None:
    """Wait until the node is up."""
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"


@pytest.mark.parametrize(
    ("ray", "notice_s", "numbers"),
    [
        *((OBEDIENT, 60, [number]) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)),
        (DEAF, 60, [signal.SIGTERM, signal.SIGINT]),
        (DEAF, 0, [signal.SIGTERM]),
    ],
    ids=["SIGTERM", "SIGINT", "SIGHUP", "a second signal", "no time left"],
)
def test_a_signal_ends_the_node_and_the_keeper_exits_with_0(
    ray: str, notice_s: int, numbers: list[signal.Signals]
) -> None:
    """Ray is asked to stop; a second signal, or the end of the notice period, kills it."""
    with keeper(ray, notice_s=notice_s) as process:
        come_up(process)
        for number in numbers:
            process.send_signal(number)
        said, _ = process.communicate()
    assert (process.returncode, said) == (0, "down\n")


@pytest.mark.parametrize(("ray", "numbers"), [(OBEDIENT, [15]), (DEAF, [15, 2])], ids=["one", "two"])
def test_a_signal_is_heard_whichever_thread_takes_it(ray: str, numbers: list[int]) -> None:
    """The kernel may deliver a signal to a reading thread while the main thread waits for Ray to end."""
    with keeper(ray, aside=numbers) as process:
        said, _ = process.communicate()
    assert (process.returncode, said) == (0, "up\ndown\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_notice_drains_the_node_for_the_time_that_is_left(number: signal.Signals, tmp_path: Path) -> None:
    """A signal after the notice lets the drain go on; a second one ends it, and the keeper exits with 0."""
    told = tmp_path / "told"
    os.mkfifo(told)
    ray = f"exec 9> {told}; {UP}read left < $1; echo $left >&9; trap '' TERM; {RUN}"
    with metadata_server(FakeMetadata()) as fake, keeper(ray, metadata=fake.port) as process, told.open() as line:
        come_up(process)
        fake.announce(90)
        assert 82 <= int(line.readline()) <= 85
        process.send_signal(number)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.send_signal(number)
        said, _ = process.communicate()
    assert (process.returncode, said) == (0, "down\n")


def test_a_notice_ends_the_node_also_if_ray_is_deaf() -> None:
    """When the time left is over, Ray is killed."""
    with metadata_server(FakeMetadata()) as fake, keeper(DEAF, metadata=fake.port) as process:
        come_up(process)
        fake.announce(0)
        said, _ = process.communicate()
    assert (process.returncode, said) == (0, "down\n")


def test_a_notice_after_a_signal_changes_nothing() -> None:
    """The node drains already."""
    ray = f"{UP}trap 'read left < $1; echo $left; exit 1' TERM; {RUN}"
    with metadata_server(FakeMetadata()) as fake, keeper(ray, notice_s=1, metadata=fake.port) as process:
        come_up(process)
        process.send_signal(signal.SIGTERM)
        fake.announce(100)
        said, _ = process.communicate()
    assert (process.returncode, said) == (0, "down\n")


@pytest.mark.parametrize("is_noticed_first", [True, False])
def test_a_sooner_end_is_passed_on(is_noticed_first: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter
    """A notice after a signal, and a signal after a notice, shorten the drain."""
    told = tmp_path / "told"
    os.mkfifo(told)
    ray = f"exec 9> {told}; exec 8< $1; trap 'echo term >&9' TERM; {UP}"
    ray += "while kill -0 $PPID; do read left <&8 && echo $left >&9; done"
    notice_s = 20 if is_noticed_first else 300
    with (
        metadata_server(FakeMetadata()) as fake,
        keeper(ray, notice_s=notice_s, metadata=fake.port) as process,
        told.open() as lines,
    ):
        come_up(process)
        if not is_noticed_first:
            process.send_signal(signal.SIGTERM)
            assert lines.readline() == "term\n"
        fake.announce(90)
        assert 82 <= int(lines.readline()) <= 85
        if is_noticed_first:
            process.send_signal(signal.SIGTERM)
            assert int(lines.readline()) == notice_s


def read(process: "subprocess.Popen[str]") -> str:
    """Return the next line of a keeper's output."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("first", [False, pytest.param(True, marks=NAMESPACE)])
def test_a_driver_starts_with_the_node_and_is_started_again(first: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """However it ends; when the node drains, the driver hands back its jobs, and Ray drains meanwhile."""
    driver = f"mkdir {tmp_path}/a 2> /dev/null && exit 3; mkdir {tmp_path}/b 2> /dev/null && kill -9 $$; {DRIVER}"
    with keeper(OBEDIENT, first=first, driver=driver) as process:
        said = [read(process) for _ in range(4)]
        (keeping,) = psutil.Process(process.pid).children() if first else [process]
        keeping.send_signal(signal.SIGTERM)
        rest, _ = process.communicate()
    assert said == [
        "up",
        "the driver ended: it ended with exit code 3; it starts again in 0.1 s",
        "the driver ended: it was killed by SIGKILL; it starts again in 0.2 s",
        "drives",
    ]
    assert (process.returncode, rest) == (0, "handed back\ndown\n")


@pytest.mark.parametrize(
    ("ray", "hand_back_s", "numbers"),
    [
        (OBEDIENT, 0.2, [signal.SIGTERM]),
        (OBEDIENT, 60, [signal.SIGTERM, signal.SIGINT]),
        (DEAF, 60, [signal.SIGTERM, signal.SIGINT]),
    ],
    ids=["late", "a second signal", "also of a deaf Ray"],
)
def test_a_driver_that_does_not_end_is_killed(ray: str, hand_back_s: float, numbers: list[signal.Signals]) -> None:
    """When its time is over, or at a second signal."""
    with keeper(ray, driver=DEAF_DRIVER, hand_back_s=hand_back_s) as process:
        assert [read(process), read(process)] == ["up", "drives"]
        children = psutil.Process(process.pid).children()
        for number in numbers:
            process.send_signal(number)
        said, _ = process.communicate(timeout=20)
    assert (process.returncode, said, len(children)) == (0, "down\n", 2)
    assert not any(map(is_live, children))


RESTS = "the node drains, so the driver hands back its jobs and rests"
HOLDS = "the node is cordoned, so the driver claims no job"
CLAIMS = "the node takes work again, so the driver claims jobs"
HELD_DRIVER = f"trap 'echo held' USR1; trap 'echo claims' USR2; {DRIVER}"


def test_a_driver_obeys_the_words_for_its_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It hands back its jobs when its node drains, and runs again when that is uncordoned; a late word is ignored."""
    told = tmp_path / "told"
    os.mkfifo(told)
    with keeper(f"echo ${ITS_SOCKET} > {told}; {OBEDIENT}", driver=HELD_DRIVER) as process:
        monkeypatch.setenv(ITS_SOCKET, told.read_text().strip())
        assert [read(process), read(process)] == ["up", "drives"]
        tell_keeper(Word(1, 6, Driving.HOLDS))
        assert [read(process), read(process)] == [HOLDS, "held"]
        tell_keeper(Word(1, 7, Driving.CLAIMS))
        assert [read(process), read(process)] == [CLAIMS, "claims"]
        tell_keeper(Word(1, 8, Driving.RESTS))
        assert [read(process), read(process)] == [RESTS, "handed back"]
        tell_keeper(Word(1, 9, Driving.HOLDS))
        assert read(process) == HOLDS
        tell_keeper(Word(2, 2, Driving.CLAIMS))
        assert [read(process), read(process)] == [CLAIMS, "drives"]
        tell_keeper(Word(1, 10, Driving.RESTS))
        tell_keeper(Word(2, 1, Driving.RESTS))
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate()
    assert (process.returncode, said) == (0, "handed back\ndown\n")


@pytest.mark.parametrize(("driving", "said"), [(Driving.RESTS, RESTS), (Driving.HOLDS, HOLDS)])
def test_a_word_before_the_node_is_up_is_kept(
    driving: Driving, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that drains or is cordoned when it joins runs no driver until it is uncordoned."""
    told, go = tmp_path / "told", tmp_path / "go"
    os.mkfifo(told)
    os.mkfifo(go)
    with keeper(f"echo ${ITS_SOCKET} > {told}; read line < {go}; {OBEDIENT}", driver=DRIVER) as process:
        monkeypatch.setenv(ITS_SOCKET, told.read_text().strip())
        tell_keeper(Word(1, 1, Driving.CLAIMS))
        tell_keeper(Word(1, 2, driving))
        assert read(process) == said
        go.write_text("\n")
        come_up(process)
        tell_keeper(Word(1, 3, driving))
        tell_keeper(Word(1, 4, Driving.CLAIMS))
        assert [read(process), read(process)] == [CLAIMS, "drives"]
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate()
    assert (process.returncode, out) == (0, "handed back\ndown\n")


def test_a_driver_that_dies_on_a_cordoned_node_stays_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue gives its jobs to other nodes; it starts again when the node is uncordoned."""
    told = tmp_path / "told"
    os.mkfifo(told)
    with keeper(f"echo ${ITS_SOCKET} > {told}; {OBEDIENT}", driver=DRIVER) as process:
        monkeypatch.setenv(ITS_SOCKET, told.read_text().strip())
        assert [read(process), read(process)] == ["up", "drives"]
        tell_keeper(Word(1, 1, Driving.HOLDS))
        assert [read(process), read(process)] == [HOLDS, "the driver ended: it was killed by SIGUSR1"]
        tell_keeper(Word(1, 2, Driving.CLAIMS))
        assert [read(process), read(process)] == [CLAIMS, "drives"]


def test_rays_processes_know_whether_their_node_has_a_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that keeps a node below another one's Ray does not pass on that one's socket."""
    told = tmp_path / "told"
    os.mkfifo(told)
    monkeypatch.setenv(ITS_SOCKET, "outer")
    with keeper(f"echo of ${ITS_SOCKET} > {told}; {OBEDIENT}"):
        assert told.read_text() == "of\n"


def test_a_driver_hands_back_when_the_cloud_gives_notice_or_ray_ends() -> None:
    """Its jobs go on elsewhere at once."""
    with metadata_server(FakeMetadata()) as fake, keeper(DEAF, metadata=fake.port, driver=DRIVER) as process:
        assert [read(process), read(process)] == ["up", "drives"]
        fake.announce(7)
        assert read(process) == "handed back"
        said, _ = process.communicate(timeout=20)
    assert (process.returncode, said) == (0, "down\n")
    with keeper(OBEDIENT, driver=DRIVER) as process:
        assert [read(process), read(process)] == ["up", "drives"]
        ray, _ = sorted(psutil.Process(process.pid).children(), key=psutil.Process.create_time)
        ray.kill()
        said, _ = process.communicate(timeout=20)
    assert process.returncode == 5
    assert said.startswith("handed back\nRay ended by itself: it was killed by SIGKILL. ")


def test_a_signal_after_rays_death_ends_the_driver_and_hides_no_failure() -> None:
    """Ray ended by itself, whatever comes while the driver hands back its jobs."""
    with keeper(OBEDIENT, driver=DEAF_DRIVER) as process:
        assert [read(process), read(process)] == ["up", "drives"]
        ray, driver = sorted(psutil.Process(process.pid).children(), key=psutil.Process.create_time)
        ray.kill()
        ray.wait(20)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=20)
    assert process.returncode == 5
    assert said.startswith("Ray ended by itself")
    assert not is_live(driver)


@pytest.mark.parametrize(
    ("ray", "said"),
    [
        ("echo why; exit 3", "Ray did not start: why."),
        (UP + "echo out of memory; exit 1", "Ray ended by itself: out of memory."),
        (UP + "kill -9 $$", "Ray ended by itself: it was killed by SIGKILL."),
        ("exit 3", "Ray did not start: it ended with exit code 3."),
    ],
)
def test_an_end_by_itself_is_an_error(ray: str, said: str) -> None:
    """The error has the last line that Ray printed, or how Ray ended."""
    with keeper(ray) as process:
        out, _ = process.communicate()
    assert process.returncode == 5
    assert said in out


def test_nothing_of_ray_is_left() -> None:
    """When the keeper ends, all processes end that Ray started in its own process group."""
    with keeper("sleep 1000 & echo $! >&2; " + OBEDIENT) as process:
        come_up(process)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert len(children) > 1
    assert not any(map(is_live, children))


@NAMESPACE
def test_as_the_first_process_it_sees_orphans_off() -> None:
    """In a container without an init, no process that lost its parent stays as a zombie."""
    orphan = "(sh -c 'exit 0' & ) ; sleep 0.2; ps -e -o stat= | grep -c Z; "
    with keeper(UP + orphan + "exit 1", first=True) as process:
        out, _ = process.communicate()
    assert "ended by itself: 0" in out


def test_kept_nodes_are_found_until_they_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A running node is found by its socket; a killed node leaves no socket, and after the last one no folder."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    program = "import sys, time; from codecfleet.cluster.node.registry import registered\n"
    program += "with registered(75): print('here', flush=True); time.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert kept_nodes() == {process.pid: 75}
        process.kill()
        process.wait()
    assert kept_nodes() == {}
    assert list(tmp_path.iterdir()) == []


def test_a_node_without_a_place_to_be_found_does_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only container has no runtime directory, so the node is not listed."""
    (tmp_path / "codecfleet").write_text("in the way")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with registered(5):
        assert (tmp_path / "codecfleet").read_text() == "in the way"

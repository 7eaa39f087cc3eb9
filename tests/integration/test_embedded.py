"""What a private Ray does to the network, the home directory, the calling process and the host."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.live_processes import is_live

pytestmark = pytest.mark.ray

PRELUDE = """
import asyncio, json, os, signal
import psutil
from codecfleet.cluster.ray.embedded import connect
from codecfleet.testing import works

def tree():
    return psutil.Process().children(recursive=True)

def listening_of(process):
    try:
        return {c.laddr for c in process.net_connections() if c.status == psutil.CONN_LISTEN}
    except psutil.NoSuchProcess:
        return set()

def listening(processes):
    return sorted({place.ip for process in processes for place in listening_of(process)})

def served(processes):
    ports = {place.port for process in processes for place in listening_of(process)}
    return [port for port in ports if answers(port)]

def answers(port):
    from http.client import HTTPException
    from urllib.request import urlopen
    try:
        return urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).status == 200
    except (OSError, HTTPException):
        return False

def dispositions():
    with open("/proc/self/status") as status:
        caught = next(line for line in status if line.startswith("SigCgt"))
    return [bool(int(caught.split()[1], 16) >> (s - 1) & 1) for s in (signal.SIGTERM, signal.SIGINT)]

def is_running():
    import ray
    return ray.is_initialized()

async def ask(connection, work):
    from codecfleet.cluster.fleet.leases.connecting import ground_on
    from codecfleet.cluster.fleet.leases.leased_pool import LeasedPool
    async with LeasedPool(ground_on(connection, None).reach) as pool:
        return await pool.submit(work)

def tell(**facts):
    print(json.dumps(facts), flush=True)
"""
PUBLICLY = """
os.environ["_CODECFLEET_RAY_PRIVATE"] = "off"
"""
"""Runs before a script, and makes Ray look like an unknown version."""
LOOPBACK = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Mapping[str, str]]:
    """An environment with an empty home and temporary directory."""
    home = tmp_path / "home"
    home.mkdir()
    # Ray's sockets need a shorter path than tmp_path.
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="cf-") as short:
        yield {**os.environ, "HOME": str(home), "RAY_TMPDIR": short, "PYTHONPATH": os.pathsep.join(sys.path)}


def script(body: str, first: str = "") -> list[str]:
    """Return the command that runs ``body`` after the prelude."""
    return [sys.executable, "-c", PRELUDE + first + textwrap.dedent(body)]


def run(
    body: str, places: Mapping[str, str], *prefix: str, first: str = ""
) -> tuple[dict[str, Any], subprocess.CompletedProcess[str]]:
    """Run a script to its end; return the facts in its last line and the completed process."""
    done = subprocess.run(
        [*prefix, *script(body, first)], env=dict(places), capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done


def written(places: Mapping[str, str]) -> list[Path]:
    """Return all files in the home and in the temporary directory."""
    return [path for place in ("HOME", "RAY_TMPDIR") for path in Path(places[place]).rglob("*")]


def alive(pids: list[int]) -> list[int]:
    """Return which of these processes still run."""
    return [process.pid for process in psutil.process_iter() if process.pid in pids and is_live(process)]


@pytest.mark.parametrize(
    "first",
    [pytest.param("", id="lean"), pytest.param(PUBLICLY, id="public", marks=pytest.mark.slow)],
)
def test_a_good_guest(places: Mapping[str, str], first: str) -> None:
    """A private Ray is local only, protected by a token, and leaves nothing behind.

    It writes nothing into the home, keeps environment and handlers, and prints nothing. A Ray that is started by public
    calls only explains why, and prints on standard output that a worker died.
    """
    facts, done = run(
        """
        called = []
        def state():
            handlers = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
            return dict(os.environ), handlers, dispositions()
        async def main():
            signal.signal(signal.SIGTERM, lambda *_: called.append("ours"))
            before = state()
            first, second = await asyncio.gather(connect(), connect())
            after = state()
            os.kill(os.getpid(), signal.SIGTERM)
            await ask(first, works.Ask(job="j", label="a"))
            try:
                await ask(first, works.Crash(job="j", label="b"))
            except Exception as error:
                lost = type(error).__name__
            processes, addresses = tree(), listening([psutil.Process(), *tree()])
            bare = served(tree())
            await first.close()
            await first.close()
            shared = await ask(second, works.Count(job="j", label="c"))
            await second.close()
            os.kill(os.getpid(), signal.SIGTERM)
            left = [p.pid for p in processes if p.is_running() and p.status() != "zombie"]
            tell(same=before == after == state(), called=called, lost=lost, addresses=addresses, shared=shared,
                 left=left, bare=bare, count=len(processes), notes=first.notes, origin=first.origin.value)
        asyncio.run(main())
        """,
        places,
        first=first,
    )
    assert facts["same"]
    assert facts["called"] == ["ours", "ours"]
    assert set(facts["addresses"]) <= LOOPBACK
    # A public start also runs Ray's dashboard and autoscaler, which serve metrics at Ray's own ports.
    assert set(facts["bare"]) <= ({44217, 44227} if first else set())
    assert facts["count"] >= 5
    assert facts["lost"] == "WorkerLost"
    assert facts["shared"] == 1
    assert facts["left"] == []
    assert facts["origin"] == "private"
    assert written(places) == []
    assert done.stderr == ""
    if first:
        assert "public options only, which takes longer: its internals are switched off" in facts["notes"][0]
    else:
        assert facts["notes"] == []
        assert done.stdout.count("\n") == 1


def test_a_late_start_by_public_calls_is_refused(places: Mapping[str, str]) -> None:
    """An unknown version of Ray may not be started after an import in which it read other settings."""
    (error,) = refused(places, first=PUBLICLY + "import ray\n")
    assert error["kind"] == "FleetUnavailable"
    assert "was imported before the fleet opened" in error["message"]
    assert "before `import ray`" in error["next_step"]


@pytest.mark.slow
def test_a_late_start_and_a_forgotten_close(places: Mapping[str, str]) -> None:
    """If ray was imported before, it still listens on loopback only and says so; a forgotten close leaves nothing."""
    facts, done = run(
        """
        import ray
        async def main():
            connection = await connect()
            await ask(connection, works.Ask(job="j", label="a"))
            tell(addresses=listening([psutil.Process(), *tree()]), notes=connection.notes, pids=[p.pid for p in tree()])
        asyncio.run(main())
        """,
        places,
    )
    assert set(facts["addresses"]) <= LOOPBACK
    assert "imported before" in facts["notes"][0]
    assert alive(facts["pids"]) == []
    assert written(places) == []
    assert done.stderr == ""


@pytest.mark.slow
def test_odd_surroundings(places: Mapping[str, str], tmp_path: Path) -> None:
    """Settings for clusters or Python, a deleted working directory and a name in bytes do not prevent the start."""
    odd = {
        "PYTHONOPTIMIZE": "2",
        "PYTHONWARNINGS": "error",
        "RAY_USE_TLS": "1",
        "RAY_OVERRIDE_RESOURCES": "banana",
        "RAY_timeout_ms_task_wait_for_death_info": "banana",
    }
    gone = tmp_path / "gone"
    gone.mkdir()
    facts, done = run(
        """
        async def main():
            os.chdir(os.environ["GONE"])
            os.rmdir(os.environ["GONE"])
            connection = await connect()
            counted = await ask(connection, works.Count(job="j", label="a"))
            await connection.close()
            tell(counted=counted, given=os.environ["RAY_USE_TLS"])
        asyncio.run(main())
        """,
        {**places, **odd, "GONE": str(gone)},
        *("sh", "-c", """exec "$@" "$(printf 'na\\377me')" """, "sh"),
    )
    assert facts == {"counted": 1, "given": "1"}
    assert done.stderr == ""


@pytest.mark.slow
def test_a_stranger_in_a_ray_driver(places: Mapping[str, str]) -> None:
    """In a process that is already connected, that Ray is used, and neither reconfigured nor shut down."""
    facts, _ = run(
        """
        import ray
        async def main():
            connection = await connect("10.255.255.1:6379")
            process = await ask(connection, works.Ask(job="j", label="a"))
            await connection.close()
            tell(here=os.getpid(), process=process, still=is_running(), origin=connection.origin.value,
                 notes=connection.notes, free=ray.available_resources().get("CPU"))
        ray.init(address="local", num_cpus=1, include_dashboard=False, logging_level="CRITICAL", namespace="theirs")
        @ray.remote(num_cpus=1)
        def inside():
            async def ask_from_a_task():
                connection = await connect()
                return connection.origin.value, await ask(connection, works.Count(job="j", label="b", frames=3))
            return asyncio.run(ask_from_a_task())
        print(ray.get(inside.remote()))
        asyncio.run(main())
        """,
        {**places, "RAY_AUTH_MODE": "disabled"},
    )
    assert facts["origin"] == "found"
    assert facts["process"] != facts["here"]
    assert facts["still"]
    assert "10.255.255.1:6379 was ignored" in facts["notes"][0]


REFUSED = """
async def main():
    for address in ADDRESSES:
        try:
            await connect(address)
        except Exception as error:
            tell(kind=type(error).__name__, message=error.message, next_step=error.next_step)
asyncio.run(main())
"""
"""Prints a line for each address where no Ray answers."""


def refused(
    places: Mapping[str, str], *prefix: str, addresses: Sequence[str | None] = (None,), first: str = ""
) -> list[dict[str, str]]:
    """Return the errors of connecting to addresses, and check that nothing else is printed."""
    _, done = run(REFUSED.replace("ADDRESSES", repr(list(addresses))), places, *prefix, first=first)
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_nowhere_to_write(places: Mapping[str, str]) -> None:
    """If there is no place for its files, the start fails at once."""
    (error,) = refused({**places, "RAY_TMPDIR": "/proc/nowhere"})
    assert error["kind"] == "FleetUnavailable"
    assert "/proc/nowhere cannot be written" in error["message"]
    assert "RAY_TMPDIR" in error["next_step"]


def test_addresses_where_no_ray_answers(places: Mapping[str, str]) -> None:
    """Dead addresses are named, whether given, in RAY_ADDRESS or left by a dead Ray; other kinds are refused."""
    found = Path(places["RAY_TMPDIR"]) / "ray/ray_current_cluster"
    found.parent.mkdir()
    found.write_text("127.0.0.1:2")
    other_kinds = ["ray://127.0.0.1:10001", "http://127.0.0.1:8265", "127.0.0.1", "host:port"]
    addresses = [None, "127.0.0.1:9", "auto", *other_kinds]
    errors = refused({**places, "RAY_ADDRESS": "127.0.0.1:1"}, addresses=addresses)
    for error, address in zip(errors[:3], ("127.0.0.1:1", "127.0.0.1:9", "127.0.0.1:2"), strict=True):
        assert error["kind"] == "FleetUnavailable"
        assert error["message"].startswith(f"no Ray answers at {address}")
    assert {error["kind"] for error in errors[3:]} == {"UsageError"}
    assert all("6379" in error["next_step"] for error in errors[3:])


def test_a_process_that_ends(places: Mapping[str, str]) -> None:
    """A start that cannot succeed, here because no file may grow, fails at once with the reason."""
    (error,) = refused(places, "sh", "-c", 'ulimit -f 1 && exec "$@"', "sh")
    assert error["kind"] == "FleetUnavailable"
    assert error["message"].endswith("ended: one of its files reached the limit of `ulimit -f`")
    assert written(places) == []

"""The embedded Ray, as its neighbours see it: other users, the network, the home directory, the shell, the host."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

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
"""Before a script: what Ray has beyond its public interface is unknown."""
LOOPBACK = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Mapping[str, str]]:
    """An environment whose home and temporary directory are empty and our own."""
    home = tmp_path / "home"
    home.mkdir()
    # Not below tmp_path: Ray's sockets need a short path.
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="cf-") as short:
        yield {**os.environ, "HOME": str(home), "RAY_TMPDIR": short, "PYTHONPATH": os.pathsep.join(sys.path)}


def script(body: str, first: str = "") -> list[str]:
    """Return the command that runs ``body`` after the prelude."""
    return [sys.executable, "-c", PRELUDE + first + textwrap.dedent(body)]


def run(
    body: str, places: Mapping[str, str], *prefix: str, first: str = ""
) -> tuple[dict[str, Any], subprocess.CompletedProcess[str]]:
    """Run a script to its end; return the facts of its last line, and how it ended."""
    done = subprocess.run(
        [*prefix, *script(body, first)], env=dict(places), capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done


def written(places: Mapping[str, str]) -> list[Path]:
    """Return everything that lies in the home and the temporary directory."""
    return [path for place in ("HOME", "RAY_TMPDIR") for path in Path(places[place]).rglob("*")]


def alive(pids: list[int]) -> list[int]:
    """Return the processes among ``pids`` that still run."""
    return [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize(
    "first",
    [pytest.param("", id="lean"), pytest.param(PUBLICLY, id="public", marks=[pytest.mark.slow, pytest.mark.ci])],
)
def test_a_good_guest(places: Mapping[str, str], first: str) -> None:
    """Loopback only and by token, nothing in the home, environment and handlers as they were, nothing said or left.

    A Ray that is started by public calls alone says why, and tells on standard output that a worker died.
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
    # A public start runs Ray's dashboard and autoscaler too, which serve metrics at Ray's own ports.
    assert set(facts["bare"]) <= ({44217, 44227} if first else set())
    assert facts["count"] >= 5
    assert facts["lost"] == "WorkerLost"
    assert facts["shared"] == 1
    assert facts["left"] == []
    assert facts["origin"] == "private"
    assert written(places) == []
    assert done.stderr == ""
    if first:
        assert "public switches alone, which takes longer: its internals are switched off" in facts["notes"][0]
    else:
        assert facts["notes"] == []
        assert done.stdout.count("\n") == 1


@pytest.mark.slow
def test_a_second_start_by_public_calls(places: Mapping[str, str]) -> None:
    """A process may start a private Ray again, and a cluster keeps what is kept in it, with public calls alone."""
    facts, done = run(
        """
        from codecfleet.cluster.ray.private import key_values, nodes

        async def main():
            kept = []
            for _ in range(2):
                connection = await connect()
                counted = await ask(connection, works.Count(job="j", label="a"))
                kept.append(key_values.kept_in_cluster("key"))
                key_values.keep_in_cluster("key", b"first")
                key_values.keep_in_cluster("key", b"last")
                kept.append(key_values.kept_in_cluster("key").decode())
                alive = not connection.why_ended()
                raylet = next(process for process in tree() if process.name() == "raylet")
                unknown = [nodes.free_resources_by_node(), [*nodes.draining_nodes()]]
                await connection.close()
            tell(kept=kept, counted=counted, alive=alive, gone=not raylet.is_running(), unknown=unknown)
        asyncio.run(main())
        """,
        places,
        first=PUBLICLY,
    )
    assert facts == {"kept": [None, "last"] * 2, "counted": 1, "alive": True, "gone": True, "unknown": [{}, []]}
    assert done.stderr == ""


def test_a_late_start_by_public_calls_is_refused(places: Mapping[str, str]) -> None:
    """A Ray that is not known may not be started after an import in which it read other settings."""
    facts, _ = run("import ray" + REFUSED.replace("ADDRESS", "None"), places, first=PUBLICLY)
    assert facts["kind"] == "FleetUnavailable"
    assert "was imported before the fleet opened" in facts["message"]
    assert "before `import ray`" in facts["next_step"]


@pytest.mark.slow
def test_a_late_start_and_a_forgotten_close(places: Mapping[str, str]) -> None:
    """With ray imported before, it still listens on loopback only and says so; a forgotten close leaves nothing."""
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


def test_odd_surroundings(places: Mapping[str, str], tmp_path: Path) -> None:
    """Settings for clusters or Python, a deleted working directory and a name in bytes do not keep it from starting."""
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


def test_a_killed_driver_leaves_no_process(places: Mapping[str, str]) -> None:
    """After a SIGKILL of the driver everything it started is gone within seconds, files too."""
    driver = subprocess.Popen(
        script(
            """
            async def main():
                connection = await connect()
                await ask(connection, works.Ask(job="j", label="a"))
                tell(pids=[p.pid for p in tree()])
                await asyncio.sleep(60)
            asyncio.run(main())
            """
        ),
        env=dict(places),
        stdout=subprocess.PIPE,
        text=True,
    )
    with driver:
        assert driver.stdout is not None
        pids = json.loads(driver.stdout.readline())["pids"]
        driver.send_signal(signal.SIGKILL)
    until = time.monotonic() + 5
    while (alive(pids) or written(places)) and time.monotonic() < until:
        time.sleep(0.05)
    assert alive(pids) == []
    assert written(places) == []


@pytest.mark.slow
def test_a_stranger_in_a_ray_driver(places: Mapping[str, str]) -> None:
    """In a process that is connected already, that Ray is used, neither reconfigured nor shut down."""
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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small /dev/shm")
@pytest.mark.slow
def test_lives_with_little_shared_memory(places: Mapping[str, str]) -> None:
    """With 64 MiB of shared memory, as plain containers have, large results still arrive and nothing is said."""
    small = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"', "sh")
    facts, done = run(
        """
        async def main():
            connection = await connect()
            work = works.MakeArray(job="j", label="a", length=60 << 20)
            tell(equal=bool((await ask(connection, work) == work.expected()).all()))
            await connection.close()
        asyncio.run(main())
        """,
        places,
        *small,
    )
    assert facts["equal"]
    assert done.stderr == ""


REFUSED = """
async def main():
    try:
        await connect(ADDRESS)
    except Exception as error:
        tell(kind=type(error).__name__, message=error.message, next_step=error.next_step, code=error.exit_code)
asyncio.run(main())
"""


def test_nowhere_to_write(places: Mapping[str, str]) -> None:
    """Without a place for its files, starting fails at once with one clear line."""
    facts, done = run(REFUSED.replace("ADDRESS", "None"), {**places, "RAY_TMPDIR": "/proc/nowhere"})
    assert facts["kind"] == "FleetUnavailable"
    assert "/proc/nowhere cannot be written" in facts["message"]
    assert "RAY_TMPDIR" in facts["next_step"]
    assert done.stderr == ""


def test_a_process_that_ends(places: Mapping[str, str]) -> None:
    """A start that cannot succeed ends at once, and says why: here no file may grow."""
    prefix = ("sh", "-c", 'ulimit -f 1 && exec "$@"', "sh")
    facts, done = run(REFUSED.replace("ADDRESS", "None"), places, *prefix)
    assert facts["kind"] == "FleetUnavailable"
    assert facts["message"].endswith("ended: a file of it reached the limit of `ulimit -f`")
    assert done.stderr == ""
    assert written(places) == []


@pytest.mark.parametrize("address", [None, "127.0.0.1:9"])
def test_an_address_where_nothing_listens(places: Mapping[str, str], address: str | None) -> None:
    """An address where nothing listens is an error, whether given or in RAY_ADDRESS."""
    facts, _ = run(REFUSED.replace("ADDRESS", repr(address)), {**places, "RAY_ADDRESS": "127.0.0.1:1"})
    assert facts["kind"] == "FleetUnavailable"
    assert f"no Ray answers at {address or '127.0.0.1:1'}" in facts["message"]


def test_a_cluster_that_ended(places: Mapping[str, str]) -> None:
    """``auto`` finds the Ray that was started last on this machine; where that is gone, the error names its address."""
    found = Path(places["RAY_TMPDIR"]) / "ray/ray_current_cluster"
    found.parent.mkdir()
    found.write_text("127.0.0.1:1")
    facts, done = run(REFUSED.replace("ADDRESS", "'auto'"), places)
    assert facts["message"].startswith("no Ray answers at 127.0.0.1:1")
    assert done.stderr == ""


@pytest.mark.slow
def test_a_port_of_something_else(places: Mapping[str, str]) -> None:
    """Another listener than Ray is given up within seconds, in one line."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        facts, done = run(REFUSED.replace("ADDRESS", repr(address)), places)
    assert facts["message"].startswith(f"no Ray answers at {address}")
    assert done.stderr == ""


@pytest.mark.parametrize("address", ["ray://127.0.0.1:10001", "http://127.0.0.1:8265", "127.0.0.1", "host:port"])
def test_addresses_of_other_kinds(places: Mapping[str, str], address: str) -> None:
    """An address that is not a control service's is refused before anything is tried."""
    facts, _ = run(REFUSED.replace("ADDRESS", repr(address)), places)
    assert facts["kind"] == "UsageError"
    assert "6379" in facts["next_step"]

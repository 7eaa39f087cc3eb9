"""Commands whose cluster dies while they ask it."""

import asyncio
import socket
from contextlib import suppress

import psutil
import pytest

from codecfleet.cluster.operate.desk import Reach, desk_of
from codecfleet.errors import FleetUnavailable

from .ray_cluster import RayCluster, ray_cluster


def test_the_process_that_asks_may_die(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program survives, and the error names the cluster, the cause and a remedy."""
    # Another test may have left a Ray driver in this process, which would then ask without a process of its own.
    monkeypatch.setattr("codecfleet.cluster.operate.desk.holds_ray", lambda: False)

    async def ask(address: str) -> None:
        async with desk_of(address) as asked:
            asking = asyncio.ensure_future(asked(Reach()))
            # The process exists; before it has an answer, it dies as Ray lets a driver die.
            (process,) = set(psutil.Process().children()) - before
            process.kill()
            await asking

    before = set(psutil.Process().children())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(FleetUnavailable, match="was lost: it was killed by SIGKILL") as caught:
            asyncio.run(ask(address))
    assert address in str(caught.value)
    assert caught.value.exit_code == 5
    assert set(psutil.Process().children()) <= before


def is_control_service_of(cluster: RayCluster, process: psutil.Process) -> bool:
    """Return whether this process is the cluster's control service."""
    with suppress(psutil.Error):
        return process.name() == "gcs_server" and str(cluster.folder) in " ".join(process.cmdline())
    return False


@pytest.mark.ray
@pytest.mark.slow
def test_the_control_service_dies_under_a_watch() -> None:
    """If the control service dies, ``status --watch`` ends with exit code 5 and one line, without Ray's messages."""
    with ray_cluster(1, env={"RAY_gcs_rpc_server_reconnect_timeout_s": "5"}) as cluster:
        assert cluster.run("doctor", "--address", cluster.address).returncode in (0, 1)
        watching = cluster.start("status", "--watch", "--json")
        assert watching.stdout is not None
        assert watching.stdout.readline()
        (control,) = [each for each in psutil.process_iter() if is_control_service_of(cluster, each)]
        control.kill()
        _, err = watching.communicate(timeout=120)
    assert watching.returncode == 5, err
    (line,) = err.splitlines()
    assert line.startswith(f"codecfleet: error: the connection to Ray at {cluster.address} was lost: ")

"""A pool on a private Ray that has only some of a machine's GPUs, as a machine with no others would have it.

``CUDA_VISIBLE_DEVICES`` narrows what Ray gives to workers. What the supervisor places work on comes from NVML, which
knows every GPU of the machine: it is narrowed here.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from codecfleet.cluster.connected_pool import PRIVATE
from codecfleet.cluster.embedded import Connection, connect
from codecfleet.cluster.placement.inventory import Device
from codecfleet.cluster.placement.policy import Policy
from codecfleet.cluster.pool import Pool
from codecfleet.cluster.visible_device import open_nvml, uuid_of

__all__ = ["only_these", "open_narrow_pool"]


@contextmanager
def only_these(devices: Sequence[str]) -> Iterator[None]:
    """Let what is started in here see these devices alone, as CUDA_VISIBLE_DEVICES names them."""
    former = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
    try:
        yield
    finally:
        if former is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = former


async def open_narrow_pool(devices: Sequence[str]) -> tuple[Pool, Connection]:
    """Return a started pool on a private Ray with these devices, and the connection to close after it."""
    uuids = {uuid_of(device, open_nvml()) for device in devices}
    with only_these(devices):
        connection = await connect("local")
    # Only now: Ray's settings are read when it is imported.
    from codecfleet.cluster.known_gpus import known_gpus  # noqa: PLC0415
    from codecfleet.cluster.leased_pool import LeasedPool  # noqa: PLC0415
    from codecfleet.cluster.supervisor.link import LocalLink  # noqa: PLC0415
    from codecfleet.cluster.supervisor.ray_hands import PrivateHands  # noqa: PLC0415
    from codecfleet.cluster.supervisor.ray_probe import probe_ray_node  # noqa: PLC0415
    from codecfleet.cluster.supervisor.shell import Shell  # noqa: PLC0415
    from codecfleet.cluster.supervisor.wiring import make_core  # noqa: PLC0415

    def gpus(node: str) -> tuple[Device, ...]:
        return tuple(device for device in known_gpus(node) if device.device in uuids)

    core = make_core(PRIVATE, Policy(), 1, time.monotonic())
    shell = Shell(PrivateHands(None, connection.is_alive, probe_ray_node, gpus), core, PRIVATE)
    pool = LeasedPool(LocalLink(shell), None, eager=True)
    await pool.start()
    return pool, connection

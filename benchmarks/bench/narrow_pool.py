"""A pool on a private Ray with only some of a machine's GPUs, as if the machine had no others.

``CUDA_VISIBLE_DEVICES`` limits the GPUs that Ray gives to workers, and those on which the supervisor places work.
"""

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from codecfleet.cluster.fleet.leases.connecting import PRIVATE, ground_on
from codecfleet.cluster.fleet.pool import Pool
from codecfleet.cluster.placement.model.demand import plain_demand
from codecfleet.cluster.ray.embedded import Connection, connect

if TYPE_CHECKING:
    from codecfleet.cluster.supervisor.runner.client import SupervisorClient

__all__ = ["only_these", "open_narrow_pool"]


@contextmanager
def only_these(devices: Sequence[str]) -> Iterator[None]:
    """Show only these devices, named as in CUDA_VISIBLE_DEVICES, to processes started in this block."""
    former = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
    try:
        yield
    finally:
        if former is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = former


async def open_narrow_pool(
    devices: Sequence[str], *, polls: bool = True
) -> tuple[Pool, Connection, "SupervisorClient"]:
    """Return a started pool on a private Ray with these devices, the connection to close after it, and its supervisor.

    ``polls``: the supervisor polls the devices' health.
    """
    # Not imported earlier, because importing Ray reads the environment.
    from codecfleet.cluster.fleet.leases.leased_pool import LeasedPool  # noqa: PLC0415

    with only_these(devices):
        connection = await connect("local")
        settings = PRIVATE if polls else replace(PRIVATE, health_s=math.inf)
        ground = ground_on(connection, None, settings=settings)
        pool = LeasedPool(ground.reach)
        await pool.start()
        await pool.preview(replace(plain_demand("any", 1), needs_gpu=True))  # waits until the GPUs are listed
        return pool, connection, ground.supervisor

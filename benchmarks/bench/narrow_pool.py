"""A pool on a private Ray with only some of a machine's GPUs, as if the machine had no others.

``CUDA_VISIBLE_DEVICES`` limits the GPUs that Ray gives to workers, and those on which the supervisor places work.
"""

import asyncio
import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from codecfleet.cluster.fleet.leases.connecting import PRIVATE
from codecfleet.cluster.fleet.pool import Pool
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.ray.embedded import Connection, connect

if TYPE_CHECKING:
    from codecfleet.cluster.supervisor.runner.runner import SupervisorRunner
    from codecfleet.cluster.supervisor.state.settings import SupervisorSettings

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
) -> tuple[Pool, Connection, "SupervisorRunner"]:
    """Return a started pool on a private Ray with these devices, the connection to close after it, and its supervisor.

    ``polls``: the supervisor polls the devices' health.
    """
    with only_these(devices):
        return await _open_pool(await connect("local"), PRIVATE if polls else replace(PRIVATE, health_s=math.inf))


async def _open_pool(
    connection: Connection, settings: "SupervisorSettings"
) -> tuple[Pool, Connection, "SupervisorRunner"]:
    # Not imported earlier, because importing Ray reads the environment.
    from codecfleet.cluster.fleet.leases.connecting import SLOTS_MAX  # noqa: PLC0415
    from codecfleet.cluster.fleet.leases.ground import Ground  # noqa: PLC0415
    from codecfleet.cluster.fleet.leases.leased_pool import LeasedPool  # noqa: PLC0415
    from codecfleet.cluster.supervisor.backends.backend import HERE  # noqa: PLC0415
    from codecfleet.cluster.supervisor.backends.private_backend import PrivateBackend  # noqa: PLC0415
    from codecfleet.cluster.supervisor.core.core import Core  # noqa: PLC0415
    from codecfleet.cluster.supervisor.runner.runner import SupervisorRunner  # noqa: PLC0415
    from codecfleet.cluster.survey.known_gpus import known_gpus  # noqa: PLC0415

    core = Core(settings, Policy(), 1, time.monotonic())
    gpus = partial(asyncio.to_thread, known_gpus, HERE)
    shell = SupervisorRunner(PrivateBackend(None, connection.why_ended, gpus), core, settings)
    pool = LeasedPool(Ground(supervisor=shell, eager=SLOTS_MAX).reach)
    await pool.start()
    return pool, connection, shell

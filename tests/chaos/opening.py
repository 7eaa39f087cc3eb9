"""Makes the places of rounds, if this machine can have them."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from tempfile import TemporaryDirectory

from codecfleet.cluster.fleet_variables import EVENTS
from tests import queue_cluster
from tests.driver_sim.build import BuildError, built_libraries
from tests.integration.ray_cluster import SWIFT, ray_cluster

from .places import Cluster, Place, SimulatedMachine
from .queue_place import queue_place
from .schedule import Shape


@contextmanager
def place_of(shape: Shape) -> Iterator[Place]:
    """Yield the place for rounds of a shape; if its network is whole, Ray notices deaths with default settings."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    if shape is Shape.SIMULATED_GPUS:
        yield SimulatedMachine(shape, own)
        return
    if shape is Shape.QUEUE:
        with queue_place() as queue:
            yield queue
        return
    if not shape.node_cpus:
        yield Place(shape, own)
        return
    is_split = shape is Shape.SPLIT_NODES
    with TemporaryDirectory(dir="/tmp") as kept:
        env = {"CODECFLEET_IDLE_S": "4", EVENTS: f"{kept}/events"}
        if shape is Shape.SMALL_NODES:
            env |= {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": kept}
        with ray_cluster(env=env, system_config=SWIFT if is_split else {}, apart=is_split) as cluster:
            nodes = {cluster.add_node(cpus): cpus for cpus in shape.node_cpus}
            place = Cluster(shape, cluster.env, cluster, nodes)
            yield place
            place.heal()


def obstacle(shape: Shape) -> str:
    """Return why this machine cannot have a place of this shape; "" if it can."""
    if shape is Shape.QUEUE and (reason := queue_cluster.obstacle()):
        return reason
    if shape in (Shape.SPLIT_NODES, Shape.QUEUE):
        trial = ["unshare", "--net", "ip", "link", "add", "one", "type", "veth", "peer", "name", "other"]
        try:
            subprocess.run(trial, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            return f"no network namespaces: {getattr(error, 'stderr', '') or error}".strip()
    if shape is Shape.SIMULATED_GPUS:
        if find_spec("PyNvVideoCodec") is None:
            return "PyNvVideoCodec is not installed"
        if len(os.sched_getaffinity(0)) == 1:
            return "on one core no NVENC gets work"
        try:
            built_libraries()
        except BuildError as error:
            return str(error)
    return ""

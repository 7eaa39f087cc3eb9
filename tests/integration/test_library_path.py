"""The library path of a worker's start order, in a process of a real Ray."""

import json

import pytest

from .ray_cluster import ray_cluster

pytestmark = [pytest.mark.ray, pytest.mark.slow]

PROGRAM = """
import json, pathlib, ray
from codecfleet.cluster.supervisor.backends.ray_calls import library_path
ray.init(log_to_driver=False)

class Shows:
    def path(self):
        begun = pathlib.Path("/proc/self/environ").read_bytes().split(b"\\0")
        return [word.decode() for word in begun if word.startswith(b"LD_LIBRARY_PATH=")]

made = [ray.remote(num_cpus=0, **library_path(path))(Shows).remote() for path in ("/compat:/opt", None)]
print(json.dumps([ray.get(each.path.remote()) for each in made]))
"""


def test_one_workers_process_begins_with_the_path_and_others_without() -> None:
    """The loader has the path from the start of the process; the node and its other processes keep theirs."""
    with ray_cluster(1, env={"LD_LIBRARY_PATH": "/opt"}) as cluster:
        shown = json.loads(cluster.python(PROGRAM).splitlines()[-1])
    assert shown == [["LD_LIBRARY_PATH=/compat:/opt"], ["LD_LIBRARY_PATH=/opt"]]

"""What codecfleet needs from Ray, tested on the installed Ray: through its internals if it has them, and without.

``make ray-contract`` also tests the oldest allowed and the newest Ray. Quick tests of each internal part, and of its
absence, are in tests/unit/cluster/ray.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from codecfleet.cluster.ray.private.guard import ANY_VERSION, OFF, SWITCH
from codecfleet.cluster.ray.private.nodes import START_HOOK
from tests.ray_head import UP_S, ray_head

from ..integration.ray_cluster import BIN, RayCluster, ray_cluster

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(300)]

CLIENT_PORT = 10001
SMALL = ("--num-cpus=1", "--min-worker-port=0", "--max-worker-port=0")
LIMIT_S = 180
PROGRAM = """
import asyncio, json, os, subprocess, sys, time
from codecfleet.cluster.ray.embedded import connect
from codecfleet.cluster.ray.private import autoscaler, key_values, nodes as private
from codecfleet.cluster.ray.public import actors, nodes, reservations
from codecfleet.cluster.ray.ray_failures import cause_of, classify, is_of_ray
from codecfleet.cluster.ray.ray_words import first_line
from codecfleet.cluster.supervisor.backends.ray_backend import live_nodes

NAMED = {"num_cpus": 0, "namespace": "codecfleet"}
DRAIN = ("drain-node", "--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "contract")

class Counting:
    def __init__(self, first):
        self.count = int(first)

    def add(self, content):
        return self.count + len(content)

    def node(self):
        return nodes.this_node()

    def run(self):
        time.sleep(600)

    def fail(self):
        raise KeyError("contract")

def double(number):
    return number * 2, nodes.this_node(), private.cuda_visible_to_node(), nodes.log_folder().is_dir()

def within(look, seconds=30):
    until_s = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < until_s:
        time.sleep(0.1)
    return bool(found)

def worker_node():
    return next(each for each in live_nodes() if each.cores)

async def error_of(call):
    try:
        await call
    except Exception as error:
        return error

def kept():
    before = key_values.kept_in_cluster("contract/value")
    key_values.keep_in_cluster("contract/value", b"first")
    key_values.keep_in_cluster("contract/value", b"last")
    return [before, *(key_values.claim_in_cluster("contract/term/1") for _ in range(2))]

def recalled():
    keys, claimed = key_values.keys_in_cluster("contract/term/"), key_values.claim_in_cluster("contract/term/1")
    return [key_values.kept_in_cluster("contract/value").decode(), keys, claimed]

async def reserved():
    node, bundle = worker_node().node, "contract-bundle "
    group = reservations.reserve(node, {"CPU": 1}, bundle + "a")
    await asyncio.wait_for(group.ready(), 30)
    options = {**NAMED, "name": "contract-inside", "num_cpus": 1, "scheduling_strategy": reservations.inside(group)}
    inside = actors.make_actor(Counting, options, 5)
    at = await inside.node.remote() == node
    names = [reservations.reservation_names(bundle), "contract-inside" in actors.actor_names()]
    if private.free_resources_by_node():
        within(lambda: worker_node().free_cores == 1)
    free = worker_node().free_cores
    reservations.give_back(reservations.reservation(bundle + "a"))
    return [at, names, free, within(lambda: not reservations.reservation_names(bundle))]

async def lived():
    actor = actors.make_actor(Counting, {**NAMED, "name": "contract-actor"}, 2)
    answer = actors.answer_of(actors.named_actor("contract-actor").add.remote(actors.put(b"xyz")), 30)
    failed = await error_of(actor.fail.remote())
    running = actor.run.remote()
    actors.kill_actor(actor)
    died = await error_of(running)
    def is_gone():
        try:
            actors.named_actor("contract-actor")
        except actors.NoSuchActor:
            return True
    never = await error_of(actors.make_actor(Counting, {"num_cpus": 0}, "no number").add.remote(b""))
    return {
        "answer": answer,
        "failed": [classify(failed).value, type(cause_of(failed)).__name__, first_line(failed)],
        "died": [classify(died).value, is_of_ray(died)],
        "gone": within(is_gone),
        "never": first_line(never),
    }

async def ran():
    doubled, where, visible, has_logs = await nodes.run_on_node(node := worker_node().node, double, 21)
    return [doubled, where == node, visible, has_logs, nodes.cluster_address() == os.environ["RAY_ADDRESS"]]

async def drained():
    node = worker_node().node
    busy = actors.make_actor(Counting, {**NAMED, "scheduling_strategy": nodes.on_node(node)}, 1)
    await busy.node.remote()
    command = [sys.executable, "-m", "ray.scripts.scripts", *DRAIN, "--node-id", node]
    subprocess.run([*command, "--deadline-remaining-seconds", "600"], check=True, capture_output=True)
    return within(lambda: node in private.draining_nodes(), 10 if private.free_resources_by_node() else 0)

async def main():
    connection = await connect(os.environ["RAY_ADDRESS"])
    if sys.argv[1:] == ["again"]:
        print(json.dumps(recalled()))
        return
    scaling = [autoscaler.knows_labels(), autoscaler.autoscaler_report() is not None]
    print(json.dumps({"kept": kept(), "reserved": await reserved(), "lived": await lived(), "ran": await ran(),
                      "scaling": scaling, "drained": await drained()}))
    await connection.close()

asyncio.run(main())
"""
"""Uses everything once, and prints what came of it."""


@dataclass
class Asked:
    """The results of the program on a cluster; ``is_private`` is whether Ray's internals were used."""

    cluster: RayCluster
    is_private: bool
    found: dict[str, Any]


@pytest.fixture(
    scope="module",
    params=[pytest.param(each, marks=pytest.mark.ci) for each in (ANY_VERSION, OFF)],
    ids=["private", "public"],
)
def asked(request: pytest.FixtureRequest) -> Iterator[Asked]:
    """The program on a head and a node with two CPUs; either all processes use Ray's internals, or none does."""
    with ray_cluster(2, env={SWITCH: request.param}) as cluster:
        found = json.loads(cluster.python(PROGRAM, timeout_s=LIMIT_S).splitlines()[-1])
        yield Asked(cluster, request.param != OFF, found)


def test_what_is_kept_outlives_its_writer(asked: Asked) -> None:
    """Values and claims, by key and by prefix; a key is claimed once, by the first program."""
    assert asked.found["kept"] == [None, True, False]
    recalled = json.loads(asked.cluster.python(PROGRAM, "again", timeout_s=LIMIT_S).splitlines()[-1])
    assert recalled == ["last", ["contract/term/1"], False]


def test_a_reservation_is_on_its_node_and_found_by_name(asked: Asked) -> None:
    """An actor starts inside a reservation; if Ray reports free CPUs, the node then has fewer."""
    assert asked.found["reserved"] == [True, [["a"], True], 1 if asked.is_private else 2, True]


def test_an_actor_is_found_asked_and_ended(asked: Asked) -> None:
    """Errors of an actor arrive unchanged; its death, or a failed start, differs from them and is one line."""
    assert asked.found["lived"] == {
        "answer": 5,
        "failed": ["code", "KeyError", "KeyError: 'contract'"],
        "died": ["process", True],
        "gone": True,
        "never": "it did not start: ValueError: invalid literal for int() with base 10: 'no number'",
    }


def test_a_function_runs_on_the_node_that_is_named(asked: Asked) -> None:
    """A Ray process can find its node, its cluster, the GPUs given to the node, and its own logs."""
    assert asked.found["ran"] == [42, True, None, True, True]


def test_a_cluster_that_does_not_grow_has_no_autoscaler_that_knows_labels(asked: Asked) -> None:
    """The cluster has no autoscaler, whether Ray can be asked or not."""
    assert asked.found["scaling"] == [False, asked.is_private]


def test_a_draining_node_is_known_where_ray_can_be_asked(asked: Asked) -> None:
    """A draining node is known only through Ray's internals; otherwise its end comes unannounced."""
    assert asked.found["drained"] is asked.is_private


@pytest.mark.parametrize(
    "asked", [pytest.param(ANY_VERSION, marks=pytest.mark.ci), OFF], ids=["private", "public"], indirect=True
)
def test_a_stranger_is_kept_out_in_one_line(asked: Asked) -> None:
    """The error is one line, however long Ray's own message is."""
    env = {**asked.cluster.env, "RAY_AUTH_TOKEN": "another"}
    command = [BIN / "codecfleet", "status", "--address", asked.cluster.address]
    tried = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert (tried.returncode, tried.stderr.count("\n")) == (5, 1), tried.stderr
    assert "did not let us in" in tried.stderr


def test_no_port_for_ray_client_is_open() -> None:
    """The hook closes the port, whatever Ray calls the field; without the hook, a head listens on the port."""
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    with ray_head(*SMALL, env=path) as head:
        until_s = time.monotonic() + UP_S
        while CLIENT_PORT not in head.ports():
            assert time.monotonic() < until_s, "this Ray has another port, or none: what is closed, and by what?"
    with ray_head(*SMALL, env=path | START_HOOK) as head:
        assert CLIENT_PORT not in head.ports()

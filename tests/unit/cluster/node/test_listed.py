"""Nodes, as Ray lists them."""

from typing import Any

from codecfleet.cluster.node.listed import listed_node
from codecfleet.cluster.placement.model.inventory import DeviceState

NODE: dict[str, Any] = {
    "NodeID": "abc",
    "NodeManagerAddress": "10.0.0.1",
    "Resources": {"CPU": 1.0, "GPU": 2.0, "node:10.0.0.1": 1.0, "node:__internal_head__": 1.0, "memory": 5.0},
    "Labels": {"ray.io/node-id": "abc", "ray.io/availability-zone": "z1", "codecfleet/kind": "nvenc"},
}


def test_a_node_in_words_and_as_json() -> None:
    """A head is marked as such; Ray's internal resources are left out."""
    node = listed_node(NODE, (), DeviceState.OPEN)
    assert node.words == "head at 10.0.0.1, open, 1 CPU and 2 GPUs for Ray; kind=nvenc, availability-zone=z1"
    assert node.to_json() == {
        "id": "abc",
        "address": "10.0.0.1",
        "is_head": True,
        "state": "open",
        "resources": {"CPU": 1.0, "GPU": 2.0, "memory": 5.0},
        "labels": {"ray.io/availability-zone": "z1", "codecfleet/kind": "nvenc"},
    }


def test_rays_drain_counts_before_an_order() -> None:
    """A node that Ray drains is draining, whatever a user ordered; otherwise the order counts."""
    assert listed_node(NODE, {"abc"}, DeviceState.CORDONED).state is DeviceState.DRAINING
    assert listed_node(NODE, {"def"}, DeviceState.CORDONED).state is DeviceState.CORDONED


def test_a_node_without_labels() -> None:
    """A node without labels lists none."""
    bare = {**NODE, "Resources": {}, "Labels": None}
    assert listed_node(bare, (), DeviceState.OPEN).words == "node at 10.0.0.1, open, 0 CPUs and 0 GPUs for Ray"

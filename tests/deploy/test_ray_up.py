"""Ray's cluster launcher: what it would start on EC2."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from codecfleet.cluster.autoscale.config import load_autoscale


@pytest.fixture(scope="module")
def written(deploy: Path) -> dict[str, Any]:
    """The file, parsed."""
    parsed: dict[str, Any] = yaml.safe_load((deploy / "ray-up" / "aws.yaml").read_text(encoding="utf-8"))
    return parsed


@pytest.fixture(scope="module")
def prepared(written: dict[str, Any]) -> dict[str, Any]:
    """What Ray makes of it, and finds valid."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    config: dict[str, Any] = prepare_config(written)
    validate_config(config)
    return config


def test_ray_finds_it_valid_and_sees_each_type(prepared: dict[str, Any]) -> None:
    """Machines with NVENC, and eight H100 without, whose processors encode; only one, without a GPU, runs unasked."""
    types = prepared["available_node_types"]
    assert {name: each["node_config"]["InstanceType"].partition(".")[0] for name, each in types.items()} == {
        "head": "m7i",
        **{name: name for name in ("g5", "g6", "g6e", "p5")},
        "cpu": "c7i",
    }
    kinds = {name: each.get("labels", {}).get("codecfleet/kind") for name, each in types.items()}
    assert kinds == {"head": None, "cpu": "cpu", "g5": "nvenc", "g6": "nvenc", "g6e": "nvenc", "p5": "nvdec"}
    assert types["p5"]["resources"] == {"CPU": 192, "GPU": 8}
    assert {name for name, each in types.items() if each.get("min_workers")} == {"cpu"}
    assert types["head"]["resources"] == {"CPU": 0}


def test_ray_refuses_a_key_that_it_does_not_know(written: dict[str, Any]) -> None:
    """So the file that passes has none."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    with pytest.raises(Exception, match="node_kinds"):
        validate_config(prepare_config({**written, "node_kinds": {}}))


def test_the_launcher_is_careful(prepared: dict[str, Any]) -> None:
    """No public address; the token is asked for; the second autoscaler, which knows labels; an image is named."""
    assert prepared["provider"]["use_internal_ips"] is True
    assert "~/.ray/auth_token" in prepared["file_mounts"]
    head, worker = " ".join(prepared["head_start_ray_commands"]), " ".join(prepared["worker_start_ray_commands"])
    assert "RAY_enable_autoscaler_v2=1" in head
    assert "--cpus 0" in head  # as its type says
    assert "--insecure" not in head + worker
    assert "RAY_AUTH_MODE=token" in worker
    nodes = [each["node_config"] for each in prepared["available_node_types"].values()]
    assert all(
        node["ImageId"].startswith("ami-") and node["MetadataOptions"]["HttpTokens"] == "required" for node in nodes
    )


def test_codecfleet_asks_for_what_the_types_are(prepared: dict[str, Any], repository: Path) -> None:
    """The groups of configs/autoscale.toml are its types, with their labels, resources and limits."""
    config = load_autoscale(repository / "configs" / "autoscale.toml")
    types = {name: each for name, each in prepared["available_node_types"].items() if name != "head"}
    assert {group.name for group in config.groups} == set(types)
    for group in config.groups:
        asked = types[group.name]
        assert group.labels.items() <= asked["labels"].items()
        assert group.resources == asked["resources"]
        assert group.nodes_max <= asked["max_workers"]
    assert config.nodes_max <= prepared["max_workers"]

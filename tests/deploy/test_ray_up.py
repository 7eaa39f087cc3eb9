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
    """The file after Ray has prepared and validated it."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    config: dict[str, Any] = prepare_config(written)
    validate_config(config)
    return config


def test_only_one_machine_without_a_gpu_runs_unasked(prepared: dict[str, Any]) -> None:
    """Beside the head, which does no work, only a node without a GPU runs always; others run when asked for."""
    types = prepared["available_node_types"]
    assert {name for name, each in types.items() if each.get("min_workers")} == {"cpu"}
    assert types["head"]["resources"] == {"CPU": 0}


def test_the_launcher_is_careful(prepared: dict[str, Any]) -> None:
    """No machine has a public address; Ray asks for the token; its second autoscaler runs, which knows labels."""
    assert prepared["provider"]["use_internal_ips"] is True
    assert "~/.ray/auth_token" in prepared["file_mounts"]
    head, worker = " ".join(prepared["head_start_ray_commands"]), " ".join(prepared["worker_start_ray_commands"])
    assert "RAY_enable_autoscaler_v2=1" in head
    assert "--cpus 0" in head  # as its type says
    assert "--insecure" not in head + worker
    assert "codecfleet node start --address" in worker
    nodes = [each["node_config"] for each in prepared["available_node_types"].values()]
    assert all(
        node["ImageId"].startswith("ami-") and node["MetadataOptions"]["HttpTokens"] == "required" for node in nodes
    )


def test_spot_instances_say_so(prepared: dict[str, Any]) -> None:
    """Ray's label tells placement which nodes AWS may take back."""
    for name, each in prepared["available_node_types"].items():
        market = each["node_config"].get("InstanceMarketOptions", {}).get("MarketType")
        assert each.get("labels", {}).get("ray.io/market-type") == market, name


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

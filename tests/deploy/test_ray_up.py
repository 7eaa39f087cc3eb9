"""Ray's cluster launcher: what it would start on EC2."""

import subprocess
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
    assert "RAY_AUTH_MODE=token" in worker
    nodes = [each["node_config"] for each in prepared["available_node_types"].values()]
    assert all(
        node["ImageId"].startswith("ami-") and node["MetadataOptions"]["HttpTokens"] == "required" for node in nodes
    )


@pytest.mark.parametrize(("code", "started"), [(0, "start --address=10.0.0.1:6379\n"), (5, "")])
def test_a_worker_that_cannot_be_probed_does_not_start(
    code: int, started: str, prepared: dict[str, Any], tmp_path: Path
) -> None:
    """If `codecfleet node env` fails, the command fails too, and Ray does not start with what it would find itself."""
    programs = tmp_path / "venv" / "bin"
    programs.mkdir(parents=True)
    for name, body in (("codecfleet", f"echo export FOUND=yes; exit {code}"), ("ray", 'test "$FOUND" && echo "$@"')):
        (programs / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    command = ["bash", "-c", prepared["worker_start_ray_commands"][-1]]
    around = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "RAY_HEAD_IP": "10.0.0.1"}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=around)
    assert (ended.returncode, ended.stdout) == (code, started)


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

"""Autoscaling files: valid content, and refused content."""

from decimal import Decimal
from pathlib import Path

import pytest

from codecfleet.cluster.autoscale.config import AutoscaleConfig, load_autoscale, nodes_of
from codecfleet.errors import UsageError

GROUP = """
[[groups]]
name = "{name}"
labels = {{ "codecfleet/group" = "{name}" }}
nodes_max = 4
price_per_hour = 0.1000000000000000055
cores = 8
memory_gib = 32
"""
A, B = (GROUP.format(name=name) for name in "ab")


def load(folder: Path, text: str) -> AutoscaleConfig:
    """Return the configuration from a file with this text."""
    file = folder / "autoscale.toml"
    file.write_text(text, encoding="utf-8")
    return load_autoscale(file)


def test_example_describes_the_groups_of_the_launcher(repository: Path, tmp_path: Path) -> None:
    """The example is valid. Prices are exact, and a group offers Ray the cores of a node and one GPU per device."""
    exact = load(tmp_path, A)
    assert exact.groups[0].price_per_hour == Decimal("0.1000000000000000055")
    config = load_autoscale(repository / "configs" / "autoscale.toml")
    assert [group.name for group in config.groups] == ["cpu", "g6", "g6e", "g5", "p5"]
    assert config.groups[1].resources == {"CPU": 8.0, "GPU": 1.0}
    assert config.groups[4].resources == {"CPU": 192.0, "GPU": 8.0}
    found = config.group_of({"codecfleet/group": "g6", "codecfleet/kind": "nvenc"})
    assert found is config.groups[1]
    assert config.group_of({"codecfleet/kind": "nvenc"}) is None


def test_nodes_of_a_group_share_no_device_names(repository: Path) -> None:
    """The nodes of a group have distinct device names, so that plans can be placed on them."""
    group = load_autoscale(repository / "configs" / "autoscale.toml").groups[4]
    devices = [device.device for node in nodes_of(group, 3) for device in node.devices]
    assert len(set(devices)) == len(devices) == 27


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colour = 1\n" + A, "colour: extra inputs are not permitted"),
        (A + A, "two groups called a"),
        (A + "nodes_min = 5\n", "nodes_min 5 above nodes_max 4"),
        ("nodes_max = 1\n" + A + "nodes_min = 2\n", "nodes_min add up to 2, but nodes_max is 1"),
        ("price_per_hour_max = 0.15\n" + A + "nodes_min = 2\n", "but price_per_hour_max is 0.15"),
        (A + '[[groups.devices]]\nmodel = "L4"\n', "group a has GPUs but no driver"),
        (A + 'driver = "580"\n[[groups.devices]]\nmodel = "L5"\n', "no GPU model is called L5"),
        (A.replace("codecfleet/group", "codecfleet/kind"), "label codecfleet/kind is a"),
        (
            A.replace('"codecfleet/group" = "a"', '"codecfleet/encodes-av1" = "nvenc"'),
            "its label codecfleet/encodes-av1 is nvenc, but such a machine has none",
        ),
        (A + B.replace('"codecfleet/group"', '"other"'), "a node of a could count as one of b"),
        (A.replace('= "a" }', '= "a b" }'), "is not a label"),
    ],
)
def test_an_invalid_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """Unknown keys, ambiguous groups, impossible limits and wrong labels each cause an error in one line."""
    with pytest.raises(UsageError) as refused:
        load(tmp_path, text)
    assert message in str(refused.value).lower() or message in str(refused.value)

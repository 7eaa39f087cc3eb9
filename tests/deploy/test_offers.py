"""The stated resources of machine groups, compared with `codecfleet node env` on such machines."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from codecfleet.cluster.node.offer import Offer, offer_of
from codecfleet.cluster.simulated.fleet_file import load_fleet
from codecfleet.testing.fleet.simulated_report import simulated_report

MODELS = {"l4": "L4", "h200": "H200", "h200-slice": "H200", "g6": "L4", "g6e": "L40S", "g5": "A10", "p5": "H100"}
"""An A10G has the engines of an A10, under another name."""
SLICES = {"h200-slice": ["1g.18gb"]}
CODECS = ("h264", "hevc", "vp9", "av1")
"""The codecs that matter for choosing a machine; a GPU decodes others too."""


def offer_on(folder: Path, group: str, *, cpus: int, gpus: int) -> Offer:
    """Return what a machine of a group offers."""
    about = f'schema = 1\nname = "{group}"\ndescription = "{group}"\nsource = "{group}"\n'
    machine = f'[[nodes]]\nname = "{group}"\ncores = {cpus}\nmemory_gib = 32\ndriver = "580.126.20"\n'
    device = f'[[nodes.devices]]\nmodel = "{MODELS[group]}"\ncount = {gpus}\n' if gpus else ""
    slices = f"mig = {SLICES[group]}\n" if group in SLICES else ""
    file = folder / f"{group}.toml"
    file.write_text(about + machine + device + slices, encoding="utf-8")
    (node,) = load_fleet(file).nodes
    return offer_of(simulated_report(node))


def main_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return labels without Ray's own, and without those of the codecs that CODECS leaves out."""
    ours = {key: value for key, value in labels.items() if not key.startswith("ray.io/")}
    return {key: value for key, value in ours.items() if "codes-" not in key or key.rpartition("-")[2] in CODECS}


def check(folder: Path, group: str, said: Mapping[str, Any]) -> None:
    """Compare a group's stated resources and labels with those that codecfleet finds on such a machine."""
    cpus, gpus = int(said["resources"]["CPU"]), int(said["resources"].get("GPU", 0))
    offer = offer_on(folder, group, cpus=cpus, gpus=gpus)
    assert (offer.cpus, offer.gpus) == (cpus, gpus)
    assert {"codecfleet/group": group, **main_labels(offer.labels)} == main_labels(said["labels"])


@pytest.mark.parametrize("group", ["cpu", "l4", "h200", "h200-slice"])
def test_groups_of_pods_say_what_is_found_there(
    group: str, rendered: Callable[[str], list[dict[str, Any]]], tmp_path: Path
) -> None:
    """Since the two are equal, Ray's autoscaler starts machines that fit a request."""
    (cluster,) = [each["spec"] for each in rendered("base") if each["kind"] == "RayCluster"]
    (said,) = [each for each in cluster["workerGroupSpecs"] if each["groupName"] == group]
    check(tmp_path, group, said)


@pytest.mark.parametrize("group", ["cpu", "g6", "g6e", "g5", "p5"])
def test_types_of_machines_say_what_is_found_there(group: str, deploy: Path, tmp_path: Path) -> None:
    """The types of machines on EC2 also state what codecfleet finds there."""
    launched = yaml.safe_load((deploy / "ray-up" / "aws.yaml").read_text(encoding="utf-8"))
    check(tmp_path, group, launched["available_node_types"][group])

"""Reports as people and programs read them: narrow, marked where simulated, and the same facts in both."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from codecfleet.cluster.fleet_file import load_fleet
from codecfleet.cluster.inventory_lines import (
    device_lines,
    devices_document,
    doctor_document,
    mig_lines,
    node_lines,
    nodes_document,
    vgpu_lines,
)
from codecfleet.cluster.probes.engines import Engine
from codecfleet.cluster.probes.node_report import NodeReport, SilentNode, from_json
from codecfleet.cluster.report_lines import doctor_lines, wrapped
from codecfleet.testing.simulated_report import simulated_report

FLEETS = sorted((Path(__file__).parents[3] / "configs" / "fleets").glob("*.toml"))
PAGES = [doctor_lines, device_lines, mig_lines, vgpu_lines, node_lines]


def reports(name: str) -> list[NodeReport | SilentNode]:
    """Return a fleet's machines, twelve at most."""
    fleet = load_fleet(next(path for path in FLEETS if path.stem == name))
    return [simulated_report(node, fleet.name) for node in fleet.nodes[:12]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.__name__)
@pytest.mark.parametrize("name", [path.stem for path in FLEETS])
def test_every_page_is_narrow_and_marked(name: str, page: object) -> None:
    """No line is longer than a hundred columns, and a machine that does not exist is never shown without saying so."""
    assert callable(page)
    lines = list(page(reports(name)))
    assert max(len(line) for line in lines) <= 100
    marks = sum(line.startswith("SIMULATED (") for line in lines)
    assert marks == (1 if page is node_lines else len(reports(name)))
    assert all(line.isprintable() for line in lines)


def test_a_real_machine_is_not_marked() -> None:
    """The mark is for machines that do not exist."""
    (report,) = reports("laptop")
    assert isinstance(report, NodeReport)
    assert not any("SIMULATED" in line for line in doctor_lines([replace(report, simulated="")]))


def test_an_h200_shows_its_engines() -> None:
    """Seven decoders, no encoder, whatever NVML's encoder capacity says."""
    lines = list(doctor_lines(reports("h200-l40s")[:1]))
    assert sum("engines: 7 NVDEC, no NVENC" in line for line in lines) == 8
    assert lines[-1] == "healthy: nothing to mend"


def test_a_node_that_is_silent_is_to_be_mended() -> None:
    """A machine of a cluster that gives no report is named with the reason, on every page and in every document."""
    silent = [SilentNode("worker-7", "no answer within 150 s")]
    for page in PAGES:
        assert any("worker-7" in line for line in page(silent))
    assert not doctor_document(silent)["healthy"]
    assert list(doctor_lines(silent))[-1] == "1 thing to mend"
    for document in (nodes_document(silent), devices_document(silent, "all")):
        assert document["nodes"] == [{"node": "worker-7", "error": "no answer within 150 s"}]


@pytest.mark.parametrize("name", [path.stem for path in FLEETS])
def test_documents_hold_the_whole_report(name: str) -> None:
    """What doctor prints for programs holds the report itself, which comes back equal from JSON."""
    found = reports(name)
    document = json.loads(json.dumps(doctor_document(found)))
    assert [from_json(node["report"]) for node in document["nodes"]] == found
    assert document["healthy"] is all(node["healthy"] for node in document["nodes"])


def test_nodes_and_devices_agree() -> None:
    """Both documents name the same devices; MIG's has the slices in them."""
    found = reports("a100-mig")
    (node,) = nodes_document(found)["nodes"]
    (devices,) = devices_document(found, "mig")["nodes"]
    slices = {part["uuid"] for gpu in devices["devices"] for part in (gpu["mig"].get("slices") or ())}
    assert slices < {device["device"] for device in node["devices"]}
    assert len(node["devices"]) == len(slices) + 1
    (everything,) = devices_document(found, "all")["nodes"]
    assert set(everything["engines_tried"]) == {device["device"] for device in node["devices"]}
    assert everything["cpu"] == {Engine.CPU.value: 96}
    assert devices_document(reports("vgpu"), "vgpu")["nodes"][0]["hosts"]


def test_long_words_stand_alone() -> None:
    """A file name longer than a line is not cut, so that it can be copied."""
    name = "x" * 150
    assert name in [line.strip() for line in wrapped(f"cause: {name}", "  ")]

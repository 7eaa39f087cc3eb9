"""Reports for people and for programs: narrow, marked if simulated, and with the same facts in both forms."""

import json
from dataclasses import replace
from functools import cache

import pytest

from codecfleet.cluster.doctor.fleet_lines import doctor_lines, node_lines
from codecfleet.cluster.doctor.inventory_lines import (
    device_lines,
    devices_document,
    doctor_document,
    mig_lines,
    nodes_document,
)
from codecfleet.cluster.doctor.report_lines import machine_page
from codecfleet.cluster.doctor.vgpu_lines import vgpu_lines
from codecfleet.cluster.probes.cuda.choosing import DriverChoice
from codecfleet.cluster.probes.node.report import NodeReport, SilentNode, from_json
from codecfleet.cluster.probes.report.absence import Absence, Unavailable
from codecfleet.cluster.probes.report.engines import Engine
from codecfleet.cluster.probes.vgpu.instances import VgpuCompatibility
from codecfleet.cluster.simulated.fleet_file import built_in_fleets, load_fleet
from codecfleet.cluster.text_lines import WIDTH, wrapped
from codecfleet.testing.fleet.simulated_report import simulated_report
from tests.goldens import golden
from tests.simulated_gpus import recorded_h200

from ..maybe import held

FLEETS = sorted(built_in_fleets())
PAGES = [doctor_lines, device_lines, mig_lines, vgpu_lines, node_lines]
PAGES_OF_EACH = [doctor_lines, device_lines, node_lines]


@cache
def reports(name: str) -> list[NodeReport | SilentNode]:
    """Return at most twelve machines of a fleet."""
    return [simulated_report(node, name) for node in load_fleet(name).nodes[:12]]


def first(name: str) -> NodeReport:
    """Return a fleet's first machine."""
    report = reports(name)[0]
    assert isinstance(report, NodeReport)
    return report


def width(line: str) -> int:
    """Return the width of a line; a shell command may have any width, so its width counts as 0."""
    return 0 if line.strip().startswith("CUDA_VISIBLE_DEVICES=") else len(line)


@pytest.mark.parametrize("name", FLEETS)
def test_pages_are_those_that_people_have_read(name: str) -> None:
    """All pages of a fleet are as in its file in tests/golden/pages."""
    found = reports(name)[:4]
    text = "".join(f"== {page.__name__}\n" + "".join(f"{line}\n" for line in page(found)) for page in PAGES)
    assert text == golden(f"pages/{name}.txt", text)


@pytest.mark.parametrize("name", FLEETS)
def test_every_page_is_narrow_and_marked(name: str) -> None:
    """No line is wider than a terminal, even with --all, and every page about simulated machines is marked."""
    found = reports(name)
    for page in PAGES:
        lines = list(page(found))
        assert lines[0].startswith(f"SIMULATED ({name}): ")
        for each in (lines, *([list(page(found, every=True))] if page in PAGES_OF_EACH else [])):
            assert max(map(width, each)) <= WIDTH
            assert all(line.isprintable() for line in each)
    named = [line.split()[0] for line in node_lines(found, every=True)]
    names = [report.host.name for report in found if isinstance(report, NodeReport)]
    assert [word for word in named if word in names] == names
    assert sum(line.startswith("SIMULATED (") for line in doctor_lines(found, every=True)) == len(found)


def test_two_hundred_machines_fit_on_a_few_pages() -> None:
    """A fleet of nine kinds of machines with eight equal faults fits in 100 lines of doctor and 30 lines of nodes."""
    fleet = load_fleet("mixed-200")
    found: list[NodeReport | SilentNode] = [simulated_report(node, fleet.name) for node in fleet.nodes]
    lines = list(doctor_lines(found))
    assert len(lines) <= 105
    assert sum("the GPU is lost" in line for line in lines) == 1
    assert lines[-1] == "8 things to fix on 8 of 200 nodes"
    rows = list(node_lines(found))
    assert len(rows) <= 35
    assert any(line.startswith("cpu-1 ... cpu-60 (60) ") for line in rows)
    assert len(list(device_lines(found))) <= 50
    assert rows[-1] == "200 nodes, 11584 cores, 424 devices"


def test_equal_faults_of_one_machine_are_told_once() -> None:
    """Eight GPUs with the same fault are one finding, which says that each GPU is reset by its own number."""
    report = first("h200-l40s")
    bad = tuple(replace(gpu, health=replace(gpu.health, ecc_uncorrected=1)) for gpu in report.gpus)
    lines = list(doctor_lines([replace(report, nvml=replace(held(report.nvml), devices=bad))]))
    told = [line for line in lines if "memory is damaged" in line]
    assert told == ["  1. broken: GPU 0-7 (NVIDIA H200): the GPU's memory is damaged"]
    assert "(each GPU by its own number)" in " ".join(line.strip() for line in lines)
    assert lines[-1] == "8 things to fix"


def test_a_real_machine_is_not_marked() -> None:
    """Only machines that do not exist are marked."""
    assert not any("SIMULATED" in line for line in doctor_lines([replace(first("laptop"), simulated="")]))


def test_a_node_that_is_silent_is_to_be_repaired() -> None:
    """A machine without a report is named with the reason, on every page and in every document."""
    silent = [SilentNode("worker-7", "no answer within 150 s")]
    for page in PAGES:
        assert any("worker-7" in line for line in page(silent))
    assert not doctor_document(silent)["healthy"]
    assert list(doctor_lines(silent))[-1] == "1 thing to fix"
    three = [SilentNode(f"worker-{number}", "no answer within 150 s") for number in (7, 8, 9)]
    assert "     3 nodes: worker-7 ... worker-9" in list(doctor_lines(three))
    assert list(doctor_lines(three))[-1] == "3 things to fix on 3 of 3 nodes"
    for document in (nodes_document(silent), devices_document(silent, "all")):
        assert document["nodes"] == [{"node": "worker-7", "error": "no answer within 150 s"}]


@pytest.mark.parametrize("name", FLEETS)
def test_documents_hold_the_whole_report(name: str) -> None:
    """Doctor's JSON contains the report itself, which is equal after parsing."""
    found = reports(name)
    document = json.loads(json.dumps(doctor_document(found)))
    assert [from_json(node["report"]) for node in document["nodes"]] == found
    assert document["healthy"] is all(node["healthy"] for node in document["nodes"])


def test_nodes_and_devices_agree() -> None:
    """Both documents name the same devices; the document about MIG has the slices in them."""
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


def test_a_guest_without_a_uuid_has_another_name() -> None:
    """In the JSON document about vGPUs."""
    nameless = Unavailable(Absence.NOT_SUPPORTED, "the driver gives no UUID")
    guest = next(report for name in FLEETS for report in reports(name) if any(gpu.kind.is_guest for gpu in report.gpus))
    gpus = tuple(replace(gpu, uuid=nameless) for gpu in guest.gpus)
    found = replace(guest, nvml=replace(guest.nvml, devices=gpus))
    (document,) = devices_document([found], "vgpu")["nodes"]
    assert list(document["guests"]) == [gpu.key for gpu in gpus if gpu.kind.is_guest]


def test_long_words_stand_alone() -> None:
    """A file name that is longer than a line is not split, so that it can be copied."""
    name = "x" * 150
    assert name in [line.strip() for line in wrapped(f"cause: {name}", "  ")]


def test_nodes_say_how_each_gpu_is() -> None:
    """The document states why a GPU gets no work, and why a value is unknown."""
    found = first("h200-l40s")
    refused = Unavailable(Absence.NO_PERMISSION, "the driver tells only privileged users")
    gpu = found.gpus[0]
    sick = replace(gpu, health=replace(gpu.health, ecc_uncorrected=3), use=replace(gpu.use, decoder_percent=refused))
    nvml = replace(held(found.nvml), devices=(sick, *found.gpus[1:]))
    devices = nodes_document([replace(found, nvml=nvml)])["nodes"][0]["devices"]
    assert devices[0]["unplaceable"] == "its memory is damaged: 3 errors could not be corrected"
    assert devices[0]["nvdec_percent"] is None
    assert devices[0]["unknown"]["nvdec_percent"] == "the driver tells only privileged users"
    assert (devices[1]["unplaceable"], devices[1]["nvdec_percent"]) == ("", 0)


def test_nodes_tell_which_driver_workers_load_and_which_gpus_cuda_closes() -> None:
    """The page and the document state the choice of the driver, and why a GPU gets no work or has no kernels."""
    found = recorded_h200()
    chosen = DriverChoice("/c:/l", "/c", "cuda-bindings 13.3 is newer")
    no_nvrtc = Unavailable(Absence.NO_LIBRARY, "NVRTC is not here")
    cuda = replace(held(found.cuda), init_code=804, devices=(), nvrtc=no_nvrtc)
    closed = replace(found, cuda=cuda, driver_choice=chosen)
    page = " ".join(line.strip() for line in node_lines([closed]))
    name = closed.host.name
    assert f"{name}: workers load the compat package in /c: cuda-bindings 13.3 is newer" in page
    assert f"{name}: GPU 0 (NVIDIA H200): no work: CUDA does not start on it: cuInit returned" in page
    (device,) = nodes_document([closed])["nodes"][0]["devices"]
    assert "(804)" in device["unplaceable"]
    assert device["no_kernels"] == "NVRTC is not here"
    assert "no work" not in " ".join(node_lines([found]))
    assert chosen.words in " ".join(" ".join(machine_page(closed)).split())


def test_where_a_vgpu_could_move_is_shown() -> None:
    """Each other GPU has a line: in which states the virtual machine can move there, or what prevents a move."""
    hypervisor = first("vgpu")
    ((uuid, host),) = hypervisor.vgpu_hosts.items()
    moves = {
        "GPU-a": VgpuCompatibility(("cold", "live"), ()),
        "GPU-b": VgpuCompatibility(("cold",), ("guest driver",)),
        "GPU-c": VgpuCompatibility((), ("GPU",)),
        "GPU-d": Unavailable(Absence.NOT_SUPPORTED, "it is refused"),
    }
    host = replace(host, migrations={str(held(host.active)[0].instance): moves})
    said = " ".join(line.strip() for line in vgpu_lines([replace(hypervisor, vgpu_hosts={uuid: host})]))
    assert "can move (cold or live) to GPU-a" in said
    assert "can move (cold, limited by the guest driver) to GPU-b" in said
    assert "cannot move (limited by the GPU) to GPU-c" in said
    assert "unknown whether it can move (it is refused) to GPU-d" in said

"""Simulated fleets: the content of files, values that they leave out, and files that are refused."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from codecfleet.cluster.placement.build import inventory_of_fleet, node_of_report
from codecfleet.cluster.placement.model.inventory import Device, DeviceState, Inventory
from codecfleet.cluster.probes.gpus.hardware import load_hardware
from codecfleet.cluster.probes.node.report import NodeReport
from codecfleet.cluster.probes.report.absence import Absence, Unavailable
from codecfleet.cluster.probes.report.device_kinds import DeviceKind
from codecfleet.cluster.probes.report.engines import CodecCase, Direction, Engine, How, MediaCodec
from codecfleet.cluster.simulated.devices import SimulatedFleet
from codecfleet.cluster.simulated.fleet_file import DeviceEntry, NodeEntry, VgpuEntry, built_in_fleets, load_fleet
from codecfleet.errors import UsageError
from codecfleet.testing.fleet.simulated_report import simulated_report
from tests.simulated_gpus import recorded_h200

from ..maybe import held
from ..probes.cuda_reports import report as cuda_report

README = (Path(__file__).parents[4] / "configs" / "fleets" / "README.md").read_text(encoding="utf-8")
HEAD = 'schema = 1\nname = "f"\ndescription = ""\nsource = "documents"\n'
NODE = '[[nodes]]\nname = "n"\ncores = 4\nmemory_gib = 8\n'
GPU = f"{HEAD}{NODE}[[nodes.devices]]\nmodel = "
HOST = f'{GPU}"L40S"\nvirtualization = "host"\n'
VGPU = '[[nodes.devices.vgpus]]\ninstance = 1\ntype_name = "{}"\nvm = "a"\n'


def _fleet(folder: Path, text: str) -> SimulatedFleet:
    path = folder / "fleet.toml"
    path.write_text(text, encoding="utf-8")
    return load_fleet(path)


def _devices(name: str) -> dict[str, list[Device]]:
    inventory = inventory_of_fleet(load_fleet(name))
    return {node.name: [d for d in node.devices if d.kind is not DeviceKind.CPU] for node in inventory.nodes}


@pytest.mark.parametrize("name", sorted(built_in_fleets()))
def test_our_own_fleets_can_be_read(name: str) -> None:
    """Each fleet has the name of its file, states the source of its figures, and gives every node a processor."""
    fleet = load_fleet(name)
    assert fleet.name == name
    assert fleet.source
    assert all(node.devices[-1].engines == {Engine.CPU: node.cores} for node in fleet.nodes)
    assert f"| [`{name}`]" in README


def test_a_fleet_is_the_same_whenever_it_is_read() -> None:
    """Reading a file twice gives equal fleets, even in UUIDs, and no two devices share a UUID."""
    fleet = load_fleet("mixed-200")
    assert fleet == load_fleet("mixed-200")
    assert len(fleet.nodes) == 200
    uuids = [each.uuid for node in fleet.nodes for device in node.devices for each in (device, *device.slices)]
    assert len(set(uuids)) == len(uuids)


def test_every_key_is_documented() -> None:
    """The page on fleet files names each key that a file may have."""
    keys = {*NodeEntry.model_fields, *DeviceEntry.model_fields, *VgpuEntry.model_fields} - {"devices", "vgpus"}
    assert all(re.search(rf"^{key} = ", README, re.MULTILINE) for key in keys)


def test_what_a_file_leaves_out_comes_from_the_tables(tmp_path: Path) -> None:
    """The name of a model determines engines, memory, architecture and codecs."""
    fleet = _fleet(tmp_path, f'{GPU}"L4"\ncount = 2\n')
    first, second, _ = fleet.nodes[0].devices
    assert (first.name, first.architecture, first.engines[Engine.NVDEC]) == ("NVIDIA L4", "ada", 4)
    assert first.trials is second.trials
    assert {trial.how for trial in first.trials} == {How.SIMULATED}
    works = {trial.case for trial in first.trials if trial.works}
    assert CodecCase(MediaCodec.AV1, Direction.ENCODE) in works
    assert CodecCase(MediaCodec.H264, Direction.DECODE, bit_depth=10) not in works


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{HEAD}{NODE}colour = 1\n", "nodes.0.colour: extra inputs"),
        (f'{GPU}"GTX 9000"\n', "no GPU model is called GTX 9000"),
        (f'{GPU}"L4"\nmig = ["1g.5gb"]\n', "L4 has no MIG profile 1g.5gb"),
        (f'{GPU}"A30"\nmig = ["4g.24gb", "4g.24gb"]\n', "at most 1 of 4g.24gb"),
        (f"{HEAD}{NODE}{NODE}", "two nodes are called n"),
        ("schema = ", "is not valid TOML"),
        (f"a = {'[' * 5000}", "is not valid TOML"),
        (f"{HEAD}{NODE.replace('8', 'inf')}", "memory_gib: input should be a finite number"),
        (f'{GPU}"A30"\nmig = ["4g.24gb", "1g.6gb"]\n', "has 4 compute slices"),
        (
            f'{GPU}"A100 40GB"\nmig = ["3g.20gb", "3g.20gb", "1g.5gb"]\n',
            "has 40960 MiB of memory, but its MIG instances need 44800",
        ),
        (f'{GPU}"A30"\nmig = [["1c.2g.12gb", "1c.1g.6gb"]]\n', "name several profiles"),
        (f'{GPU}"A30"\nmig = [["1c.2g.12gb", "2g.12gb"]]\n', "need 3"),
        (f"{HOST}{VGPU.format('NVIDIA L40S-9Q')}", "has no known vGPU type NVIDIA L40S-9Q"),
        (f"{HOST}{VGPU.format('NVIDIA L40S-24Q') * 3}", "at most 2 of NVIDIA L40S-24Q"),
    ],
)
def test_a_wrong_fleet_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    """The error names the file, the place and the fault."""
    with pytest.raises(UsageError) as caught:
        _fleet(tmp_path, text)
    assert said in caught.value.message
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "step"),
    [
        (HOST, "Give its type_id and framebuffer_gib, or one of NVIDIA L40S-1B,"),
        (HOST.replace("L40S", "RTX 4090"), "Give its type_id and framebuffer_gib."),
    ],
)
def test_an_unknown_vgpu_type_can_be_described(tmp_path: Path, host: str, step: str) -> None:
    """The next step lists known types only if there are some for this model."""
    with pytest.raises(UsageError) as caught:
        _fleet(tmp_path, host + VGPU.format("NVIDIA X-9Q"))
    assert caught.value.next_step.startswith(step)


def test_a_fleet_that_is_not_there_is_refused() -> None:
    """If a name is neither a file nor one of our fleets, the error lists our fleets."""
    with pytest.raises(UsageError, match="h200-l40s"):
        load_fleet("nowhere")


def test_compute_instances_share_their_gpu_instance(tmp_path: Path) -> None:
    """A list within ``mig`` is one GPU instance, whose compute instances have its memory and engines, but own names."""
    text = f'{GPU}"A100 40GB"\nmig = [["1c.3g.20gb", "2c.3g.20gb"], "3g.20gb"]\n'
    parts = _fleet(tmp_path, text).nodes[0].devices[0].slices
    assert [(part.name, part.gpu_instance, part.compute_instance) for part in parts] == [
        ("1c.3g.20gb", 1, 0),
        ("2c.3g.20gb", 1, 1),
        ("3g.20gb", 2, 0),
    ]
    assert {part.engines[Engine.NVDEC] for part in parts} == {2}
    assert len({part.uuid for part in parts}) == 3


def test_vgpu_types_are_nvidias() -> None:
    """A GPU holds as many vGPUs of a type as fit its memory; ids and sizes of types come from the tables."""
    (host, *_), *_ = [node.devices for node in load_fleet("vgpu").nodes]
    assert [(vgpu.type_id, vgpu.framebuffer_bytes) for vgpu in host.vgpus] == [(1153, 12 << 30)] * 2
    hardware = load_hardware()
    assert set(hardware.vgpu) <= {name for model in hardware.gpus.values() for name in model.names}
    for name, board in hardware.vgpu.items():
        types = hardware.vgpu_types_of(name, mig_enabled=False)
        assert all(found.most * found.framebuffer_mib <= board.memory_gib << 10 for found in types)
        full = {found.name: found for found in types if found.most == 1}
        assert full[f"{board.prefix}-{board.memory_gib}C"].framebuffer_mib == board.memory_gib << 10
        assert len({found.number for found in types}) == len(types)
    numbers = {found.name: found.most for found in hardware.vgpu_types_of("NVIDIA L40S", mig_enabled=False)}
    assert (numbers["NVIDIA L40S-12Q"], numbers["NVIDIA L40S-1Q"], numbers["NVIDIA L40S-16C"]) == (4, 32, 3)


def test_vgpus_of_gpu_instances_are_named_by_them() -> None:
    """In MIG mode, a type takes a whole GPU instance; a GPU without MIG has no such types."""
    hardware = load_hardware()
    types = hardware.vgpu_types_of("NVIDIA A100-PCIE-40GB", mig_enabled=True)
    found = {each.name: (each.mig_profile, each.framebuffer_mib, each.most) for each in types}
    assert found["GRID A100-1-5CME"] == ("1g.5gb+me", 5120, 1)
    assert found["GRID A100-3-20C"] == ("3g.20gb", 20480, 2)
    assert hardware.vgpu_types_of("NVIDIA L40S", mig_enabled=True) == ()


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA L40S-12Q", "L40S"),
        ("NVIDIA L40-12Q", "L40"),
        ("NVIDIA L4-12Q", "L4"),
        ("GRID A100DX-4-40C", "A100 80GB"),
        ("NVIDIA H200X-1-18CME", "H200"),
        ("NVIDIA H200 MIG 1g.18gb", "H200"),
        ("NVIDIA L400-1Q", None),
    ],
)
def test_a_part_of_a_gpu_is_known_by_its_name(name: str, model: str | None) -> None:
    """The name of a slice or vGPU determines the model of its GPU, and so the engines."""
    hardware = load_hardware()
    assert hardware.model_of(name) is (None if model is None else hardware.gpus[model])


def test_slices_are_devices_of_their_own() -> None:
    """On a partitioned GPU only slices get work; each has memory and engines of its own, and names the GPU."""
    devices = _devices("a100-mig")["a100"]
    assert len(devices) == 18
    by_profile = {device.name.rpartition(" ")[2]: device for device in devices if device.kind is DeviceKind.MIG}
    assert by_profile["3g.20gb"].engines == {Engine.NVDEC: 2}
    assert by_profile["1g.5gb"].engines == {}
    assert by_profile["1g.5gb+me"].engines[Engine.NVDEC] == 1
    assert by_profile["3g.20gb"].parent.startswith("GPU-")


def test_guests_and_hosts_of_vgpus_are_told_apart() -> None:
    """A guest's vGPU has a share and a lasting identity; the GPU of its host gets no work."""
    devices = _devices("vgpu")
    assert devices["guest-1"][0].share == 0.5
    assert devices["guest-1"][0].device == "guest-1/00000000:01:00.0"
    assert devices["hypervisor"][0].state is DeviceState.CORDONED
    assert devices["passthrough"][0].state is DeviceState.OPEN


def test_geforce_caps_hold_for_the_machine() -> None:
    """The driver's limit applies to the node, not to one card; a machine without GeForce cards has no limit."""
    workstation = inventory_of_fleet(load_fleet("rtx-4090")).nodes[0]
    assert workstation.system_encoder_sessions_max == 12
    assert workstation.devices[0].encoder_sessions_max is None
    assert inventory_of_fleet(load_fleet("l4-x4")).nodes[0].system_encoder_sessions_max is None


@pytest.mark.parametrize("name", ["h200-l40s", "a100-mig", "rtx-4090", "laptop", "thor", "orin", "l4-x4"])
def test_probing_a_simulated_machine_gives_the_same_engines(name: str) -> None:
    """An inventory from probe reports has the devices and engines in the fleet file."""
    fleet = load_fleet(name)
    direct = inventory_of_fleet(fleet)
    probed = Inventory(tuple(node_of_report(simulated_report(node)) for node in fleet.nodes))
    for mine, theirs in zip(direct.nodes, probed.nodes, strict=True):
        assert [_engines(device) for device in mine.devices] == [_engines(device) for device in theirs.devices]


def _engines(device: Device) -> tuple[str, str, str, int, int]:
    counts = device.engines.get(Engine.NVDEC, 0), device.engines.get(Engine.NVENC, 0)
    identity = device.device if device.kind is not DeviceKind.CPU else "processor"
    return (identity, device.kind.value, device.architecture, *counts)


def test_the_tables_name_a_source_for_every_figure() -> None:
    """Each model states, for each of its counts, how well it is known and from which source."""
    hardware = load_hardware()
    for model in hardware.gpus.values():
        assert model.source in hardware.sources
        assert {"nvdec", "nvenc"} <= set(model.confidence)
        assert model.architecture in hardware.architectures
        assert not model.mig or model.mig in hardware.mig


def test_a_real_h200_is_what_the_tables_say() -> None:
    """A real H200's report gives the same engines, clock and capabilities as a simulated H200."""
    real = node_of_report(recorded_h200()).devices[0]
    simulated = _devices("h200-l40s")["h200"][0]
    for engine in (Engine.NVDEC, Engine.NVENC, Engine.NVJPG, Engine.OFA):
        assert real.engines.get(engine, 0) == simulated.engines.get(engine, 0)
    assert (real.name, real.architecture, real.driver_branch) == ("NVIDIA H200", "hopper", "580")
    assert real.max_video_clock_mhz == simulated.max_video_clock_mhz
    told = {(trial.case, trial.engine): (trial.works, trial.max_width, trial.max_height) for trial in real.trials}
    said = {(trial.case, trial.engine): (trial.works, trial.max_width, trial.max_height) for trial in simulated.trials}
    both = told.keys() & said.keys()
    assert len(both) > 25
    assert {key: told[key] for key in both} == {key: said[key] for key in both}


def test_a_real_h200_has_the_mig_profiles_of_the_tables() -> None:
    """The engines, memory and number of instances of each profile are those that a real H200's driver reports."""
    mig = held(recorded_h200().gpus[0].mig)
    said = {
        each.name: (tuple(count.count for count in each.engines), each.memory_bytes, each.instances_max)
        for each in mig.profiles
    }
    facts = load_hardware().mig["H200"]
    assert said == {name: (each.engines, each.memory_mib << 20, each.most) for name, each in facts.items()}


def test_a_gpu_that_broke_takes_no_work(tmp_path: Path) -> None:
    """A GPU is quarantined by an Xid that requires a reset, from a file or a probe, and by the driver's advice."""
    text = f'{HEAD}{NODE}driver = "580.126.20"\n[[nodes.devices]]\nmodel = "L4"\nxids = [31, 79]\n'
    fleet = _fleet(tmp_path, text)
    report = simulated_report(fleet.nodes[0])
    for inventory in (inventory_of_fleet(fleet), Inventory((node_of_report(report),))):
        gpu = inventory.nodes[0].devices[0]
        assert gpu.state is DeviceState.QUARANTINED
        assert gpu.state_reason.startswith("Xid 79, GPU has fallen off the bus: ")
    assert node_of_report(_with_health(report, xids=(31,))).devices[0].state is DeviceState.OPEN
    advised = node_of_report(_with_health(report, xids=(), recovery_action="reset")).devices[0]
    assert (advised.state, advised.state_reason) == (DeviceState.QUARANTINED, "its driver advises: reset")


def _with_health(report: NodeReport, **changes: Any) -> NodeReport:
    assert not isinstance(report.nvml, Unavailable)
    gpu = report.nvml.devices[0]
    changed = replace(gpu, health=replace(gpu.health, **changes))
    return replace(report, nvml=replace(report.nvml, devices=(changed,)))


def test_a_report_without_the_packages_says_so_of_every_gpu() -> None:
    """Each GPU of the machine states why it was not tried, and why kernels cannot be compiled."""
    missing = Unavailable(Absence.NO_LIBRARY, "PyNvVideoCodec is not installed")
    report = replace(simulated_report(load_fleet("l4-x4").nodes[0]), simulated="", pynvvideocodec=missing, devices=())
    node = node_of_report(report)
    assert [device.untried for device in node.devices] == ["PyNvVideoCodec is not installed"] * 4 + [""]
    assert all(device.converts for device in node.devices)
    driver = cuda_report(nvrtc=Unavailable(Absence.NO_LIBRARY, "NVRTC cannot be loaded"), devices=())
    without = node_of_report(replace(report, cuda=driver))
    assert [device.converts for device in without.devices] == [False] * 4 + [True]

"""Machines and jobs to place, as Hypothesis strategies and from short builders."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache

from hypothesis import strategies as st

from codecfleet.cluster.placement.model.demand import Demand, EncoderChoice, EncoderKind, Rendition
from codecfleet.cluster.placement.model.inventory import Device, DeviceState, Inventory, Node
from codecfleet.cluster.placement.model.policy import ALL_ENGINES, Policy, PreemptibleUse
from codecfleet.cluster.probes.gpus.hardware import load_hardware
from codecfleet.cluster.probes.report.device_kinds import DeviceKind
from codecfleet.cluster.probes.report.engines import CodecCase, Direction, Engine, MediaCodec

GIB = 1 << 30
MODELS = ("H200", "L40S", "L4", "T4", "RTX 4090", "A100 40GB", "Thor")


@cache
def _sample(model: str) -> Device:
    hardware = load_hardware()
    entry = hardware.gpus[model]
    return Device(
        device="",
        node="",
        kind=DeviceKind.GPU,
        name=entry.names[0],
        engines=dict(entry.engines),
        trials=hardware.trials_of(entry.names[0], entry, entry.engines),
        architecture=entry.architecture,
        driver="580",
        free_memory_bytes=entry.memory_mib << 20 or None,
    )


def gpu(model: str, node: str, number: int = 0, **changes: object) -> Device:
    """Return a GPU of a model in the tables."""
    return replace(_sample(model), device=f"{node}/gpu{number}", node=node, **changes)  # type: ignore[arg-type]


def node(name: str, *models: str, cores: int = 8, **changes: object) -> Node:
    """Return a node with GPUs of these models, and its processor."""
    gpus = [gpu(model, name, number) for number, model in enumerate(models)]
    processor = Device(
        device=f"{name}/cpu", node=name, kind=DeviceKind.CPU, name="processor", engines={Engine.CPU: cores}
    )
    return Node(node=name, name=name, devices=(*gpus, processor), **changes)  # type: ignore[arg-type]


def rendition(
    codec: MediaCodec = MediaCodec.HEVC, *, depth: int = 8, height: int = 1080, **changes: object
) -> Rendition:
    """Return an output track with the shape 16:9."""
    software = {MediaCodec.H264: "libx264", MediaCodec.HEVC: "libx265", MediaCodec.AV1: "libsvtav1"}[codec]
    case = CodecCase(codec, Direction.ENCODE, bit_depth=depth)
    return Rendition(case=case, width=height * 16 // 9, height=height, software=software, **changes)  # type: ignore[arg-type]


def demand(job: str = "job", segments: int = 10, frames: int = 2000, **changes: object) -> Demand:
    """Return a job from H.264 to HEVC in 1080p, with segments long enough to use every session."""
    fields: dict[str, object] = {
        "decode": CodecCase(MediaCodec.H264, Direction.DECODE),
        "width": 1920,
        "height": 1080,
        "renditions": (rendition(),),
    }
    return Demand(job=job, segments=(frames,) * segments, **(fields | changes))  # type: ignore[arg-type]


def inventory(*nodes: Node) -> Inventory:
    """Return the inventory of these nodes."""
    return Inventory(nodes)


STATES = st.sampled_from([DeviceState.OPEN] * 5 + [state for state in DeviceState if state is not DeviceState.OPEN])


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    """Draw a node with GPUs, slices or none, and with caps, memory, other users and states."""
    made = node(name, *draw(st.lists(st.sampled_from(MODELS), max_size=3)), cores=draw(st.integers(1, 12)))
    devices: list[Device] = []
    for device in made.devices:
        changed = replace(device, state=draw(STATES))
        if device.kind is not DeviceKind.CPU:
            changed = replace(
                changed,
                encoder_sessions_max=draw(st.none() | st.integers(0, 4)),
                free_memory_bytes=draw(st.none() | st.integers(0, 4 * GIB)),
                share=draw(st.sampled_from([1.0, 0.5, 0.1])),
                busy=draw(st.sampled_from([{}, {Engine.NVDEC: 0.4}, {Engine.NVENC: 1.0}])),
                encoder_sessions_others=draw(st.integers(0, 2)),
                driver=draw(st.sampled_from(["570", "580"])),
                parent=draw(st.sampled_from(["", f"{name}/whole"])),
            )
        devices.append(changed)
    return replace(
        made,
        devices=tuple(devices),
        preemptible=draw(st.booleans()),
        memory_bytes=draw(st.none() | st.integers(0, 8 * GIB)),
        speed=draw(st.sampled_from([1.0, 0.5, 1.5])),
        system_encoder_sessions_max=draw(st.none() | st.integers(0, 5)),
        state=draw(STATES),
    )


@st.composite
def inventories(draw: st.DrawFn) -> Inventory:
    """Draw one to four nodes."""
    return Inventory(tuple(draw(nodes(f"n{number}")) for number in range(draw(st.integers(1, 4)))))


KINDS = st.none() | st.sampled_from([EncoderKind("libx265"), EncoderKind("nvenc", "ada", "580")])


@st.composite
def demands(draw: st.DrawFn, job: str) -> Demand:
    """Draw a job with a size, codec, encoder choice, priority and weight."""
    tracks = draw(st.lists(st.sampled_from([1080, 720]), min_size=1, max_size=2))
    return demand(
        job,
        segments=draw(st.integers(0, 12)),
        frames=draw(st.sampled_from([1, 48, 300, 5000])),
        decode=CodecCase(draw(st.sampled_from([MediaCodec.H264, MediaCodec.AV1, MediaCodec.OTHER])), Direction.DECODE),
        renditions=tuple(
            rendition(draw(st.sampled_from([MediaCodec.HEVC, MediaCodec.AV1])), height=height, kind=draw(KINDS))
            for height in tracks
        ),
        encoder=draw(st.sampled_from(EncoderChoice)),
        priority=draw(st.integers(0, 1)),
        weight=Fraction(draw(st.integers(1, 5))),
        workers_max=draw(st.none() | st.integers(1, 6)),
    )


@st.composite
def demand_lists(draw: st.DrawFn) -> Sequence[Demand]:
    """Draw up to five jobs."""
    return [draw(demands(f"job{number}")) for number in range(draw(st.integers(0, 5)))]


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Draw a policy."""
    return Policy(
        engines=draw(st.sampled_from([ALL_ENGINES, ALL_ENGINES - {Engine.NVENC}, ALL_ENGINES - {Engine.CPU}])),
        preemptible=draw(st.sampled_from(PreemptibleUse)),
        sessions_per_core=draw(st.sampled_from([1.0, 0.5, 2.0])),
        cores_reserved=draw(st.sampled_from([0.0, 2.0])),
        sessions_per_device=draw(st.integers(1, 8)),
        memory_reserve=draw(st.sampled_from([0.0, 0.1, 0.5])),
        hybrid_gain=draw(st.sampled_from([0.0, 0.03, 0.5])),
    )


@st.composite
def tight_nodes(draw: st.DrawFn, name: str) -> Node:
    """Draw an open node for any job, with GPUs that encode, and one limit that probably applies."""
    made = node(name, *draw(st.lists(st.sampled_from(["L40S", "L4"]), min_size=1, max_size=3)), cores=8)
    limit = draw(st.sampled_from(["own cap", "gpu cap", "system cap", "device memory", "host memory", "none"]))
    changes: dict[str, object] = {}
    if limit in ("own cap", "gpu cap"):
        changes["encoder_sessions_max"] = draw(st.integers(0, 5))
        changes["parent"] = f"{name}/whole" if limit == "gpu cap" else ""
    if limit == "device memory":
        changes["free_memory_bytes"] = draw(st.integers(400, 1200)) << 20
    gpus = [replace(device, **changes) for device in made.devices[:-1]]  # type: ignore[arg-type]
    return replace(
        made,
        devices=(*gpus, made.devices[-1]),
        memory_bytes=draw(st.integers(0, 1 << 10)) << 20 if limit == "host memory" else None,
        system_encoder_sessions_max=draw(st.integers(0, 8)) if limit == "system cap" else None,
    )


@st.composite
def tight_worlds(draw: st.DrawFn) -> tuple[Sequence[Demand], Inventory, Policy]:
    """Draw jobs that may run anywhere and want more than the machines have."""
    machines = Inventory(tuple(draw(tight_nodes(f"n{number}")) for number in range(draw(st.integers(1, 2)))))
    encoder = draw(st.sampled_from([EncoderChoice.NVENC, EncoderChoice.NVENC, EncoderChoice.SOFTWARE]))
    tracks = tuple(rendition(height=height) for height in draw(st.sampled_from([(1080,), (1080, 720)])))
    all_wanted = [
        demand(f"job{number}", segments=30, encoder=encoder, renditions=tracks)
        for number in range(draw(st.integers(1, 3)))
    ]
    return all_wanted, machines, Policy(sessions_per_device=draw(st.sampled_from([1, 3, 64])))

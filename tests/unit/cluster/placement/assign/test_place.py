"""Placements that a person would expect, one rule at a time: tests/golden/places.txt."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from codecfleet.cluster.placement.assign.assignment import place
from codecfleet.cluster.placement.model.demand import Demand, EncoderChoice, EncoderKind
from codecfleet.cluster.placement.model.inventory import Device, Inventory
from codecfleet.cluster.placement.model.policy import Policy, PreemptibleUse
from codecfleet.cluster.placement.rates import start_rates
from codecfleet.cluster.probes.gpus.hardware import MIB
from codecfleet.cluster.probes.report.engines import CodecCase, Direction, MediaCodec
from tests.goldens import golden

from ..worlds import demand, gpu, inventory, node, rendition

RATES = start_rates()
SOFTWARE, NVENC = EncoderChoice.SOFTWARE, EncoderChoice.NVENC
EAGER = Policy(hybrid_gain=0)
"""Any gain is worth a GPU's decoding."""
ADA = EncoderKind("nvenc", "ada", "580")
ROOM_BYTES = 520 * MIB + 2 * 2 * 34 * MIB + MIB
"""For one context and two sessions, each with a decoder and an encoder."""


def with_gpu(device: Device) -> Inventory:
    """Return a node with a GPU from the test."""
    plain = node(device.node)
    return inventory(replace(plain, devices=(device, *plain.devices)))


def backwards(*models: str, cores: int = 8) -> Inventory:
    """Return a node that lists its devices in reverse order."""
    plain = node("n", *models, cores=cores)
    return inventory(replace(plain, devices=plain.devices[::-1]))


def of(codec: MediaCodec) -> Demand:
    """Return a job whose source has this codec."""
    return demand(decode=CodecCase(codec, Direction.DECODE))


H200, L4, L40S, T4 = (inventory(node("n", model)) for model in ("H200", "L4", "L40S", "T4"))
H200_16 = inventory(node("n", "H200", cores=16))
SPOT = inventory(node("a", cores=8, preemptible=True), node("b", cores=4))
HUGE = replace(
    demand(encoder=NVENC), width=20_000, height=20_000, renditions=(replace(rendition(), width=20_000, height=20_000),)
)
Wanted = Demand | tuple[Demand, ...]
Case = tuple[Wanted, Inventory] | tuple[Wanted, Inventory, Policy]
CASES: Final[dict[str, Case]] = {
    "a GPU with both engines keeps the pictures, with two sessions for each NVENC": (demand(segments=100), L40S),
    "H200 decodes for its host's cores, none of which is idle": (demand(segments=100), H200_16, EAGER),
    "no H200 decodes AV1": (of(MediaCodec.AV1), inventory(node("n", "H200", cores=4))),
    "what only software decodes is uploaded to NVENC": (of(MediaCodec.OTHER), L4),
    "few of 8 GPUs are opened for 10 segments": (
        demand(segments=10),
        inventory(node("n", *["H200"] * 8, cores=64)),
        EAGER,
    ),
    "a software job leaves GPUs alone": (
        demand(segments=1, encoder=SOFTWARE),
        inventory(node("a", "H200", cores=8), node("b", cores=8)),
    ),
    "a GPU decodes however little it gains": (demand(encoder=SOFTWARE), H200_16, EAGER),
    "whatever is listed first": (demand(encoder=SOFTWARE), backwards("H200", cores=16), EAGER),
    "the policy says what it must gain": (demand(encoder=SOFTWARE), H200, Policy(hybrid_gain=0.5)),
    "a track of Ada's goes on there": (
        demand(renditions=(rendition(kind=ADA),)),
        inventory(node("n", "T4", "L4"), node("m", "L4")),
    ),
    "and on no processor": (demand(renditions=(rendition(kind=ADA),)), inventory(node("n", "T4", "L4"), node("m"))),
    "a thousand cores against one small NVENC": (
        demand(segments=1000),
        inventory(node("a", "T4"), node("b", cores=1000)),
    ),
    "four cores against it": (demand(segments=1000), inventory(node("a", "T4", cores=4))),
    "half a second of work opens few sessions": (demand(segments=30, frames=8), inventory(node("n", *["L40S"] * 4))),
    "a whole GPU": (demand(segments=1), L40S),
    "a fifth of it": (demand(segments=9), with_gpu(gpu("L40S", "n", share=0.2))),
    "memory for two sessions": (
        demand(segments=9, encoder=NVENC),
        with_gpu(gpu("L4", "n", free_memory_bytes=int(ROOM_BYTES / 0.9))),
    ),
    "preemptible nodes come last": (demand(segments=6), SPOT),
    "or never": (demand(segments=6), SPOT, Policy(preemptible=PreemptibleUse.NEVER)),
    "NVENC where there is none": (demand(encoder=NVENC), H200),
    "a GPU's reason comes before a processor's": (HUGE, backwards("L4")),
    "nothing is left": (demand(segments=0), inventory(node("n"))),
    "the first by name has the first choice": (
        (demand("two", 200), demand("one", 200)),
        inventory(node("n", "T4", cores=96)),
    ),
    "who needs a GPU gets no processor": (
        demand(segments=100, encoder=SOFTWARE, needs_gpu=True),
        inventory(node("a", "H200"), node("b", cores=64)),
    ),
    "nothing gains that much": (demand(encoder=SOFTWARE), H200, Policy(hybrid_gain=1000.0)),
    "who needs a GPU gets it all the same": (demand(encoder=SOFTWARE, needs_gpu=True), H200, Policy(hybrid_gain=1e3)),
    "interlaced pictures": (demand(software_decode="the pictures are interlaced"), H200),
    "interlaced pictures for NVENC": (demand(software_decode="the pictures are interlaced"), L4),
    **{
        f"{frames} frames for a GPU that starts": (demand(encoder=SOFTWARE, frames_total=frames), H200, EAGER)
        for frames in (240, 1 << 12, 1 << 20)
    },
    "240 frames that need it": (demand(encoder=SOFTWARE, frames_total=240, needs_gpu=True), H200),
    "240 frames for one that is up": (
        demand(encoder=SOFTWARE, frames_total=240),
        H200,
        Policy(gpu_start_s=0, hybrid_gain=0),
    ),
    "without NVRTC": (demand(segments=100), with_gpu(gpu("L40S", "n", no_kernels="NVRTC cannot be loaded"))),
    "pictures that are scaled without NVRTC": (
        demand(segments=100, has_filters=True),
        with_gpu(gpu("L40S", "n", no_kernels="NVRTC cannot be loaded")),
    ),
    "pictures that are scaled": (demand(segments=100, has_filters=True), L40S),
    "a GPU that was not tried": (
        demand(),
        with_gpu(gpu("L4", "n", trials=(), engines={}, untried="PyNvVideoCodec is not installed")),
    ),
}


def lines_of(case: Case) -> Iterator[str]:
    """Yield where jobs are placed, and why not elsewhere."""
    wanted, policy = case[0], case[2] if len(case) == 3 else Policy()
    found = place([wanted] if isinstance(wanted, Demand) else wanted, case[1], RATES, policy)
    for lane in found.lanes:
        kinds = ", ".join(f"{each.implementation} {each.architecture}".strip() for each in lane.kinds)
        yield f"{lane.job}: {lane.device}, {lane.route.value}, {lane.sessions} x {kinds}, {lane.fps:.0f} fps"
    for refusal in found.refusals:
        yield f"  not {', '.join(refusal.devices) or 'anywhere'}: {refusal.reason}"


def test_jobs_are_placed_as_expected() -> None:
    """Engines, cores, gains, starts, shares, memory and demands decide as the golden file says."""
    text = "".join(f"{line}\n" for name, case in CASES.items() for line in (f"== {name}", *lines_of(case)))
    assert text == golden("places.txt", text)

"""Placements that a person would expect, one rule at a time."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction

from codecfleet.cluster.placement.assign.assignment import place
from codecfleet.cluster.placement.model.demand import Demand, EncoderChoice, EncoderKind
from codecfleet.cluster.placement.model.inventory import Device, DeviceState, Inventory
from codecfleet.cluster.placement.model.placement import Placement
from codecfleet.cluster.placement.model.policy import ALL_ENGINES, Policy, PreemptibleUse
from codecfleet.cluster.placement.rates import start_rates
from codecfleet.cluster.probes.gpus.hardware import MIB
from codecfleet.cluster.probes.report.device_kinds import Route
from codecfleet.cluster.probes.report.engines import CodecCase, Direction, Engine, MediaCodec

from ..worlds import demand, gpu, inventory, node, rendition

RATES = start_rates()
SOFTWARE = EncoderChoice.SOFTWARE


EAGER = Policy(hybrid_gain=0)
"""Any gain is worth a GPU's decoding."""


def _place(wanted: Demand, machines: Inventory, policy: Policy | None = None) -> Placement:
    return place([wanted], machines, RATES, policy or Policy())


def _routes(placement: Placement) -> dict[str, Route]:
    return {lane.device: lane.route for lane in placement.lanes}


def _sessions(placement: Placement) -> Counter[str]:
    return Counter({lane.device: lane.sessions for lane in placement.lanes})


def _with_gpu(device: Device) -> Inventory:
    """Return a node of which a test has made the GPU itself."""
    plain = node(device.node)
    return inventory(replace(plain, devices=(device, *plain.devices)))


def _reason(placement: Placement, device: str) -> str:
    return next(refusal.reason for refusal in placement.refusals if device in refusal.devices)


def test_a_gpu_with_both_engines_keeps_the_pictures() -> None:
    """Where NVDEC and NVENC do it, one device decodes and encodes, with two sessions for each NVENC."""
    placement = _place(demand(segments=100), inventory(node("n", "L40S")))
    assert _routes(placement)["n/gpu0"] is Route.GPU
    assert _sessions(placement)["n/gpu0"] == 6


def test_a_gpu_without_an_encoder_decodes_for_its_hosts_cores() -> None:
    """H200 has no NVENC: its NVDEC decodes, the cores encode, and none of them is left idle."""
    placement = _place(demand(segments=100), inventory(node("n", "H200", cores=16)), EAGER)
    assert _routes(placement) == {"n/gpu0": Route.HYBRID}
    assert _sessions(placement) == {"n/gpu0": 16}


def test_what_the_decoder_cannot_do_the_processor_does() -> None:
    """AV1 is decoded by no H200, so its host's processor does it all."""
    wanted = demand(decode=CodecCase(MediaCodec.AV1, Direction.DECODE))
    placement = _place(wanted, inventory(node("n", "H200", cores=4)))
    assert _routes(placement) == {"n/cpu": Route.CPU}
    assert "cannot decode av1" in _reason(placement, "n/gpu0")


def test_what_only_software_decodes_is_uploaded_to_the_encoder() -> None:
    """A codec that no NVDEC knows is decoded by the cores and encoded by NVENC, where that is fastest."""
    wanted = demand(decode=CodecCase(MediaCodec.OTHER, Direction.DECODE))
    placement = _place(wanted, inventory(node("n", "L4", cores=8)))
    assert _routes(placement) == {"n/gpu0": Route.UPLOAD}


def test_few_gpus_are_opened_where_cores_are_short() -> None:
    """Eight GPUs that decode for the same cores are opened one by one, not all for a session each."""
    placement = _place(demand(segments=10), inventory(node("n", *["H200"] * 8, cores=64)), EAGER)
    assert _sessions(placement) == {"n/gpu0": 10}


def test_a_software_job_leaves_gpus_alone_where_it_can() -> None:
    """Where it makes little difference, machines without a GPU come before those with one."""
    machines = inventory(node("a", "H200", cores=8), node("b", cores=8))
    placement = _place(demand(segments=1, encoder=SOFTWARE), machines)
    assert _routes(placement) == {"b/cpu": Route.CPU}


def test_a_gpu_that_is_worth_it_decodes_however_little_it_gains() -> None:
    """Rates that differ by less than they are exact to do not choose: what a host lists first does not either."""
    machine = node("n", "H200", cores=16)
    for devices in (machine.devices, machine.devices[::-1]):
        (lane,) = _place(demand(encoder=SOFTWARE), inventory(replace(machine, devices=devices)), EAGER).lanes
        assert lane.route is Route.HYBRID


def test_the_policy_says_what_decoding_on_a_gpu_must_gain() -> None:
    """A GPU is not taken for decoding alone where that gains less than asked for."""
    placement = _place(demand(encoder=SOFTWARE), inventory(node("n", "H200")), Policy(hybrid_gain=0.5))
    assert _routes(placement) == {"n/cpu": Route.CPU}
    assert "not worth a GPU" in _reason(placement, "n/gpu0")


def test_another_nvenc_cannot_help_with_a_track() -> None:
    """A track that has begun on Ada is not continued on Turing, nor by another driver branch."""
    kind = EncoderKind("nvenc", "ada", "580")
    machines = inventory(node("n", "T4", "L4"), node("m", "L4"))
    other = inventory(*machines.nodes[:1], node("m"))
    placement = _place(demand(renditions=(rendition(kind=kind),)), machines)
    assert set(_routes(placement)) == {"n/gpu1", "m/gpu0"}
    assert "turing NVENC" in _reason(placement, "n/gpu0")
    assert set(_routes(_place(demand(renditions=(rendition(kind=kind),)), other))) == {"n/gpu1"}


def test_the_encoder_kind_is_the_one_that_finishes_soonest() -> None:
    """One small NVENC against a thousand cores: the cores have it; against four, NVENC."""
    large = _place(demand(segments=1000), inventory(node("a", "T4"), node("b", cores=1000)))
    small = _place(demand(segments=1000), inventory(node("a", "T4", cores=4)))
    assert {lane.kinds for lane in large.lanes} == {(EncoderKind("libx265"),)}
    assert {lane.kinds for lane in small.lanes} == {(EncoderKind("nvenc", "turing", "580"),)}


def test_a_ladder_takes_a_session_for_each_rendition() -> None:
    """Two renditions take two encoder sessions, so a cap of three lets one segment run."""
    machines = _with_gpu(gpu("L40S", "n", encoder_sessions_max=3))
    wanted = demand(renditions=(rendition(), rendition(height=720)), encoder=EncoderChoice.NVENC)
    placement = _place(wanted, machines)
    assert _sessions(placement) == {"n/gpu0": 1}
    assert _reason(placement, "n/cpu").startswith("the track is encoded by NVENC")


def test_a_short_job_does_not_open_sessions_that_come_too_late() -> None:
    """Half a second of work is not worth thirty sessions that open one after the other."""
    placement = _place(demand(segments=30, frames=8), inventory(node("n", *["L40S"] * 4)))
    assert _sessions(placement) == {"n/gpu0": 1, "n/gpu1": 1, "n/gpu2": 1}
    assert _reason(placement, "n/gpu3").startswith("one more session would be open only when")


def test_a_vgpu_gets_the_part_that_is_its_own() -> None:
    """A fifth of three NVENC is less than one, at six tenths of its speed: a session, and one to fill its gaps."""
    whole = _place(demand(segments=1), inventory(node("n", "L40S")))
    placement = _place(demand(segments=9), _with_gpu(gpu("L40S", "n", share=0.2)))
    assert _sessions(placement)["n/gpu0"] == 2
    assert placement.lanes[0].fps < 0.7 * whole.lanes[0].fps


def test_memory_bounds_the_sessions() -> None:
    """A device with room for one context and two sessions, each with a decoder and an encoder, takes two."""
    room_bytes = 520 * MIB + 2 * 2 * 34 * MIB + MIB
    small = gpu("L4", "n", free_memory_bytes=int(room_bytes / 0.9))
    placement = _place(demand(segments=9, encoder=EncoderChoice.NVENC), _with_gpu(small))
    assert _sessions(placement) == {"n/gpu0": 2}


def test_cordoned_draining_and_quarantined_get_nothing() -> None:
    """What is not open takes no work, and says what it is and why."""
    for state in (DeviceState.CORDONED, DeviceState.DRAINING, DeviceState.QUARANTINED):
        machines = inventory(node("a", state=state, state_reason="somebody said so"), node("b"))
        placement = _place(demand(), machines)
        assert set(_routes(placement)) == {"b/cpu"}
        assert _reason(placement, "a/cpu") == f"its node is {state.value} because somebody said so"


def test_preemptible_nodes_come_last() -> None:
    """They are used when the others are full, or never, as the policy says."""
    machines = inventory(node("a", cores=8, preemptible=True), node("b", cores=4))
    assert _sessions(_place(demand(segments=6), machines)) == {"b/cpu": 4, "a/cpu": 2}
    never = Policy(preemptible=PreemptibleUse.NEVER)
    assert _sessions(_place(demand(segments=6), machines, never)) == {"b/cpu": 4}


def test_an_engine_that_is_not_built_gets_nothing() -> None:
    """With software sessions alone, GPUs are left out, and the reason is the policy."""
    placement = _place(demand(), inventory(node("n", "L40S")), Policy(engines=frozenset({Engine.CPU})))
    assert _routes(placement) == {"n/cpu": Route.CPU}
    assert "the policy does not use NVDEC" in _reason(placement, "n/gpu0")


def test_a_job_that_fits_nowhere_is_told_why() -> None:
    """NVENC alone, on a machine without one: the first refusal says so, and names no device."""
    placement = _place(demand(encoder=EncoderChoice.NVENC), inventory(node("n", "H200")))
    assert placement.lanes == ()
    assert placement.refusals[0].devices == ()
    assert "writes what it asks for: hevc 4:2:0 with 8 bits" in placement.refusals[0].reason


def test_a_gpu_s_reason_comes_before_a_processor_s() -> None:
    """A refused NVENC job names the GPU's reason first, not that processors have no NVENC."""
    wanted = replace(demand(encoder=EncoderChoice.NVENC), width=20_000, height=20_000)
    huge = replace(wanted, renditions=tuple(replace(each, width=20_000, height=20_000) for each in wanted.renditions))
    machine = node("n", "L4")
    placement = _place(huge, inventory(replace(machine, devices=tuple(reversed(machine.devices)))))
    assert placement.lanes == ()
    assert "processor" not in placement.refusals[0].reason.split(", and ")[0]


def test_a_job_with_nothing_left_gets_nothing() -> None:
    """A job whose segments are all done takes no place."""
    placement = _place(demand(segments=0), inventory(node("n")))
    assert placement.lanes == ()
    assert [refusal.reason for refusal in placement.refusals] == ["nothing is left to do"]


def test_jobs_share_each_engine_by_weight() -> None:
    """Three to one on four L4 in all: the heavier job has about three quarters of the NVENC sessions."""
    machines = inventory(node("n", *["L4"] * 4))
    all_wanted = [
        demand("heavy", segments=100, weight=Fraction(3), encoder=EncoderChoice.NVENC),
        demand("light", segments=100, weight=Fraction(1), encoder=EncoderChoice.NVENC),
    ]
    placement = place(all_wanted, machines, RATES, Policy())
    sessions = Counter[str]()
    for lane in placement.lanes:
        sessions[lane.job] += lane.sessions
    assert sessions == {"heavy": 12, "light": 4}


def test_no_cores_no_software() -> None:
    """With processors left out, NVDEC alone has nothing to give."""
    placement = _place(demand(), inventory(node("n", "H200")), Policy(engines=ALL_ENGINES - {Engine.CPU}))
    assert placement.lanes == ()


def test_who_comes_first_in_the_order_of_jobs_has_the_first_choice() -> None:
    """Of equal jobs the first by name gets the encoder that finishes sooner, and the second what is then best."""
    machines = inventory(node("n", "T4", cores=96))
    placement = place([demand("two", 200), demand("one", 200)], machines, RATES, Policy())
    kinds = {lane.job: lane.kinds[0].implementation for lane in placement.lanes}
    assert kinds == {"one": "nvenc", "two": "libx265"}


def test_who_needs_a_gpu_gets_no_processor() -> None:
    """A processor that would be as good is left alone; one that decodes on a GPU and encodes on cores is a GPU's."""
    machines = inventory(node("a", "H200"), node("b", cores=64))
    placement = _place(demand(segments=100, encoder=SOFTWARE, needs_gpu=True), machines)
    assert _routes(placement) == {"a/gpu0": Route.HYBRID}
    assert _reason(placement, "b/cpu") == "the job asks for a GPU"


def test_who_needs_a_gpu_gets_one_whatever_it_gains() -> None:
    """The policy's least gain does not refuse a GPU to a job that asks for it."""
    policy = Policy(hybrid_gain=1000.0)
    machines = inventory(node("n", "H200"))
    assert _routes(_place(demand(encoder=SOFTWARE), machines, policy)) == {"n/cpu": Route.CPU}
    assert _routes(_place(demand(encoder=SOFTWARE, needs_gpu=True), machines, policy)) == {"n/gpu0": Route.HYBRID}


def test_who_needs_a_gpu_where_there_is_none_gets_nothing() -> None:
    """No lane, and the reason at the processor."""
    placement = _place(demand(needs_gpu=True), inventory(node("n")))
    assert placement.lanes == ()
    assert placement.refusals[0].reason == "no machine has a GPU"
    assert _reason(placement, "n/cpu") == "the job asks for a GPU"


def test_what_software_must_decode_is_decoded_by_no_gpu() -> None:
    """A reason against NVDEC closes its routes: cores decode, and NVENC encodes what they upload, if it is there."""
    wanted = demand(software_decode="the pictures are interlaced")
    hybrid = _place(wanted, inventory(node("n", "H200", cores=8)))
    assert _routes(hybrid) == {"n/cpu": Route.CPU}
    assert _reason(hybrid, "n/gpu0") == "the pictures are interlaced"
    assert _routes(_place(wanted, inventory(node("n", "L4", cores=8)))) == {"n/gpu0": Route.UPLOAD}


def test_a_gpu_that_may_not_decode_is_no_gpu_for_who_needs_one() -> None:
    """Needing a GPU and keeping NVDEC away leaves nothing where no NVENC is."""
    wanted = demand(software_decode="captions", needs_gpu=True, encoder=SOFTWARE)
    placement = _place(wanted, inventory(node("n", "H200")))
    assert placement.lanes == ()
    assert _reason(placement, "n/gpu0") == "captions"


def test_a_short_job_does_not_wait_for_a_gpu_to_start() -> None:
    """A GPU that only decodes is taken when the whole job gains more by it than its worker takes to start."""
    h200 = inventory(node("n", "H200"))
    routes = []
    for frames in (240, 1 << 12, 1 << 20):
        placement = _place(demand(encoder=SOFTWARE, frames_total=frames), h200, EAGER)
        routes.append({lane.route for lane in placement.lanes})
    assert routes[0] == {Route.CPU}
    assert Route.HYBRID in routes[-1]
    assert routes == sorted(routes, key=lambda found: Route.HYBRID in found)
    require_device = _place(demand(encoder=SOFTWARE, frames_total=240, needs_gpu=True), h200)
    assert {lane.route for lane in require_device.lanes} == {Route.HYBRID}
    never_waits = _place(demand(encoder=SOFTWARE, frames_total=240), h200, Policy(gpu_start_s=0, hybrid_gain=0))
    assert Route.HYBRID in {lane.route for lane in never_waits.lanes}
    (reason,) = {refusal.reason for refusal in _place(demand(encoder=SOFTWARE, frames_total=240), h200, EAGER).refusals}
    assert "its worker takes 4 s to start" in reason


def test_a_gpu_without_nvrtc_does_not_keep_pictures_that_are_scaled() -> None:
    """Its kernels cannot be compiled: what is scaled for NVENC goes through the cores; what is not stays on the GPU."""
    plain, scaled = demand(segments=100), demand(segments=100, has_filters=True)
    without = _with_gpu(gpu("L40S", "n", no_kernels="NVRTC cannot be loaded"))
    assert _routes(_place(plain, without))["n/gpu0"] is Route.GPU
    assert _routes(_place(scaled, without))["n/gpu0"] is Route.UPLOAD
    assert _routes(_place(scaled, inventory(node("n", "L40S"))))["n/gpu0"] is Route.GPU


def test_a_gpu_that_was_not_tried_is_not_said_to_have_no_engine() -> None:
    """Where the package is missing nothing is known of NVDEC and NVENC, and that is the reason."""
    untried = gpu("L4", "n", trials=(), engines={}, untried="PyNvVideoCodec is not installed")
    placement = _place(demand(), _with_gpu(untried))
    assert _routes(placement) == {"n/cpu": Route.CPU}
    assert _reason(placement, "n/gpu0") == "NVIDIA L4 was not tried: PyNvVideoCodec is not installed"

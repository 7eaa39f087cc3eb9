from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.probes.report.absence import Absence, Unavailable
from codecfleet.cluster.probes.vgpu.host import HostLoad, why_creatable
from codecfleet.cluster.probes.vgpu.values import VgpuType

GIB = 1 << 30
NONE = Unavailable(Absence.NOT_SUPPORTED, "not asked here")


def _type(type_id: int, framebuffer_bytes: int, instances_max: int = 4, profile: int | None = None) -> VgpuType:
    return VgpuType(
        type_id=type_id,
        vgpu_class=NONE,
        name=NONE,
        device_id=NONE,
        framebuffer_bytes=framebuffer_bytes,
        display_heads=NONE,
        resolution_max=NONE,
        licence=NONE,
        frame_rate_limit_fps=NONE,
        instances_max=instances_max,
        gpu_instance_profile=NONE if profile is None else profile,
        nvlink_peer_to_peer=NONE,
        gpudirect=NONE,
    )


SMALL, SMALL_TOO, LARGE = _type(1, GIB), _type(2, GIB), _type(3, 2 * GIB)


def _shared(*running: VgpuType) -> HostLoad:
    return HostLoad(running=tuple(each.framebuffer_bytes for each in running))


def test_empty_gpu_takes_every_supported_type() -> None:
    """With nothing running, whatever the GPU supports can be created."""
    assert all(why_creatable(each, _shared()).creatable for each in (SMALL, SMALL_TOO, LARGE))


def test_beside_running_vgpus_only_their_frame_buffer_fits() -> None:
    """A type of another size is refused, a different type of the same size is not."""
    assert why_creatable(SMALL_TOO, _shared(SMALL)).creatable
    refused = why_creatable(LARGE, _shared(SMALL))
    assert not refused.creatable
    assert "frame buffer" in refused.reason


def test_full_gpu_takes_nothing() -> None:
    """Once as many vGPUs run as fit, the same type is refused as well."""
    refused = why_creatable(SMALL, _shared(*[SMALL] * 4))
    assert not refused.creatable
    assert "full" in refused.reason


def _mig(gpu_instances: dict[int, int], *taken: int) -> HostLoad:
    return HostLoad(running=(GIB,) * len(taken), gpu_instances=gpu_instances, taken=frozenset(taken))


MIG_SMALL, MIG_LARGE = _type(1, GIB, profile=19), _type(3, 2 * GIB, profile=14)
CUT = {7: 19, 8: 19}


def test_mig_needs_a_free_gpu_instance_of_the_types_profile() -> None:
    """With MIG a type is creatable where an instance of its profile exists on which no vGPU runs."""
    assert "no GPU instance has been created" in why_creatable(MIG_SMALL, _mig({})).reason
    assert why_creatable(MIG_SMALL, _mig(CUT)).creatable
    assert why_creatable(MIG_SMALL, _mig(CUT, 7)).creatable
    assert "every GPU instance" in why_creatable(MIG_SMALL, _mig(CUT, 7, 8)).reason
    refused = why_creatable(MIG_LARGE, _mig(CUT))
    assert not refused.creatable
    assert "no free GPU instance has the profile" in refused.reason
    assert not why_creatable(SMALL, _mig(CUT)).creatable


@given(st.lists(st.sampled_from((SMALL, SMALL_TOO)), max_size=4), st.sampled_from((SMALL, SMALL_TOO, LARGE)))
def test_what_can_be_created_never_exceeds_the_gpu(running: list[VgpuType], wanted: VgpuType) -> None:
    """Whatever is created by the rules, no more vGPUs run than fit, all of one size, and each answer has a reason."""
    answer = why_creatable(wanted, _shared(*running))
    assert answer.reason
    assert not answer.reason.endswith(".")
    if answer.creatable:
        after = [*running, wanted]
        assert len(after) <= 4
        assert len({each.framebuffer_bytes for each in after}) == 1

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.probes.vgpu.host import probe_vgpu_host
from codecfleet.cluster.probes.vgpu.types import HostLoad, VgpuType, why_creatable
from codecfleet.testing import FakeNvml
from tests.simulated_gpus import gpu, node

from ...maybe import held

GIB = 1 << 30
NVML = FakeNvml(node(gpu("A40", "GPU-host", virtualization="host")))
NVML.nvmlInit()
TYPE, *_ = held(probe_vgpu_host(NVML, NVML.nvmlDeviceGetHandleByIndex(0))).types


def _type(type_id: int, framebuffer_bytes: int, profile: int | None = None) -> VgpuType:
    changes = {} if profile is None else {"gpu_instance_profile": profile}
    return replace(TYPE, type_id=type_id, framebuffer_bytes=framebuffer_bytes, instances_max=4, **changes)


SMALL, SMALL_TOO, LARGE = _type(1, GIB), _type(2, GIB), _type(3, 2 * GIB)


def _shared(*running: VgpuType) -> HostLoad:
    return HostLoad(running=tuple(each.framebuffer_bytes for each in running))


def _mig(gpu_instances: dict[int, int], *taken: int) -> HostLoad:
    return HostLoad(running=(GIB,) * len(taken), gpu_instances=gpu_instances, taken=frozenset(taken))


MIG_SMALL, MIG_LARGE = _type(1, GIB, profile=19), _type(3, 2 * GIB, profile=14)
CUT = {7: 19, 8: 19}


@pytest.mark.parametrize(
    ("wanted", "load", "why_not"),
    [
        # If nothing runs, every supported type can be created; otherwise, only types with the same frame buffer.
        *((each, _shared(), "") for each in (SMALL, SMALL_TOO, LARGE)),
        (SMALL_TOO, _shared(SMALL), ""),
        (LARGE, _shared(SMALL), "frame buffer"),
        (SMALL, _shared(*[SMALL] * 4), "full"),
        # With MIG, a type takes a GPU instance of its profile on which no vGPU runs.
        (MIG_SMALL, _mig({}), "no GPU instance has been created"),
        (MIG_SMALL, _mig(CUT), ""),
        (MIG_SMALL, _mig(CUT, 7), ""),
        (MIG_SMALL, _mig(CUT, 7, 8), "every GPU instance"),
        (MIG_LARGE, _mig(CUT), "no free GPU instance has the profile"),
        (SMALL, _mig(CUT), "no GPU instance profile"),
    ],
)
def test_what_can_be_created(wanted: VgpuType, load: HostLoad, why_not: str) -> None:
    """The guide's rules (2.2) decide, and each refusal has a reason."""
    found = why_creatable(wanted, load)
    assert (found.creatable, why_not in found.reason) == (not why_not, True)


@given(st.lists(st.sampled_from((SMALL, SMALL_TOO)), max_size=4), st.sampled_from((SMALL, SMALL_TOO, LARGE)))
def test_what_can_be_created_never_exceeds_the_gpu(running: list[VgpuType], wanted: VgpuType) -> None:
    """All vGPUs that the rules allow fit on the GPU and have one size, and each answer has a reason."""
    answer = why_creatable(wanted, _shared(*running))
    assert answer.reason
    assert not answer.reason.endswith(".")
    if answer.creatable:
        after = [*running, wanted]
        assert len(after) <= 4
        assert len({each.framebuffer_bytes for each in after}) == 1

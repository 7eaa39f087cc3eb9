from types import ModuleType

import pytest

from codecfleet.cluster.probes.absence import Absence, NotApplicable
from codecfleet.cluster.probes.egl import (
    ACTIVE_FRAMES_MAX,
    EGL_FUNCTIONS,
    EGL_PARTNERS,
    EGL_RULES,
    REGISTER_IMAGE_FLAGS,
    EglFunctions,
    FrameMemory,
    Role,
    StreamUse,
    probe_egl,
    stream_troubles,
)


def test_functions_are_looked_up_in_driver_and_runtime() -> None:
    """What the bindings have and what they lack is told by full name, for both of CUDA's interfaces."""

    def importer(name: str) -> ModuleType:
        module = ModuleType(name)
        prefix = "cu" if name.endswith("driver") else "cuda"
        for function in EGL_FUNCTIONS:
            if function != "EGLStreamConsumerConnectWithFlags":
                setattr(module, prefix + function, print)
        return module

    found = probe_egl(importer)
    assert isinstance(found, EglFunctions)
    assert found.missing == ("cuEGLStreamConsumerConnectWithFlags", "cudaEGLStreamConsumerConnectWithFlags")
    assert len(found.present) == 2 * len(EGL_FUNCTIONS) - 2


def test_missing_package_is_an_absence() -> None:
    """Without cuda-python there is a reason and no exception."""

    def importer(name: str) -> ModuleType:
        raise ModuleNotFoundError(name)

    found = probe_egl(importer)
    assert isinstance(found, NotApplicable)
    assert found.absence is Absence.NO_LIBRARY


def test_installed_bindings_have_every_function() -> None:
    """The bindings that are installed here bind all of Table 3, the image's and the sync's functions."""
    found = probe_egl()
    if isinstance(found, NotApplicable):
        pytest.skip("cuda-python is not installed")
    assert found.missing == ()


@pytest.mark.parametrize(
    "use",
    [
        StreamUse(consumer_connected_first=False),
        StreamUse(frames_active=ACTIVE_FRAMES_MAX + 1),
        StreamUse(frame_size=(1920, 1080), connected_size=(1920, 1088)),
        StreamUse(frame_memory=FrameMemory.ARRAY, same_gpu=False),
        StreamUse(consumer_writes=True),
        StreamUse(frame_was_released=True),
    ],
)
def test_each_breach_has_its_own_sentence(use: StreamUse) -> None:
    """Each rule of EGLStream that is broken alone gives one sentence."""
    assert len(stream_troubles(use)) == 1


def test_proper_use_has_no_trouble() -> None:
    """64 active frames of the right size, as pitch memory on another GPU or an array on the same, break no rule."""
    assert stream_troubles(StreamUse(frames_active=ACTIVE_FRAMES_MAX, same_gpu=False)) == ()
    assert stream_troubles(StreamUse(frame_memory=FrameMemory.ARRAY, same_gpu=True)) == ()
    assert len(EGL_RULES) == 6
    assert REGISTER_IMAGE_FLAGS == 0


def test_cameras_only_produce() -> None:
    """Argus and the camera may be producers opposite CUDA and never consumers."""
    consumers = {name for name, roles in EGL_PARTNERS.items() if Role.CONSUMER in roles}
    assert consumers == {"CUDA", "NvMedia", "OpenGL"}
    assert all(Role.PRODUCER in roles for roles in EGL_PARTNERS.values())

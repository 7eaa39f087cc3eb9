"""EGL without a GPU: Mesa's surfaceless display makes images of textures and syncs, as NVIDIA's does."""

import ctypes.util
from collections.abc import Iterator

import numpy as np
import pytest

from codecfleet.actors.nvidia.egl.gles import GlesTexture
from codecfleet.actors.nvidia.egl.library import EglDisplay, device_display, egl
from codecfleet.errors import CodecfleetError, EngineUnfit, UsageError

_SURFACELESS = 0x31DD
"""EGL_MESA_platform_surfaceless."""


@pytest.fixture
def display() -> EglDisplay:
    """Mesa's display, if Debian's packages for it are installed."""
    if ctypes.util.find_library("EGL_mesa") is None or ctypes.util.find_library("EGL") is None:
        pytest.skip("Mesa's EGL is not installed (Debian's packages: libegl1, libegl-mesa0, libgles2)")
    library = egl()
    return EglDisplay(library, library.call("eglGetPlatformDisplayEXT", _SURFACELESS, None, None))


@pytest.fixture
def texture(display: EglDisplay) -> Iterator[GlesTexture]:
    """A texture in a context of its own."""
    with GlesTexture(display, 33, 17) as found:
        yield found


def test_an_image_of_a_texture(texture: GlesTexture) -> None:
    """A texture keeps its pixels and can become an image."""
    pixels = np.random.default_rng(0).integers(0, 256, (17, 33, 4), np.uint8)
    texture.write(pixels)
    assert texture.image
    assert np.array_equal(texture.read(), pixels)


def test_a_fence_is_waited_for(display: EglDisplay, texture: GlesTexture) -> None:
    """A sync object is satisfied once the preceding OpenGL work is done."""
    texture.write(np.zeros((17, 33, 4), np.uint8))
    sync = display.egl.call("eglCreateSyncKHR", display.handle, 0x30F9, None)
    satisfied = (0x30F5, 0x30F6)  # On failure, this would be EGL_TIMEOUT_EXPIRED_KHR.
    assert display.egl.call("eglClientWaitSyncKHR", display.handle, sync, 1, 10**10) == satisfied[1]
    display.egl.call("eglDestroySyncKHR", display.handle, sync)


def test_what_mesa_lacks_is_named(display: EglDisplay) -> None:
    """A display without streams reports that, and no EGL device here is a CUDA device."""
    with pytest.raises(EngineUnfit, match="EGL_KHR_stream"):
        display.require(["EGL_KHR_stream"])
    with pytest.raises(CodecfleetError):
        device_display()


def test_errors_of_egl_are_ours(display: EglDisplay) -> None:
    """A wrong call raises one typed error with EGL's name for it, and the display stays usable."""
    with pytest.raises(UsageError, match="EGL_BAD_PARAMETER"):
        display.egl.call("eglDestroyImageKHR", display.handle, 0x1234)
    with GlesTexture(display, 4, 4) as texture:
        assert texture.image

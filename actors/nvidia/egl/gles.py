"""An OpenGL ES 2 texture that needs no window and can be written and read, and the texture's EGLImage.

Sources: EGL_KHR_surfaceless_context, EGL_KHR_gl_texture_2D_image, EGL_KHR_get_all_proc_addresses; OpenGL ES 2.0.
"""

import ctypes
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....errors import EngineUnfit
from ...closing import Closing, undone_by
from .library import EglDisplay, attributes

_OPENGL_ES_API: Final = 0x30A0
_CONTEXT_VERSION, _RENDERABLE_TYPE, _ES2 = 0x3098, 0x3040, 4
_SURFACE_TYPE: Final = 0x3033
_TEXTURE_IMAGE: Final = 0x30B1
_TEXTURE_2D, _RGBA, _BYTES = 0x0DE1, 0x1908, 0x1401
_FRAMEBUFFER, _COLOUR = 0x8D40, 0x8CE0
_COMPLETE: Final = 0x8CD5
_MIN_FILTER, _NEAREST = 0x2801, 0x2600
_NEEDED: Final = ("EGL_KHR_surfaceless_context", "EGL_KHR_gl_texture_2D_image", "EGL_KHR_image_base")

_P, _I, _U = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32
_FUNCTIONS: Final[dict[str, tuple[Any, ...]]] = {
    "glGenTextures": (None, _I, _P),
    "glDeleteTextures": (None, _I, _P),
    "glBindTexture": (None, _U, _U),
    "glTexParameteri": (None, _U, _U, _I),
    "glTexImage2D": (None, _U, _I, _I, _I, _I, _I, _U, _U, _P),
    "glTexSubImage2D": (None, _U, _I, _I, _I, _I, _I, _U, _U, _P),
    "glGenFramebuffers": (None, _I, _P),
    "glDeleteFramebuffers": (None, _I, _P),
    "glBindFramebuffer": (None, _U, _U),
    "glFramebufferTexture2D": (None, _U, _U, _U, _U, _I),
    "glCheckFramebufferStatus": (_U, _U),
    "glReadPixels": (None, _I, _I, _I, _I, _U, _U, _P),
    "glFinish": (None,),
}


class GlesTexture(Closing):
    """An RGBA texture of this size in its own context, and its EGLImage. Use it only in the thread that makes it.

    ``EngineUnfit`` if this EGL has no OpenGL ES without a window, or no images of textures; ``DeviceError`` if EGL
    failed.
    """

    def __init__(self, display: EglDisplay, width: int, height: int) -> None:
        display.require(_NEEDED)
        self._display = display
        self._egl = display.egl
        self._size = (width, height)
        self.image = 0
        self._context = self._made_context()
        self._texture, self._frame = _U(), _U()
        with undone_by(self.close):
            self._egl.call("eglMakeCurrent", display.handle, None, None, self._context)
            self._make_texture()
            wanted = attributes()
            arguments = (display.handle, self._context, _TEXTURE_IMAGE, self._texture.value, wanted)
            self.image = int(self._egl.call("eglCreateImageKHR", *arguments))

    def write(self, pixels: NDArray[np.uint8]) -> None:
        """Write all pixels, and wait until they are written."""
        width, height = self._size
        self._gl("glBindTexture", _TEXTURE_2D, self._texture)
        data = np.ascontiguousarray(pixels)
        # Do not use glTexImage2D: the texture and its image would then have different memory.
        self._gl("glTexSubImage2D", _TEXTURE_2D, 0, 0, 0, width, height, _RGBA, _BYTES, data.ctypes.data)
        self._gl("glFinish")

    def read(self) -> NDArray[np.uint8]:
        """Return all pixels as OpenGL sees them."""
        width, height = self._size
        found = np.zeros((height, width, 4), np.uint8)
        self._gl("glFinish")
        self._gl("glReadPixels", 0, 0, width, height, _RGBA, _BYTES, found.ctypes.data)
        return found

    def close(self) -> None:
        """Destroy the image, the texture and the context. Idempotent."""
        display, image, context = self._display.handle, self.image, self._context
        self.image = self._context = 0
        if image:
            self._egl.call("eglDestroyImageKHR", display, image)
        if context:
            self._gl("glDeleteFramebuffers", 1, ctypes.byref(self._frame))
            self._gl("glDeleteTextures", 1, ctypes.byref(self._texture))
            self._egl.call("eglMakeCurrent", display, None, None, None)
            self._egl.call("eglDestroyContext", display, context)

    def _made_context(self) -> int:
        self._egl.call("eglBindAPI", _OPENGL_ES_API)
        config, count = _P(), _I()
        wanted = attributes((_SURFACE_TYPE, 0), (_RENDERABLE_TYPE, _ES2))
        self._egl.call("eglChooseConfig", self._display.handle, wanted, ctypes.byref(config), 1, ctypes.byref(count))
        if not count.value:
            raise EngineUnfit("this EGL has no configuration for OpenGL ES 2", "Install the driver's OpenGL ES.")
        wanted = attributes((_CONTEXT_VERSION, 2))
        return int(self._egl.call("eglCreateContext", self._display.handle, config, None, wanted))

    def _make_texture(self) -> None:
        width, height = self._size
        self._gl("glGenTextures", 1, ctypes.byref(self._texture))
        self._gl("glBindTexture", _TEXTURE_2D, self._texture)
        self._gl("glTexParameteri", _TEXTURE_2D, _MIN_FILTER, _NEAREST)
        self._gl("glTexImage2D", _TEXTURE_2D, 0, _RGBA, width, height, 0, _RGBA, _BYTES, None)
        self._gl("glGenFramebuffers", 1, ctypes.byref(self._frame))
        self._gl("glBindFramebuffer", _FRAMEBUFFER, self._frame)
        self._gl("glFramebufferTexture2D", _FRAMEBUFFER, _COLOUR, _TEXTURE_2D, self._texture, 0)
        if self._gl("glCheckFramebufferStatus", _FRAMEBUFFER) != _COMPLETE:
            raise EngineUnfit("OpenGL ES cannot read an RGBA texture here", "Install the driver's OpenGL ES.")

    def _gl(self, name: str, *arguments: object) -> Any:
        return self._egl.function(name, *_FUNCTIONS[name])(*arguments)

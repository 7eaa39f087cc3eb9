"""CUDA's descriptions of pictures for EGL, and FFmpeg's names for these pictures. Only pure functions and values.

Source: cuda.h, CUeglColorFormat, whose comments name the bytes of a word from its upper end: "ARGB ... BGRA byte
ordering" is FFmpeg's bgra. Formats of two 8-bit planes change their name between a producer and its consumer: a frame
presented as YUV420_SEMIPLANAR arrives as YVU420_SEMIPLANAR and the other way round, with the same bytes (driver
580.159.04 on an H100; formats of 10 and 12 bits keep their names). So both names are taken to mean Cb before Cr, the
usual order.
"""

from dataclasses import dataclass
from typing import Final

from av.video.format import VideoFormat as PixelFormat

from ....errors import Unsupported
from ...media.values import Colour
from ...surfaces.device_frame import DevicePlane
from ...surfaces.formats import SurfaceFormat, SurfaceLayout, surface_format

_LIMITED, _FULL = 1, 2
_BT709, _BT2020 = Colour(_LIMITED, 1, 1, 1), Colour(_LIMITED, 9, 14, 9)
_UNKNOWN, _EXTENDED = Colour(), Colour(_FULL)
_CODES_OF: Final = {
    _UNKNOWN: {
        "yuv420p": (0,),
        "nv12": (1, 21),
        "yuv422p": (2,),
        "nv16": (3, 20),
        "bgr24": (4,),
        "rgb24": (5,),
        "bgra": (6,),
        "abgr": (7,),
        "gray": (82, 8),  # CUDA refuses to present L (8) (measured)
        "yuv444p": (10,),
        "nv24": (11, 19),
        "rgba": (14,),
        "argb": (15,),
        "p010le": (23,),
        "p012le": (25,),
        "p210le": (94,),
    },
    _EXTENDED: {"yuv444p": (33,), "yuv422p": (34,), "yuv420p": (35,), "nv16": (37, 43), "nv12": (38, 44)},
    _BT2020: {"nv12": (83, 84), "yuv420p": (85,), "p010le": (92,), "p210le": (93,)},
    _BT709: {"nv12": (87, 88), "yuv420p": (89,), "p010le": (91,), "p210le": (95,)},
}
"""Codes of CUeglColorFormat, by stated colours and FFmpeg's format name; producers use the first code."""
_FORMATS: Final = {
    code: (name, colour) for colour, names in _CODES_OF.items() for name, codes in names.items() for code in codes
}
_CODES: Final = {name: codes[0] for name, codes in _CODES_OF[_UNKNOWN].items()}
_SURFACES: Final = {
    "nv12": "yuv420p",
    "p010le": "yuv420p10le",
    "p012le": "yuv420p12le",
    "nv16": "yuv422p",
    "p210le": "yuv422p10le",
    "yuv444p": "yuv444p",
}
"""For each format, FFmpeg's planar format of the same samples, if the device has pictures of that layout."""
_NAMES: Final = {
    (found.layout, found.bits): name for name, planar in _SURFACES.items() if (found := surface_format(planar))
}
_ADVICE: Final = "docs/egl.md lists the formats of streams and images."


@dataclass(frozen=True, slots=True)
class EglLayout:
    """The size and the format of an EGL frame, which determine its planes."""

    width: int  #: in samples
    height: int  #: in samples
    pix_fmt: str  #: FFmpeg's name of the format with these planes in this order

    def __str__(self) -> str:
        """Return the size and format as text for messages."""
        return f"{self.width}x{self.height} {self.pix_fmt}"

    @property
    def sample_bytes(self) -> int:
        """How many bytes a sample takes."""
        return -(-PixelFormat(self.pix_fmt, self.width, self.height).components[0].bits // 8)

    @property
    def channels(self) -> int:
        """How many samples of the first plane belong to one pixel."""
        return sum(1 for each in PixelFormat(self.pix_fmt, self.width, self.height).components if each.plane == 0)

    @property
    def code(self) -> int:
        """The number of the format (CUeglColorFormat)."""
        return _CODES[self.pix_fmt]

    @property
    def plane_sizes(self) -> tuple[tuple[int, int], ...]:
        """The (bytes of a row, rows) of each plane."""
        parts = PixelFormat(self.pix_fmt, self.width, self.height).components
        item = self.sample_bytes
        return tuple(
            (
                sum(item * each.width for each in parts if each.plane == plane),
                next(each.height for each in parts if each.plane == plane),
            )
            for plane in sorted({each.plane for each in parts})
        )

    @property
    def size_bytes(self) -> int:
        """The size of a picture without padding."""
        return sum(row_bytes * rows for row_bytes, rows in self.plane_sizes)

    @property
    def surface(self) -> tuple[SurfaceFormat, str] | None:
        """The surface format for this layout, and FFmpeg's name of the planar form; None if there is no such format."""
        planar = _SURFACES.get(self.pix_fmt)
        found = surface_format(planar)
        held = found is not None and found.holds(self.width, self.height)
        return (found, planar) if found is not None and planar is not None and held else None

    def planes(self, address: int) -> tuple[DevicePlane, ...]:
        """Return the planes of a picture without padding that begins at ``address``."""
        found = []
        for row_bytes, rows in self.plane_sizes:
            found.append(DevicePlane(address, row_bytes, row_bytes, rows))
            address += row_bytes * rows
        return tuple(found)


def layout_of(width: int, height: int, pix_fmt: str) -> EglLayout:
    """Return the layout of pictures to present or import; ``Unsupported`` if EGL has no such format or size."""
    if pix_fmt not in _CODES:
        message = f"{pix_fmt} is not a format of EGL frames"
        raise Unsupported(message, f"Use one of {', '.join(sorted(_CODES))}.")
    found = EglLayout(width, height, pix_fmt)
    parts = PixelFormat(pix_fmt, 16, 16).components
    across, down = 16 // min(each.width for each in parts), 16 // min(each.height for each in parts)
    if width < 1 or height < 1 or width % across or height % down:
        raise Unsupported(f"an EGL frame of {pix_fmt} cannot be {width}x{height}", _ADVICE)
    return found


def stated_layout(code: int, width: int, height: int, pix_fmt: str | None) -> tuple[EglLayout, Colour]:
    """Return a frame's layout and colours; ``Unsupported`` if the format (or ``pix_fmt``, if given) is unknown here."""
    name, colour = _FORMATS.get(code, ("", _UNKNOWN))
    if not (pix_fmt or name):
        raise Unsupported(f"CUDA's EGL format {code} is not supported", _ADVICE)
    return layout_of(width, height, pix_fmt or name), colour


def surface_name(layout: SurfaceLayout, bits: int) -> str:
    """Return the EGL format name of a device picture; ``Unsupported`` if EGL has no such format."""
    try:
        return _NAMES[layout, bits]
    except KeyError:
        raise Unsupported(f"EGL has no {layout.value} frames with {bits} bits", _ADVICE) from None

"""Finds the size of a track's pictures from the headers of its access points, without decoding.

Sources: ITU-T H.264 (08/2021) sections 7.3.2.2 and 7.3.3; ITU-T H.265 (08/2021) sections 7.3.2.3.1 and 7.3.6.1.
"""

from typing import Final

from ..media.values import PictureSize
from .access_points import BitReader, nal_units
from .av1 import av1_key_size, av1_sequence
from .packet_headers import unit_kinds, vp8_size
from .parameter_sets import configuration_units, hevc_layer, is_sequence_set, sequence_set_size
from .vp9 import vp9_frames

_LONGEST_SIDE: Final = 16_888
"""The longest side at any level of these codecs (H.265 section A.4.2: the square root of 8 times MaxLumaPs)."""
_AV1C: Final = b"\x81"
_AV1C_HEAD_BYTES: Final = 4
_H264_PICTURE_SET, _HEVC_PICTURE_SET = 8, 34
_H264_SLICES: Final = frozenset({1, 2, 5})
_HEVC_SLICES, _HEVC_IRAPS = range(32), range(16, 24)
_HEAD_BYTES: Final = 16


class PictureSizes:
    """Finds the picture sizes at a track's access points, in demux order; ``codec`` is FFmpeg's name of the codec."""

    def __init__(self, codec: str, extradata: bytes) -> None:
        self._codec = codec
        self._hevc = codec == "hevc"
        self._extradata = extradata
        self._sizes: dict[int, PictureSize] = {}
        self._sets: dict[int, bytes] = {}
        # The last access point's sequence parameter set (b"" if unknown) and NAL units, for H.264 and HEVC.
        self.sequence_set = b""
        self.units: list[bytes] = []
        self._of_picture_set: dict[int, int] = {}
        self._sequence = av1_sequence(extradata[_AV1C_HEAD_BYTES:]) if extradata[:1] == _AV1C else None
        if codec in ("h264", "hevc"):
            self._configure(extradata)

    def size(self, data: bytes, new_extradata: bytes = b"") -> PictureSize | None:
        """Return the picture size at an access point, after any configuration change; None if not stated."""
        found = self._stated(data, new_extradata)
        return None if found is None or max(found.width, found.height) > _LONGEST_SIDE else found

    def _stated(self, data: bytes, new_extradata: bytes) -> PictureSize | None:
        if self._codec == "vp8":
            size = vp8_size(data)
            return None if size is None else PictureSize(*size)
        if self._codec == "vp9":
            return _vp9_size(data)
        if self._codec == "av1":
            self._sequence = av1_sequence(data) or self._sequence
            return None if self._sequence is None else av1_key_size(data, self._sequence)
        if self._codec not in ("h264", "hevc"):
            return None
        if new_extradata:
            self._extradata = new_extradata
            self._configure(new_extradata)
        self.units = list(nal_units(data, self._extradata, hevc=self._hevc))
        return self._unit_size(self.units)

    def _configure(self, extradata: bytes) -> None:
        for unit in configuration_units(extradata, hevc=self._hevc):
            self._take(unit)

    def _unit_size(self, units: list[bytes]) -> PictureSize | None:
        slices = _HEVC_SLICES if self._hevc else _H264_SLICES
        for unit, kind in zip(units, unit_kinds(units, hevc=self._hevc), strict=True):
            if kind not in slices:
                self._take(unit)
            elif not self._hevc or not hevc_layer(unit):
                return self._size_of_slice(unit, kind)
        return None

    def _take(self, unit: bytes) -> None:
        if self._hevc and hevc_layer(unit):
            return
        if is_sequence_set(unit, hevc=self._hevc):
            if (found := sequence_set_size(unit, hevc=self._hevc)) is not None:
                self._sizes[found[0]], self._sets[found[0]] = found[1], unit
        elif unit_kinds([unit], hevc=self._hevc)[0] == (_HEVC_PICTURE_SET if self._hevc else _H264_PICTURE_SET):
            numbers = _numbers(unit, 2, header_bytes=2 if self._hevc else 1)
            if numbers is not None:
                self._of_picture_set[numbers[0]] = numbers[1]

    def _size_of_slice(self, unit: bytes, kind: int) -> PictureSize | None:
        if self._hevc:  # first_slice_segment_in_pic_flag, no_output_of_prior_pics_flag
            numbers = _numbers(unit, 1, header_bytes=2, flags=2 if kind in _HEVC_IRAPS else 1)
        else:  # first_mb_in_slice, slice_type
            numbers = _numbers(unit, 3, header_bytes=1)
        if numbers is None:
            return None
        sequence = self._of_picture_set.get(numbers[-1], -1)
        self.sequence_set = self._sets.get(sequence, b"")
        return self._sizes.get(sequence)


def _numbers(unit: bytes, count: int, *, header_bytes: int, flags: int = 0) -> list[int] | None:
    """Read ``count`` Exp-Golomb numbers of a NAL unit, after its header and flags; None if the unit is truncated."""
    try:
        reader = BitReader(unit[header_bytes : header_bytes + _HEAD_BYTES])
        reader.skip(flags)
        return [reader.ue() for _ in range(count)]
    except EOFError:
        return None


def _vp9_size(data: bytes) -> PictureSize | None:
    """Return the size of the last layer, which is the shown frame; this layer may reuse an earlier layer's size."""
    stated = shown = None
    for frame in vp9_frames(data):
        stated = frame.size or stated
        shown = stated if frame.is_shown else shown
    return None if shown is None and stated is None else PictureSize(*(shown or stated or (0, 0)))

"""Checks the properties of every picture.

Where a property of an output picture differs from the source picture's, the samples must have been converted: they must
match the converted source picture better than the unconverted one.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np
from av.video.frame import VideoFrame
from av.video.reformatter import VideoReformatter
from numpy.typing import NDArray

from ...actors.decode.describe import frame_side_data
from ...actors.media.av_abi import frame_structure
from ...actors.media.values import Colour
from .pictures import MATRICES, comparable_format, conformed, is_rgb
from .steps import padded, planes_of
from .verdict import Check, check, not_applicable

_Planes: TypeAlias = Sequence[NDArray[np.float32]]

_MESSAGE: Final = "HDR10_PLUS_MESSAGE"
"""A picture's HDR10+ messages; ``DYNAMIC_HDR_PLUS`` has their values, as FFmpeg reads them."""
CARRIED: Final = {
    "A53_CC": "captions",
    "AFD": "afd",
    "DYNAMIC_HDR_PLUS": "hdr10plus",
    _MESSAGE: "hdr10plus-message",
    "DOVI_RPU_BUFFER": "dovi-rpu",
}
"""FFmpeg's name of side data, and the name of its check."""
_INTERLACED, _TOP_FIRST = 1 << 3, 1 << 4  # ``AV_FRAME_FLAG_INTERLACED`` and ``AV_FRAME_FLAG_TOP_FIELD_FIRST``
_RESERVED: Final = frozenset({0, 2, 3})
UNSTATED: Final = {"range": frozenset({0}), "matrix": frozenset({2, 3}), "primaries": _RESERVED, "transfer": _RESERVED}
"""H.273 values that mean "not stated". For the matrix, 0 is left out, because it is the matrix of RGB."""
_LIMITED = 1
# the properties that the scaler converts, by PyAV's names
_CONVERTED: Final = {"range": "color_range", "matrix": "colorspace"}
_ONE_CURVE: Final = frozenset({1, 6, 14, 15})  # H.273 transfer functions with the same curve
_SHAPE_NEAR: Final = Fraction(1, 50)
_EVIDENCE: Final = 1.0  # the least mean squared difference, in 8-bit steps, that tells two possible pictures apart
_SHOWN: Final = 8  # the most pictures that a check lists

Reference: TypeAlias = Callable[[VideoFrame], VideoFrame]
"""Makes the expected output picture from a source picture, in the format in which pictures are compared."""


@dataclass(frozen=True, slots=True)
class PictureTags:
    """The properties of one picture; colours are numbers of H.273."""

    range: int
    matrix: int
    primaries: int
    transfer: int
    samples: Fraction  # sample aspect ratio
    shape: Fraction  # display aspect ratio

    @classmethod
    def of(cls, frame: VideoFrame) -> "PictureTags":
        """Read the properties of a decoded picture."""
        stated = frame_structure(frame).sample_aspect_ratio
        samples = Fraction(stated.num, stated.den) if stated.num > 0 and stated.den > 0 else Fraction(1)
        return cls(
            range=int(frame.color_range),
            matrix=int(frame.colorspace),
            primaries=int(frame.color_primaries),
            transfer=int(frame.color_trc),
            samples=samples,
            shape=samples * frame.width / frame.height,
        )


def _carried(frame: VideoFrame) -> dict[str, bytes]:
    """Return a picture's side data, without HDR10+ values that FFmpeg kept from an earlier sequence."""
    found = frame_side_data(frame)
    message = frame.opaque[1] if isinstance(frame.opaque, list) else None
    if message == b"":
        found.pop("DYNAMIC_HDR_PLUS", None)
    return found | ({_MESSAGE: message} if message else {})


@dataclass(slots=True)
class _Side:
    first: PictureTags | None = None
    stated: Colour = field(default_factory=Colour)  # the file's colours, which override those of the first picture
    kinds: Counter[str] = field(default_factory=Counter)  # how many pictures have side data of each kind
    formats: dict[str, int] = field(default_factory=dict)  # pixel formats, and the first picture of each
    # The values that pictures state, by field of ``PictureTags``.
    seen: dict[str, set[Any]] = field(default_factory=lambda: {name: set() for name in (*UNSTATED, "shape")})
    fields: list[bool | None] = field(default_factory=list)  # whether the top field is first; None for progressive

    def take(self, frame: VideoFrame, number: int) -> tuple[PictureTags, dict[str, bytes]]:
        tags, carried = PictureTags.of(frame), _carried(frame)
        self.first = self.first or tags
        for name, values in self.seen.items():
            values.add(tags.shape if name == "shape" else self.value(tags, name))
        self.kinds.update(carried.keys())
        self.formats.setdefault(frame.format.name, number)
        flags = frame_structure(frame).flags
        self.fields.append(bool(flags & _TOP_FIRST) if flags & _INTERLACED and frame.interlaced_frame else None)
        return tags, carried

    def value(self, tags: PictureTags, name: str) -> int:
        """Return a colour value of a picture: the file's value, unless the picture differs from the first picture."""
        own: int = getattr(tags, name)
        first = own if self.first is None else getattr(self.first, name)
        stated: int = getattr(self.stated, name)
        return stated if own == first and stated not in UNSTATED[name] else own


@dataclass(frozen=True, slots=True)
class _Pair:
    number: int
    was: PictureTags
    now: PictureTags
    source: VideoFrame
    output: VideoFrame


@dataclass(slots=True)
class StatedPictures:
    """Compares the properties of every picture. Call ``take`` for each pair in order, then ``checks``."""

    source: _Side = field(default_factory=_Side)
    output: _Side = field(default_factory=_Side)
    # pictures that fail, by the last word of the check's name
    wrong: dict[str, list[int]] = field(default_factory=dict)
    altered: Counter[str] = field(default_factory=Counter)  # pictures whose side data differs from that of the source
    _reformatter: VideoReformatter = field(default_factory=VideoReformatter)

    def take(
        self, source: VideoFrame, output: VideoFrame, steps: Reference | None, *, toned: bool
    ) -> VideoFrame | None:
        """Take a pair of pictures; return the source picture between bars if the output shows it so, otherwise None.

        ``steps`` makes the reference if the report has steps. With ``toned``, colours were meant to change.
        """
        number = len(self.output.fields)
        was, carried = self.source.take(source, number)
        now, kept = self.output.take(output, number)
        self.altered.update(
            kind for kind in CARRIED.keys() & carried.keys() & kept.keys() if carried[kind] != kept[kind]
        )
        if is_rgb(source.format) or is_rgb(output.format):
            return None
        pair = _Pair(number, was, now, source, output)
        for name in () if toned else UNSTATED:
            self._judge_colour(name, pair, steps or (lambda frame: self._conformed(frame, output)))
        if steps is not None:
            return None
        if None not in (self.source.fields[-1], self.output.fields[-1]) and source.height != output.height:
            self._judge_fields(pair)
        return self._judge_shape(pair)

    def _conformed(self, frame: VideoFrame, output: VideoFrame) -> VideoFrame:
        size, pix_fmt = (output.width, output.height), comparable_format(output.format.name)
        return conformed(self._reformatter, frame, output, size, pix_fmt)

    def _judge_colour(self, name: str, pair: _Pair, reference: Reference) -> None:
        before, after = self.source.value(pair.was, name), self.output.value(pair.now, name)
        if _alike(name, before, after):
            return
        if name not in _CONVERTED or (name == "matrix" and not {before, after} <= MATRICES.keys()):
            self._note(name, pair.number)
            return
        # A picture that states no value has the container's value, or limited range.
        setattr(pair.source, _CONVERTED[name], before or _LIMITED)
        converted = _planes(reference(pair.source))
        # Relabel the output and not the source, whose label the scaler ignores for yuvj formats.
        with _relabelled(pair.output, _CONVERTED[name], before or _LIMITED):
            kept = _planes(reference(pair.source))
        shown = self._conformed(pair.output, pair.output)
        if _squared(kept, converted) > _EVIDENCE and _is_nearer(shown, kept, converted):
            self._note(name, pair.number)

    def _judge_fields(self, pair: _Pair) -> None:
        """Record an interlaced picture that was scaled as if it were progressive."""
        apart = _planes(self._conformed(pair.source, pair.output))
        structure = frame_structure(pair.source)
        flags = structure.flags
        structure.flags = flags & ~_INTERLACED
        mixed = _planes(self._conformed(pair.source, pair.output))
        structure.flags = flags
        shown = self._conformed(pair.output, pair.output)
        if _squared(apart, mixed) > _EVIDENCE and _is_nearer(shown, mixed, apart):
            self._note("interlaced", pair.number)

    def _judge_shape(self, pair: _Pair) -> VideoFrame | None:
        shape = pair.was.shape
        if abs(shape / pair.now.shape - 1) <= _SHAPE_NEAR:
            return None
        stretched = self._conformed(pair.source, pair.output)
        fitted = self._fitted(pair.source, pair.output, shape / pair.now.shape)
        if _is_nearer(self._conformed(pair.output, pair.output), _planes(fitted), _planes(stretched)):
            return fitted
        self._note("aspect", pair.number)
        return None

    def _fitted(self, source: VideoFrame, output: VideoFrame, wider: Fraction) -> VideoFrame:
        """Return the source picture between black bars; ``wider`` is its display shape divided by the output's."""
        width, height = output.width, output.height
        size = (width, round(height / wider)) if wider > 1 else (round(width * wider), height)
        size = (max(2, size[0] & ~1), max(2, size[1] & ~1))
        inner = conformed(self._reformatter, source, output, size, comparable_format(output.format.name))
        return padded(inner, (width, height), ((width - size[0]) // 2 & ~1, (height - size[1]) // 2 & ~1), output)

    def _note(self, name: str, number: int) -> None:
        self.wrong.setdefault(name, []).append(number)

    def checks(self, container_top_first: Sequence[bool | None], *, is_damaged: bool = False) -> Iterator[Check]:
        """Yield the checks; ``container_top_first`` is the field order that each of the two containers states.

        With ``is_damaged``, some packets of the source do not decode, and their pictures may have stated fields.
        """
        for name in (*UNSTATED, "aspect"):
            # Values that never change are covered by other checks.
            changes = len(self.source.seen["shape" if name == "aspect" else name]) > 1
            yield _check_pictures(f"pictures.{name}", self.wrong.get(name, []) if changes else [])
        sides = zip((self.source, self.output), container_top_first, strict=True)
        # If no picture states fields, the container decides.
        fields = [side.fields if _has_fields(side.fields) else [first] * len(side.fields) for side, first in sides]
        mixed = self.wrong.get("interlaced", [])
        if is_damaged and not mixed and not _has_fields(fields[0]):
            reason = "packets of the source do not decode, and no other picture states fields"
            yield not_applicable("pictures.interlaced", reason)
        else:
            yield _check_pictures("pictures.interlaced", sorted({*_other_fields(*fields), *mixed}))
        for kind, name in CARRIED.items():
            if self.source.kinds[kind]:
                found = self.output.kinds[kind]
                same = "" if not self.altered[kind] else f", {self.altered[kind]} of them different"
                passed = found == self.source.kinds[kind] and not self.altered[kind]
                expected = f"{self.source.kinds[kind]} pictures with this data"
                yield check(f"metadata.{name}", expected, f"{found}{same}", passed=passed)


def _check_pictures(name: str, wrong: Sequence[int]) -> Check:
    shown = ", ".join(map(str, wrong[:_SHOWN])) + (" ..." if len(wrong) > _SHOWN else "")
    found = f"{len(wrong)} pictures are not: {shown}" if wrong else "all are"
    return check(name, "every picture is as the output states", found, passed=not wrong)


def _has_fields(fields: Sequence[bool | None]) -> bool:
    return any(order is not None for order in fields)


def _other_fields(before: Sequence[bool | None], after: Sequence[bool | None]) -> list[int]:
    """Return the pictures whose fields were lost, swapped or added."""
    if not _has_fields(before):
        return [number for number, order in enumerate(after) if order is not None]
    pairs = enumerate(zip(before, after, strict=False))
    return [number for number, (was, now) in pairs if was is not None and was != now]


def _alike(name: str, before: int, after: int) -> bool:
    """Return whether two values mean the same, or one value is not stated; an unstated range is limited range."""
    if name == "range":
        return (before or _LIMITED) == (after or _LIMITED)
    same = before == after or bool({before, after} & UNSTATED[name])
    if name == "transfer":
        return same or {before, after} <= _ONE_CURVE
    return same or (name == "matrix" and before in MATRICES and MATRICES[before] == MATRICES.get(after))


@contextmanager
def _relabelled(frame: VideoFrame, attribute: str, value: int) -> Iterator[None]:
    own = getattr(frame, attribute)
    setattr(frame, attribute, value)
    try:
        yield
    finally:
        setattr(frame, attribute, own)


def _planes(frame: VideoFrame) -> _Planes:
    """Return a picture's planes in 8-bit steps, with one sample for each block of 2 x 2."""
    scale = 1 << (frame.format.components[0].bits - 8)
    return [plane[::2, ::2].astype(np.float32) / np.float32(scale) for plane in planes_of(frame)]


def _squared(first: _Planes, second: _Planes) -> float:
    return sum(float(np.mean((a - b) ** 2)) for a, b in zip(first, second, strict=True))


def _is_nearer(shown: VideoFrame, first: _Planes, second: _Planes) -> bool:
    planes = _planes(shown)
    return _squared(planes, first) < _squared(planes, second)

"""Defines which numbers a tensor of pictures holds, and in which order."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn, get_args

from ...errors import UsageError
from ..surfaces.scaling import ScaleFilter

Layout = Literal["nchw", "nhwc"]
Element = Literal["uint8", "float16", "float32", "bfloat16"]
Channels = Literal["rgb", "gray"]
Filter = ScaleFilter | Literal["bilinear", "bicubic", "lanczos"]
ELEMENT_BYTES: Final[dict[str, int]] = {"uint8": 1, "float16": 2, "float32": 4, "bfloat16": 2}
_MOST_SIDE: Final = 1 << 15
_ADVICE: Final = "docs/frames.md describes the options of a TensorFormat."
_SIZES: Final = 2
_CROPS: Final = 4
_SINGLE: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFormat:
    """The numbers of a batch's tensor. ``UsageError`` if options contradict one another.

    A picture is cropped and resized, converted to R'G'B' or grey by its own matrix, range and bit depth, and
    normalised. ``plan.py`` defines the arithmetic, which gives the same bits on a device and on the host.
    """

    layout: Layout = "nchw"
    """``nchw``: (pictures, channels, rows, columns); ``nhwc``: channels last."""
    dtype: Element = "uint8"
    """``uint8``: 0 to 255; the others: 0 to 1, then normalised by ``mean`` and ``std``."""
    size: tuple[int, int] | None = None
    """(width, height) after resizing; None means the size of the crop or the picture."""
    crop: tuple[int, int, int, int] | None = None
    """(left, top, width, height) in the picture, taken before resizing."""
    filter: Filter = ScaleFilter.BILINEAR
    """How samples are weighted. All filters are widened when scaling down (antialiased)."""
    mean: Sequence[float] | float | None = None
    """The mean, which is subtracted from values of 0 to 1: one number, or one for each channel."""
    std: Sequence[float] | float | None = None
    """The divisor of values after ``mean`` is subtracted: one number, or one for each channel."""
    colour: Channels = "rgb"
    """Three channels, or one channel of grey."""

    def __post_init__(self) -> None:
        self._set("layout", _one_of("layout", self.layout, get_args(Layout)))
        self._set("dtype", _one_of("dtype", self.dtype, get_args(Element)))
        self._set("colour", _one_of("colour", self.colour, get_args(Channels)))
        self._set("filter", ScaleFilter(_one_of("filter", self.filter, [each.value for each in ScaleFilter])))
        if self.size is not None:
            self._set("size", _whole("size", self.size, _SIZES, least=(1, 1)))
        if self.crop is not None:
            self._set("crop", _whole("crop", self.crop, _CROPS, least=(0, 0, 1, 1)))
        if self.mean is not None:
            self._set("mean", self._numbers("mean", self.mean))
        if self.std is not None:
            stds = self._numbers("std", self.std)
            if min(stds) <= 0:
                _refuse(f"std is {_shown(stds)}, but must be positive")
            self._set("std", stds)

    @property
    def channels(self) -> int:
        """How many channels a picture has."""
        return 1 if self.colour == "gray" else 3

    @property
    def element_bytes(self) -> int:
        """How many bytes a number takes."""
        return ELEMENT_BYTES[self.dtype]

    def window(self, width: int, height: int) -> tuple[int, int, int, int]:
        """Return the used part (left, top, width, height) of a picture; ``UsageError`` if the crop is too large."""
        if self.crop is None:
            return 0, 0, width, height
        left, top, wide, high = self.crop
        if left + wide > width or top + high > height:
            _refuse(f"the crop {_shown(self.crop)} is not inside a picture of {width}x{height}")
        return self.crop

    def target(self, width: int, height: int) -> tuple[int, int]:
        """Return the (width, height) of a picture in the tensor; ``UsageError`` if the crop exceeds the picture."""
        return self.size or self.window(width, height)[2:]

    def shape(self, pictures: int, size: tuple[int, int]) -> tuple[int, int, int, int]:
        """Return the shape of a tensor of pictures of this (width, height)."""
        width, height = size
        if self.layout == "nchw":
            return pictures, self.channels, height, width
        return pictures, height, width, self.channels

    def normalisation(self) -> tuple[tuple[float, float], ...]:
        """Return the (mean, std) of each channel."""
        wide = [self._of_channels(given) for given in (0.0 if self.mean is None else self.mean, self.std or 1.0)]
        return tuple(zip(*wide, strict=True))

    def _of_channels(self, given: Sequence[float] | float) -> tuple[float, ...]:
        numbers = (given,) if isinstance(given, int | float) else tuple(given)
        return numbers * self.channels if len(numbers) == _SINGLE else numbers

    def _numbers(self, name: str, given: object) -> tuple[float, ...]:
        if self.dtype == "uint8":
            _refuse(f"{name} is given for uint8, which is not normalised")
        try:
            numbers = (float(given),) if isinstance(given, int | float) else tuple(map(float, given))  # type: ignore[call-overload]
        except (TypeError, ValueError):
            _refuse(f"{name} is {given!r}, but must be numbers")
        if len(numbers) not in (_SINGLE, self.channels) or not all(map(math.isfinite, numbers)):
            _refuse(f"{name} is {_shown(numbers)}, but must be 1 or {self.channels} finite numbers")
        return numbers

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


def _one_of(name: str, given: Any, known: Any) -> Any:
    if given not in known:
        _refuse(f"{name} is {given!r}, but must be one of {', '.join(known)}")
    return given


def _whole(name: str, given: Any, count: int, least: tuple[int, ...]) -> tuple[int, ...]:
    try:
        found = tuple(int(each) for each in given)
        exact = found == tuple(given)
    except (TypeError, ValueError, OverflowError):
        found, exact = (), False
    if not exact or len(found) != count:
        _refuse(f"{name} is {given!r}, but must be {count} whole numbers")
    if any(value < low or value > _MOST_SIDE for value, low in zip(found, least, strict=True)):
        _refuse(f"{name} is {_shown(found)}: sides must be 1 to {_MOST_SIDE}, and places not negative")
    return found


def _shown(numbers: tuple[float, ...]) -> str:
    return ", ".join(f"{each:g}" for each in numbers)


def _refuse(message: str) -> NoReturn:
    raise UsageError(f"tensor format: {message}", _ADVICE)

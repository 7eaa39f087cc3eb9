"""Makes tensors of pictures on the host, by the arithmetic of ``plan``, directly in the tensor's memory."""

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from ...errors import Unsupported, UsageError
from ..media.values import Colour
from ..surfaces.frames import Frame, plane_arrays
from .host_arithmetic import Arithmetic
from .host_memory import Array, scratch
from .plan import siting, tensor_plan
from .sample_places import SamplePlaces, sample_places, stand_in
from .swscale_arithmetic import SwscaleArithmetic
from .tensor_format import TensorFormat
from .tensor_maker import FrameGroup, TensorMaker
from .tensor_memory import STORED, HostTensor, TensorMemory, host_target

_ALONE: Final = 2
"""The number of axes of a plane with one channel."""
_HALF_BITS: Final = 16
_BEFORE_HALF: Final = 0x7FFF
_BYTE: Final = 255


def to_tensor(
    frames: FrameGroup,
    format_: TensorFormat,
    out: object = None,
    places: Sequence[int] | None = None,
    *,
    pool: Executor | None = None,
    at_once: int = 1,
    memory: TensorMemory | None = None,
) -> object:
    """Return a tensor of frames on the host; if ``out`` is given, frames are written there, and ``out`` is returned.

    ``places`` has the place of each frame; None means 0, 1, 2 ... ``pool`` makes up to ``at_once`` pictures in
    parallel. New tensors are made in ``memory``. If several frames fail, the first frame's error is raised.

    Raises:
            UsageError: there is no frame, the crop exceeds a frame, sizes differ without ``size``, or ``out`` does not
                fit.
            Unsupported: a frame's samples or its matrix have no formula.
    """
    sizes: set[tuple[int, int]] = set()
    target: HostTensor | None = None
    filled: deque[Future[None]] = deque()
    new = np.empty if memory is None else memory.empty
    try:
        for place, frame in zip(range(len(frames)) if places is None else places, frames, strict=True):
            sizes.add(format_.target(frame.width, frame.height))
            size = _only(sizes)
            target = target or host_target(out, format_, format_.shape(len(frames), size), new)
            filling = partial(fill, target.array[place], frame.to_video_frame(), frame.format.colour, format_)
            if pool is None:
                filling()
                continue
            filled.append(pool.submit(filling))
            if len(filled) > at_once:
                filled.popleft().result()
    finally:
        wait(filled)
    for each in filled:
        each.result()
    return target.given if target else _only(sizes)


class HostTensorMaker(TensorMaker):
    """Makes tensors on the host. This starts ``threads`` threads, which make pictures in parallel; 1 starts none."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._memory = TensorMemory()
        self._pool = ThreadPoolExecutor(threads, "codecfleet-tensors") if threads > 1 else None

    def make(
        self, frames: FrameGroup, format_: TensorFormat, out: object = None, places: Sequence[int] | None = None
    ) -> object:
        """Return the tensor, made by ``to_tensor`` with this maker's threads and memory."""
        return to_tensor(frames, format_, out, places, pool=self._pool, at_once=self._threads, memory=self._memory)

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()
        self._memory.close()


def common_size(frames: Sequence[Frame], format_: TensorFormat) -> tuple[int, int]:
    """Return the (width, height) of all frames in the tensor; ``UsageError`` without frames or with several sizes."""
    return _only({format_.target(frame.width, frame.height) for frame in frames})


def _only(sizes: set[tuple[int, int]]) -> tuple[int, int]:
    if len(sizes) != 1:
        shown = ", ".join(f"{width}x{height}" for width, height in sorted(sizes)) or "no frame"
        raise UsageError(f"a tensor holds pictures of one size, not {shown}", "Give TensorFormat a size.")
    return next(iter(sizes))


def fill(slot: NDArray[Any], picture: VideoFrame, colour: Colour, format_: TensorFormat) -> None:
    """Write a picture into its place in a tensor, in the order of ``format_.layout``. Thread-safe.

    bfloat16 is written as the bits of ``uint16``. ``UsageError`` and ``Unsupported`` as for ``to_tensor``.
    """
    places = sample_places(picture.format.name)
    if places is None:
        name = picture.format.name
        try:
            picture = picture.reformat(format=stand_in(name))
        except (ValueError, OSError) as error:
            message = f"frames of {name} cannot be converted for a tensor: {error}"
            raise Unsupported(message, "Ask for another pix_fmt.") from error
        places = sample_places(picture.format.name)
        assert places is not None, "stand-ins have places"  # noqa: S101
    arithmetic = _prepared(places, (picture.width, picture.height), colour, format_)
    planes = plane_arrays(picture)
    samples = [
        planes[plane] if planes[plane].ndim == _ALONE else planes[plane][:, :, place]
        for plane, place in places.channels
    ]
    channels_first = slot if format_.layout == "nchw" else slot.transpose(2, 0, 1)
    if isinstance(arithmetic, SwscaleArithmetic):
        arithmetic.write(samples, channels_first, _table(format_))
        return
    scales = normalising(format_, arithmetic.plan.largest)
    for rows, values in arithmetic.bands(samples, places.shift):
        write(channels_first[:, rows], values, scales, format_)


@lru_cache(maxsize=32)
def _table(format_: TensorFormat) -> Array | None:
    """Return the tensor's numbers (3, 256) for all values of 8 bits; None for ``uint8``."""
    if (scales := normalising(format_, _BYTE)) is None:
        return None
    table = np.empty((format_.channels, 1, _BYTE + 1), STORED[format_.dtype])
    write(table, np.arange(_BYTE + 1.0)[None, None], scales, format_)
    return table[:, 0]


@lru_cache(maxsize=32)
def _prepared(
    places: SamplePlaces, size: tuple[int, int], colour: Colour, format_: TensorFormat
) -> Arithmetic | SwscaleArithmetic:
    """Return the arithmetic of ``tensor_plan``; raises as that function does."""
    plan = tensor_plan(places, size, colour, format_)
    if not plan.by_swscale:
        return Arithmetic(plan)
    return SwscaleArithmetic(plan, format_.window(*size), *siting(places, colour))


def normalising(format_: TensorFormat, largest: int) -> NDArray[np.float64] | None:
    """Return (factor, number to add) for each channel's values; None for ``uint8``."""
    if format_.dtype == "uint8":
        return None
    # Not -mean / std: adding a negative zero would keep a negative zero.
    return np.array([(1 / (largest * std), 0.0 - mean / std) for mean, std in format_.normalisation()])


def write(target: NDArray[Any], values: Array, scales: NDArray[np.float64] | None, format_: TensorFormat) -> None:
    """Scale integers (channels, rows, columns), and write them in the format's type; one channel is copied to all."""
    if scales is None:
        np.copyto(target, values, casting="unsafe")
        return
    values = np.multiply(values, scales[:, 0, None, None], out=scratch("scaled", target.shape, np.float64))
    values += scales[:, 1, None, None]
    with np.errstate(over="ignore", under="ignore"):
        if format_.dtype == "float32":
            np.copyto(target, values, casting="unsafe")
        elif format_.dtype == "float16":
            np.copyto(target, values.astype(np.float32), casting="unsafe")
        else:
            bits = values.astype(np.float32).view(np.uint32)
            bits += _BEFORE_HALF + ((bits >> _HALF_BITS) & 1)
            np.copyto(target, bits >> _HALF_BITS, casting="unsafe")

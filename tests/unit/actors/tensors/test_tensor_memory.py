"""Tensors into the caller's memory, and out by DLPack: without a copy, and never where they do not fit."""

import gc
from typing import Any

import numpy as np
import pytest

from codecfleet import UsageError
from codecfleet.actors.media.values import Colour
from codecfleet.actors.surfaces.frames_dlpack import BFLOAT, described
from codecfleet.actors.surfaces.idle_memory import IdleMemory
from codecfleet.actors.tensors.frame_batch import batch_of
from codecfleet.actors.tensors.host_tensor import to_tensor
from codecfleet.actors.tensors.tensor_format import TensorFormat
from codecfleet.actors.tensors.tensor_memory import HostBfloat16, TensorMemory

from .tensor_reference import frame_of, noise

FRAMES = [frame_of(noise("yuv420p", (32, 24), seed), Colour()) for seed in range(2)]
SIZE = (10, 6)


class Foreign:
    """Another library's tensor on the host."""

    def __init__(self, array: Any, *, versioned: bool = True) -> None:
        self.array = array
        self.versioned = versioned

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the host's."""
        return 1, 0

    def __dlpack__(self, **asked: Any) -> object:
        """Return a capsule of the newer or the older kind."""
        if not self.versioned:
            if asked:
                raise TypeError("an older exporter takes no such argument")
            return self.array.__dlpack__()
        return self.array.__dlpack__(**asked)


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["array", "steps", "foreign", "old"])
def test_callers_memory_is_filled(dtype: str, kind: str) -> None:
    """An array, part of one, and another library's tensor get what a new tensor holds, and nothing beside."""
    format_ = TensorFormat(size=SIZE, dtype=dtype)  # type: ignore[arg-type]
    new = to_tensor(FRAMES, format_)
    bits = new.bits if isinstance(new, HostBfloat16) else new
    room = np.zeros((2, 3, 8, 12), dtype=bits.dtype)
    mine = room[:, :, 1:7, 1:11] if kind == "steps" else np.zeros_like(bits)
    out: Any = mine if kind in ("array", "steps") else Foreign(mine, versioned=kind == "foreign")
    assert to_tensor(FRAMES, format_, out) is out
    assert np.array_equal(mine, bits)
    if kind == "steps":
        room[:, :, 1:7, 1:11] = 0
        assert not room.any()


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (np.zeros((2, 3, 10, 6), np.uint8), "out= has the shape 2x3x10x6, but the tensor has 2x3x6x10"),
        (np.zeros((2, 3, 6, 10), np.float32), "does not hold uint8"),
        (np.zeros((2, 3, 6, 10), np.int8), "does not hold uint8"),
        (np.zeros((2, 3, 6, 10), np.uint8)[:, :, ::-1], "reverse order"),
        (np.lib.stride_tricks.as_strided(np.zeros(400, np.uint8), (2, 3, 6, 10), (60, 60, 10, 1)), "overlap"),
        (np.frombuffer(bytes(360), np.uint8).reshape(2, 3, 6, 10), "out= is read-only"),
        (Foreign(np.zeros((2, 3, 10, 6), np.uint8)), "has the shape"),
        (object(), "is a object, which is not a tensor"),
    ],
)
def test_memory_that_does_not_fit_is_refused(out: Any, words: str) -> None:
    """Before anything is written."""
    with pytest.raises(UsageError, match=words):
        to_tensor(FRAMES, TensorFormat(size=SIZE), out)


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_bfloat16_goes_out_as_such(version: tuple[int, int] | None) -> None:
    """By its own type code, in the same memory, which the capsule keeps."""
    tensor = to_tensor(FRAMES, TensorFormat(size=SIZE, dtype="bfloat16"))
    address, wanted = tensor.bits.ctypes.data, tensor.bits.copy()
    capsule = tensor.__dlpack__(max_version=version)
    found, is_read_only = described(capsule)
    assert (found.code, found.bits, found.data, is_read_only) == (BFLOAT, 16, address, False)
    assert [found.shape[axis] for axis in range(4)] == [2, 3, 6, 10]
    halves = np.asarray(tensor)
    assert halves.dtype == np.float32
    assert np.abs(halves - to_tensor(FRAMES, TensorFormat(size=SIZE, dtype="float32"))).max() <= 2**-9
    del tensor
    gc.collect()
    import ctypes

    assert ctypes.string_at(address, wanted.nbytes) == wanted.tobytes()
    del capsule
    with pytest.raises(ValueError, match="only by a copy"):
        np.asarray(HostBfloat16(wanted), copy=False)


def test_a_batch_is_its_tensor() -> None:
    """By DLPack and as an array, without a copy; with the frames' numbers and times."""
    data = to_tensor(FRAMES, TensorFormat(size=SIZE))
    batch = batch_of(data, FRAMES)
    assert np.shares_memory(np.asarray(batch), data)
    assert np.shares_memory(np.from_dlpack(batch), data)
    assert (batch.shape, len(batch), batch.indices, batch.times_s) == ((2, 3, 6, 10), 2, (0, 0), (0, 0))
    assert not hasattr(batch, "__cuda_array_interface__")


def test_the_memory_of_dropped_tensors_is_used_again() -> None:
    """Not while an array or a view of it is there; by tensors of about the same size."""
    memory = TensorMemory()
    first = memory.empty((2, 3, 4), np.float32)
    place, part = first.ctypes.data, first[1, :, 2:]
    del first
    second = memory.empty((2, 3, 4), np.float32)
    assert second.ctypes.data != place
    assert second.flags.writeable
    del part
    third = memory.empty((5, 3), np.float32)
    assert (third.ctypes.data, third.shape, third.dtype) == (place, (5, 3), np.float32)


def test_later_memory_uses_what_is_left_over() -> None:
    """What is free at the close, and what comes back after it; within the limits, the newest."""
    idle = IdleMemory(most_bytes=100, least_bytes=30)
    memory = TensorMemory(idle)
    arrays = [memory.empty((size,), np.uint8) for size in (40, 60, 101, 29)]
    places = [array.ctypes.data for array in arrays]
    del arrays[0]
    memory.close()
    del memory
    arrays.clear()
    assert [idle.take(size).ctypes.data for size in (60, 40)] == places[1::-1]
    kept = [np.empty(size, np.uint8) for size in (101, 29, 60, 40, 50)]
    for each in kept:
        idle.keep(each)
    assert idle.take(50) is kept[4]
    assert idle.take(40) is kept[3]
    assert not any(idle.take(size) is each for size in (101, 29, 60) for each in kept)


def test_tensors_outlive_their_memory() -> None:
    """A tensor is whole after its maker is gone."""
    memory = TensorMemory()
    tensor = memory.empty((4,), np.uint8)
    tensor[:] = 7
    del memory
    assert tensor.tolist() == [7] * 4

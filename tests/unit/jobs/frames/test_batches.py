"""Batches: the frames of a film or selection in tensors, each frame once, in order."""

import asyncio
import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from codecfleet import FrameBatch, TensorFormat
from codecfleet.actors.tensors.host_tensor import to_tensor
from codecfleet.errors import UsageError

from ..frame_streams import WAYS, source, stream

__all__ = ["source"]


def values(batch: FrameBatch) -> NDArray[Any]:
    """Return a batch's numbers; the fake GPU uses host memory."""
    data: Any = batch.data
    if isinstance(data, np.ndarray):
        return data
    found = np.frombuffer(ctypes.string_at(data.address, data.nbytes), np.float32)
    return found.reshape(data.shape)


SMALL = TensorFormat(size=(32, 24), dtype="float32", mean=0.5, std=0.25)


@pytest.mark.parametrize(("place", "decoder"), WAYS[:3])
def test_batches_hold_what_the_frames_are(source: Path, place: str, decoder: str) -> None:
    """Batches hold all or chosen frames, on host or device, with or without an event loop."""
    with stream(source, decoder="software") as film:
        frames = film[:].read()
    tensors = np.asarray(to_tensor(frames, SMALL))

    def check(batches: list[FrameBatch], chosen: list[int], size: int) -> None:
        assert [len(each) for each in batches[:-1]] == [size] * (len(batches) - 1)
        assert [index for each in batches for index in each.indices] == chosen
        times = [(time_s, shown_s) for each in batches for time_s, shown_s in zip(each.times_s, each.durations_s)]  # noqa: B905
        assert times == [(frames[index].time_s, frames[index].duration_s) for index in chosen]
        made = np.concatenate([values(each) for each in batches])
        assert np.array_equal(made, tensors[chosen])

    async def read() -> None:
        async with stream(source, place=place, decoder=decoder) as film:
            check([each async for each in film.at([5, 1, 5, -1]).batches(3, SMALL)], [5, 1, 5, len(frames) - 1], 3)

    with stream(source, place=place, decoder=decoder) as film:
        batches = film.batches(7, SMALL)
        assert len(batches) == -(-len(frames) // 7)
        for _ in range(2):
            check(list(batches), list(range(len(frames))), 7)
        check(list(film[8:2:-2].batches(2, SMALL)), [8, 6, 4], 2)
    asyncio.run(read())


def test_batches_are_written_into_the_caller_s_memory(source: Path) -> None:
    """With ``out``, each batch overwrites the one before; a shorter last batch fills the first places."""
    with stream(source, decoder="software") as film:
        wanted = [np.array(each) for each in film[:5].batches(2)]
        out = np.zeros_like(wanted[0])
        for batch, tensor in zip(film[:5].batches(2, out=out), wanted, strict=True):
            assert np.array_equal(out[: len(batch)], tensor)
            assert np.shares_memory(batch.data, out)


def test_a_batch_is_read_in_ascending_order(source: Path) -> None:
    """Each picture is decoded once, even if the memory holds only a few of the frames that the batch needs."""
    with stream(source, decoder="software", memory_bytes=10_000) as film:
        single = film[::-1]
        single.read()
        assert single.report.decoded > len(film)
        backwards = film[::-1]
        (batch,) = backwards.batches(len(film), SMALL)
        assert batch.indices == tuple(reversed(range(len(film))))
        assert backwards.report.decoded == len(film)


@pytest.mark.parametrize(("place", "decoder"), WAYS[:3])
def test_batches_of_a_closed_film_end_quietly(source: Path, place: str, decoder: str) -> None:
    """As single frames do, with or without an event loop, even in the middle of a batch."""

    async def read() -> None:
        async with stream(source, place=place, decoder=decoder) as film:
            batches = aiter(film.batches(4, SMALL))
            assert (await anext(batches)).indices == (0, 1, 2, 3)
            await film.aclose()
            assert [each async for each in batches] == []

    with stream(source, place=place, decoder=decoder) as film:
        batches = iter(film.batches(4, SMALL))
        assert next(batches).indices == (0, 1, 2, 3)
        film.__exit__()
        assert list(batches) == []
    asyncio.run(read())


def test_a_batch_of_no_frames_is_refused(source: Path) -> None:
    """Before anything is read."""
    with stream(source) as film, pytest.raises(UsageError, match="at least one frame"):
        film.batches(0)

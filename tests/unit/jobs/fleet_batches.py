"""Batches made by a fleet, compared with those made in this process."""

from collections.abc import AsyncIterator
from typing import Any

import numpy as np

from codecfleet import FrameBatch, TensorFormat
from codecfleet.errors import CodecfleetError

SMALL = TensorFormat(size=(32, 24), dtype="float32", mean=0.5, std=0.25)
CHOICES = {
    "all": lambda film: film[:],
    "backwards": lambda film: film[40:3:-3],
    "repeated": lambda film: film.at([5, 40, 5, -1, 17, 6, 6]),
    "timed": lambda film: film.at_times([0, 0.5, 1.25]),
    "between": lambda film: film.between(0.3, 0.9),
    "none": lambda film: film[5:5],
}
"""Ways to choose frames; all but ``none`` end with a short batch of 4."""
Told = tuple[list[tuple[Any, ...]], CodecfleetError | None]


async def told(batches: AsyncIterator[FrameBatch]) -> Told:
    """Return everything that identifies the batches, and the error that ended them."""
    found: list[tuple[Any, ...]] = []
    try:
        async for batch in batches:
            data = np.asarray(batch.data)
            facts = (batch.indices, batch.times_s, batch.durations_s, type(batch.data), data.shape, data.dtype)
            found.append((*facts, data.tobytes()))
    except CodecfleetError as error:
        return found, error
    return found, None

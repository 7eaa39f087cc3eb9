"""Checks a reader's pictures: compares small grey copies of them with copies of pictures from a plain decode."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["CELLS", "TOLERANCE", "Likeness", "likeness_of", "thumbnails", "true_thumbnails"]

CELLS = 16
"""The rows and columns of a small picture: each cell is the mean brightness of a part."""
TOLERANCE = 3.0
"""Largest mean difference from the true picture, in steps of 255; above it the picture has "other colours"."""
CLEARLY = 0.5
"""A picture counts as wrong if another picture is closer by this much."""
_SAMPLES = 256
_WEIGHTS = np.array([0.299, 0.587, 0.114], np.float32)
_CHANNELS = 3


@dataclass(frozen=True, slots=True)
class Likeness:
    """Numbers of pictures that are wrong (another picture of the film), have other colours, or are missing."""

    wrong: int = 0
    other_colours: int = 0
    missing: int = 0

    @property
    def is_right(self) -> bool:
        """Whether all pictures are right."""
        return self == Likeness()


def thumbnails(
    pictures: NDArray[Any], scale: tuple[Sequence[float], Sequence[float]] | None = None
) -> NDArray[np.float32]:
    """Return luma thumbnails of RGB pictures whose channels come first or last.

    The result's shape is (pictures, ``CELLS``, ``CELLS``).

    ``scale`` is the (mean, standard deviation) of each channel by which values of 0 to 1 were normalised.
    """
    if pictures.shape[1] == _CHANNELS:
        pictures = np.moveaxis(pictures, 1, 3)
    rows, columns = (max(1, side // _SAMPLES) for side in pictures.shape[1:3])
    samples = pictures[:, ::rows, ::columns].astype(np.float32)
    if scale is not None:
        mean, std = (np.array(each, np.float32) for each in scale)
        samples = (samples * std + mean) * 255
    luma = samples @ _WEIGHTS
    for axis in (1, 2):
        edges = np.linspace(0, luma.shape[axis], CELLS + 1).round().astype(int)
        sums = np.add.reduceat(luma, edges[:-1], axis)
        luma = sums / np.diff(edges).reshape((-1, 1) if axis == 1 else (-1,))
    return np.asarray(luma, np.float32)


def true_thumbnails(path: Path) -> NDArray[np.float32]:
    """Return the small pictures of a film, decoded from its beginning by plain PyAV."""
    import av  # noqa: PLC0415 - the peers' interpreter has no PyAV

    with av.open(str(path)) as container:
        track = container.streams.video[0]
        track.thread_type = "AUTO"
        return np.concatenate([thumbnails(frame.to_ndarray(format="rgb24")[None]) for frame in container.decode(track)])


def likeness_of(found: NDArray[np.float32], truth: NDArray[np.float32], numbers: Sequence[int]) -> Likeness:
    """Compare small pictures with those of the true pictures with the same numbers."""
    wrong = other_colours = 0
    for picture, number in zip(found, numbers, strict=False):
        distances = np.abs(truth - picture).mean(axis=(1, 2))
        if distances[number] > distances.min() + CLEARLY:
            wrong += 1
        elif distances[number] > TOLERANCE:
            other_colours += 1
    return Likeness(wrong, other_colours, abs(len(numbers) - len(found)))

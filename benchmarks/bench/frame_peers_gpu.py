"""Readers of frames on a GPU: PyNvVideoCodec's SimpleDecoder and ThreadedDecoder, planar RGB into tensors of torch."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Any

import PyNvVideoCodec
import torch
from bench.frame_cases import Clip
from bench.frame_peers import normalised
from torch.nn.functional import interpolate

BATCH = 16
AHEAD = 32
"""How many pictures ThreadedDecoder decodes ahead."""
PLANAR = PyNvVideoCodec.OutputColorType.RGBP


def open_reader(name: str, place: str) -> "Simple | Threaded":
    """Return the reader with this name."""
    del place
    return Simple() if name == "SimpleDecoder" else Threaded()


def stacked(frames: Sequence[Any]) -> Any:
    """Return frames as one tensor, a copy, because the next call reuses the frames' memory."""
    return torch.stack([torch.from_dlpack(frame) for frame in frames])


class _Package(ABC):
    """The common part of both readers."""

    def __init__(self) -> None:
        self.version = f"PyNvVideoCodec {version('PyNvVideoCodec')}"
        self._of_thread = threading.local()

    def wait(self) -> None:
        """Wait for the GPU."""
        torch.cuda.synchronize()

    def batches(self, film: str, pictures: int, side: int) -> Iterator[Any]:
        """Yield resized and normalised batches."""
        for batch in self._in_order(film, pictures):
            small = interpolate(batch.float(), (side, side), mode="bilinear", antialias=True)
            yield normalised(small)

    def sequential(self, film: str) -> Iterator[Any]:
        """Yield all pictures."""
        return self._in_order(film, BATCH)

    @abstractmethod
    def _in_order(self, film: str, pictures: int) -> Iterator[Any]:
        """Yield all pictures, in tensors of ``pictures`` each."""


class Simple(_Package):
    """SimpleDecoder; for clips each thread keeps one decoder and reconfigures it."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[str, Any] = {}

    def random(self, film: str, indices: Sequence[int], *, kept: bool) -> Iterator[Any]:
        """Yield the pictures of these numbers in one tensor."""
        decoder = (self._kept.get(film) if kept else None) or _simple(film)
        if kept:
            self._kept[film] = decoder
        yield stacked(decoder.get_batch_frames_by_index(list(indices)))

    def every(self, film: str, step: int) -> Iterator[Any]:
        """Yield every ``step``-th picture."""
        decoder = _simple(film)
        numbers = range(0, len(decoder), step)
        for first in range(0, len(numbers), BATCH):
            yield stacked(decoder.get_batch_frames_by_index(list(numbers[first : first + BATCH])))

    def clip(self, clip: Clip, pictures: int) -> Iterator[Any]:
        """Yield a clip."""
        decoder = getattr(self._of_thread, "decoder", None)
        if decoder is None:
            decoder = self._of_thread.decoder = _simple(clip.film)
        else:
            decoder.reconfigure_decoder(clip.film)
        yield stacked(decoder.get_batch_frames_by_index(list(range(clip.first, clip.first + pictures))))

    def _in_order(self, film: str, pictures: int) -> Iterator[Any]:
        decoder = _simple(film)
        while frames := decoder.get_batch_frames(pictures):
            yield stacked(frames)


class Threaded(_Package):
    """ThreadedDecoder, which decodes ahead in a separate thread; it reads only in order, from a given number on."""

    def random(self, film: str, indices: Sequence[int], *, kept: bool) -> Iterator[Any]:
        """Raise an error: ThreadedDecoder would have to restart for every picture."""
        raise NotImplementedError("ThreadedDecoder reads only in order")

    def every(self, film: str, step: int) -> Iterator[Any]:
        """Decode all pictures, and yield every ``step``-th."""
        number = 0
        for batch in self._in_order(film, BATCH):
            yield batch[(-number) % step :: step]
            number += len(batch)

    def clip(self, clip: Clip, pictures: int) -> Iterator[Any]:
        """Yield a clip."""
        decoder = getattr(self._of_thread, "decoder", None)
        if decoder is None:
            decoder = self._of_thread.decoder = _threaded(clip.film, clip.first)
        else:
            decoder.reconfigure_decoder(clip.film, clip.first)
        left = pictures
        while left and (frames := decoder.get_batch_frames(min(left, AHEAD))):
            yield stacked(frames)
            left -= len(frames)

    def _in_order(self, film: str, pictures: int) -> Iterator[Any]:
        decoder = _threaded(film, 0)
        while frames := decoder.get_batch_frames(pictures):
            yield stacked(frames)
        decoder.end()


def _simple(film: str) -> Any:
    return PyNvVideoCodec.SimpleDecoder(film, use_device_memory=True, output_color_type=PLANAR)


def _threaded(film: str, first: int) -> Any:
    return PyNvVideoCodec.ThreadedDecoder(
        film, AHEAD, use_device_memory=True, output_color_type=PLANAR, start_frame=first
    )

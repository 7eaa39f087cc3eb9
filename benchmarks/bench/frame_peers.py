"""Readers of frames: torchcodec on the processor or a GPU, and decord on the processor."""

import os
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Any

import torch
from bench.frame_cases import MEAN, STD, Clip

BATCH = 16


def open_reader(name: str, place: str) -> "TorchCodec | Decord":
    """Return the reader with this name."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    if name == "decord":
        return Decord()
    return TorchCodec(1 if name.endswith("1 thread") else 0, "cuda" if place == "device" else "cpu")


def normalised(pictures: Any) -> Any:
    """Return pictures of 0 to 255, channels first, as normalised float32."""
    mean, std = (torch.tensor(each, device=pictures.device).view(1, 3, 1, 1) for each in (MEAN, STD))
    return pictures.float().mul_(1 / 255).sub_(mean).div_(std)


class TorchCodec:
    """torchcodec's VideoDecoder with its exact index; ``threads`` 0 means one per core."""

    def __init__(self, threads: int, device: str) -> None:
        from torchcodec.decoders import VideoDecoder  # noqa: PLC0415 - not every interpreter has it
        from torchcodec.transforms import Resize  # noqa: PLC0415

        self.version = f"torchcodec {version('torchcodec')}"
        self._decoder, self._resize, self._threads, self._device = VideoDecoder, Resize, threads, device
        self._kept: dict[str, Any] = {}

    def random(self, film: str, indices: Sequence[int], *, kept: bool) -> Iterator[Any]:
        """Yield the pictures of these numbers in one tensor."""
        decoder = self._kept.get(film) if kept else None
        if decoder is None:
            decoder = self._opened(film)
        if kept:
            self._kept[film] = decoder
        yield decoder.get_frames_at(list(indices)).data

    def batches(self, film: str, pictures: int, side: int) -> Iterator[Any]:
        """Yield resized and normalised batches."""
        decoder = self._opened(film, transforms=[self._resize((side, side))])
        for first in range(0, len(decoder), pictures):
            yield normalised(decoder.get_frames_in_range(first, min(first + pictures, len(decoder))).data)

    def sequential(self, film: str) -> Iterator[Any]:
        """Yield all pictures."""
        decoder = self._opened(film)
        for first in range(0, len(decoder), BATCH):
            yield decoder.get_frames_in_range(first, min(first + BATCH, len(decoder))).data

    def every(self, film: str, step: int) -> Iterator[Any]:
        """Yield every ``step``-th picture."""
        decoder = self._opened(film)
        yield decoder.get_frames_in_range(0, len(decoder), step).data

    def clip(self, clip: Clip, pictures: int) -> Iterator[Any]:
        """Yield a clip."""
        decoder = self._decoder(clip.film, num_ffmpeg_threads=1, device=self._device)
        yield decoder.get_frames_in_range(clip.first, clip.first + pictures).data

    def wait(self) -> None:
        """Wait for the GPU, if there is one."""
        if self._device != "cpu":
            torch.cuda.synchronize()

    def _opened(self, film: str, **options: Any) -> Any:
        return self._decoder(film, num_ffmpeg_threads=self._threads, device=self._device, **options)


class Decord:
    """decord's VideoReader, with as many threads as it chooses."""

    def __init__(self) -> None:
        import decord  # noqa: PLC0415 - not every interpreter has it

        self.version = f"decord {version('decord')}"
        self._open = decord.VideoReader
        self._kept: dict[str, Any] = {}

    def random(self, film: str, indices: Sequence[int], *, kept: bool) -> Iterator[Any]:
        """Yield the pictures of these numbers in one tensor."""
        reader = self._kept.get(film) if kept else None
        if reader is None:
            reader = self._open(film)
        if kept:
            self._kept[film] = reader
        yield reader.get_batch(list(indices)).asnumpy()

    def batches(self, film: str, pictures: int, side: int) -> Iterator[Any]:
        """Yield resized and normalised batches."""
        reader = self._open(film, width=side, height=side)
        for first in range(0, len(reader), pictures):
            batch = reader.get_batch(range(first, min(first + pictures, len(reader)))).asnumpy()
            yield normalised(torch.from_numpy(batch).permute(0, 3, 1, 2)).contiguous()

    def sequential(self, film: str) -> Iterator[Any]:
        """Yield all pictures."""
        reader = self._open(film)
        for first in range(0, len(reader), BATCH):
            yield reader.get_batch(range(first, min(first + BATCH, len(reader)))).asnumpy()

    def every(self, film: str, step: int) -> Iterator[Any]:
        """Yield every ``step``-th picture."""
        reader = self._open(film)
        yield reader.get_batch(range(0, len(reader), step)).asnumpy()

    def clip(self, clip: Clip, pictures: int) -> Iterator[Any]:
        """Yield a clip."""
        reader = self._open(clip.film, num_threads=1)
        yield reader.get_batch(range(clip.first, clip.first + pictures)).asnumpy()

    def wait(self) -> None:
        """Return at once."""

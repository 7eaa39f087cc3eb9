"""codecfleet as a reader of frames: on the processor, or on the first GPU, where the frames stay."""

from collections.abc import Iterator, Sequence
from typing import Any

from bench.frame_cases import MEAN, STD, Clip

import codecfleet
from codecfleet import FrameStream, TensorFormat
from codecfleet.jobs.frames.batches import FrameBatches

BATCH = 16


def open_reader(name: str, place: str) -> "Ours":
    """Return the reader for a place: "host" or "device"."""
    del name
    return Ours(place)


class Ours:
    """Frames of ``codecfleet.frames`` in batches."""

    def __init__(self, place: str) -> None:
        self.version = f"codecfleet {codecfleet.__version__}"
        self._is_device = place == "device"
        self._kept: dict[str, FrameStream] = {}

    def random(self, film: str, indices: Sequence[int], *, kept: bool) -> Iterator[Any]:
        """Yield the pictures of these numbers in one tensor."""
        if kept:
            if film not in self._kept:
                self._kept[film] = self._opened(film)
            yield from self._tensors(self._kept[film].at(indices).batches(len(indices)))
            return
        with self._opened(film) as frames:
            yield from self._tensors(frames.at(indices).batches(len(indices)))

    def batches(self, film: str, pictures: int, side: int) -> Iterator[Any]:
        """Yield resized and normalised batches."""
        with self._opened(film) as frames:
            yield from self._tensors(
                frames.batches(pictures, TensorFormat(dtype="float32", size=(side, side), mean=MEAN, std=STD))
            )

    def sequential(self, film: str) -> Iterator[Any]:
        """Yield all pictures."""
        with self._opened(film) as frames:
            yield from self._tensors(frames.batches(BATCH))

    def every(self, film: str, step: int) -> Iterator[Any]:
        """Yield every ``step``-th picture."""
        with self._opened(film, every=step) as frames:
            yield from self._tensors(frames.batches(BATCH))

    def clip(self, clip: Clip, pictures: int) -> Iterator[Any]:
        """Yield a clip."""
        with self._opened(clip.film, threads=1) as frames:
            yield from self._tensors(frames[clip.first : clip.first + pictures].batches(pictures))

    def wait(self) -> None:
        """Wait until the GPU has finished all batches."""
        if self._is_device:
            import torch  # noqa: PLC0415 - needed only on a GPU

            torch.cuda.synchronize()

    def _tensors(self, batches: FrameBatches) -> Iterator[Any]:
        if not self._is_device:
            return iter(batches)
        import torch  # noqa: PLC0415 - needed only on a GPU

        return map(torch.from_dlpack, batches)

    def _opened(self, film: str, **options: Any) -> FrameStream:
        if self._is_device:
            return codecfleet.frames(film, place="device", decoder="nvdec", **options)
        return codecfleet.frames(film, decoder="software", **options)

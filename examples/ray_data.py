"""A Ray Data source of frames: one read task for each part of a film, and a GPU for each task if requested.

python examples/ray_data.py film.mkv --part-seconds 10 --gpus 1
"""

import argparse
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import ray.data
from ray.data.block import Block, BlockAccessor, BlockMetadata
from ray.data.datasource import Datasource, ReadTask

import codecfleet

BLOCK_FRAMES = 32
SIDE = 224


def read_part(source: str, start_s: int, end_s: int | None) -> Iterator[Block]:
    """Yield the frames of a part in blocks of rows; adjacent parts neither repeat nor miss a frame."""
    rows: list[dict[str, Any]] = []
    with codecfleet.frames(source, start_s=start_s, end_s=end_s, pix_fmt="rgb24", size=(SIDE, SIDE)) as frames:
        for frame in frames:
            rows.append({"source": source, "time_s": float(frame.time_s), "image": frame.to_ndarray()})
            if len(rows) == BLOCK_FRAMES:
                yield block(rows)
                rows = []
    if rows:
        yield block(rows)


def block(rows: list[dict[str, Any]]) -> Block:
    """Return rows as a block of Ray Data."""
    return BlockAccessor.batch_to_block({name: np.array([row[name] for row in rows]) for name in rows[0]})


class FramesDatasource(Datasource):
    """Frames of films, in parts of ``part_s`` seconds."""

    def __init__(self, sources: list[str], part_s: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._parts: list[tuple[str, int, int | None]] = []
        for source in sources:
            with codecfleet.frames(source) as film:
                last_s = int(film.times_s[-1])
            starts = range(0, last_s + 1, part_s)
            self._parts += [(source, start, None if start == starts[-1] else start + part_s) for start in starts]

    def estimate_inmemory_data_size(self) -> None:
        """Return None: the size is unknown."""

    def get_read_tasks(self, parallelism: int, *_: object, **__: object) -> list[ReadTask]:  # noqa: ARG002 - as Ray calls it
        """Return one task per part, however many Ray requests, because each part is decoded in parallel anyway."""
        nothing_known = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
        return [ReadTask(partial(read_part, *part), nothing_known) for part in self._parts]


def main() -> None:
    """Read the command line, and print how many frames there are and how bright they are."""
    parser = argparse.ArgumentParser(description="Read films as a Ray dataset.")
    parser.add_argument("films", nargs="+")
    parser.add_argument("--part-seconds", type=int, default=10)
    parser.add_argument("--gpus", type=float, default=0, help="GPUs for each read task")
    arguments = parser.parse_args()
    source = FramesDatasource(arguments.films, arguments.part_seconds)
    dataset = ray.data.read_datasource(source, num_gpus=arguments.gpus or None)
    frames = brightness = 0
    for batch in dataset.iter_batches(batch_size=16):
        frames += len(batch["image"])
        brightness += batch["image"].mean(axis=(1, 2, 3)).sum()
    print(f"{frames} frames, mean {brightness / frames:.1f}")


if __name__ == "__main__":
    main()

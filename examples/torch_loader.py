"""Train from films with PyTorch: worker processes read clips, and the loader makes batches of them.

python examples/torch_loader.py film.mkv
"""

import argparse
from functools import partial

from torch.utils.data import DataLoader, IterableDataset

from codecfleet import ClipDataset, TensorFormat, clips_at_random_indices


class TorchClips(ClipDataset, IterableDataset):  # type: ignore[misc]  # PyTorch is not installed where types are checked
    """A dataset of clips that PyTorch's loader accepts."""


def main() -> None:
    """Read the command line, then the clips that a training loop would read in two epochs."""
    parser = argparse.ArgumentParser(description="Read random clips of films in batches.")
    parser.add_argument("films", nargs="+")
    arguments = parser.parse_args()
    dataset = TorchClips(
        arguments.films,
        partial(clips_at_random_indices, num_clips=8, num_frames_per_clip=4, num_indices_between_frames=2),
        clips_per_film=8,
        format=TensorFormat(size=(112, 112), dtype="float32", mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
        on_error="skip",
        decoder="software",
    )
    loader = DataLoader(dataset, batch_size=2, num_workers=2)
    for epoch in range(2):
        dataset.set_epoch(epoch)
        for batch in loader:
            print(epoch, tuple(batch.data.shape), batch.source.tolist(), batch.indices.tolist())


if __name__ == "__main__":
    main()

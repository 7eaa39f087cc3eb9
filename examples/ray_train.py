"""Train on several workers with Ray Train: each rank reads its own clips, each clip once in an epoch.

python examples/ray_train.py film.mkv --workers 2
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import ray.train
import torch
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model
from torch.utils.data import DataLoader, IterableDataset

from codecfleet import ClipDataset, TensorFormat, clips_at_random_indices


class TorchClips(ClipDataset, IterableDataset):  # type: ignore[misc]  # PyTorch is not installed where types are checked
    """A dataset of clips that PyTorch's loader accepts."""


def train(config: dict[str, Any]) -> None:
    """Train a model with one parameter, which learns the mean brightness of this worker's clips."""
    context = ray.train.get_context()
    clips = TorchClips(
        config["films"],
        partial(clips_at_random_indices, num_clips=4, num_frames_per_clip=4),
        clips_per_film=4,
        format=TensorFormat(size=(32, 32), dtype="float32"),
        rank=context.get_world_rank(),
        world_size=context.get_world_size(),
        even=True,  # each rank takes the same number of steps, because ranks wait for each other
    )
    model = prepare_model(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        clips.set_epoch(epoch)
        for batch in DataLoader(clips, batch_size=2):
            means = batch.data.mean(dim=(1, 2, 3, 4)).unsqueeze(1).to(next(model.parameters()).device)
            loss = ((model(torch.ones_like(means)) - means) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        ray.train.report({"epoch": epoch, "loss": loss.item()})


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train a small model on clips of films.")
    parser.add_argument("films", nargs="+")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--gpu", action="store_true", help="one for each worker")
    arguments = parser.parse_args()
    films = [str(Path(film).absolute()) for film in arguments.films]  # absolute, because workers run in other folders
    scaling = ScalingConfig(num_workers=arguments.workers, use_gpu=arguments.gpu)
    result = TorchTrainer(train, train_loop_config={"films": films}, scaling_config=scaling).fit()
    print(result.metrics)


if __name__ == "__main__":
    main()

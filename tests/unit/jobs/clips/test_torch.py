"""A dataset of clips in PyTorch's loader, if PyTorch is installed (`make learning`)."""

from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from codecfleet import ClipDataset, TensorFormat, clips_at_random_indices
from codecfleet.testing.clips import Clip, constant_times, make_clip

data = pytest.importorskip("torch.utils.data")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class TorchClips(ClipDataset, data.IterableDataset):  # type: ignore[misc, name-defined]
    """A dataset for PyTorch, as in docs/learning.md."""


def test_torch_workers_share_the_clips(tmp_path: Path) -> None:
    """Several workers, forked after this process has read the films, give each clip of an epoch once."""
    films = [make_clip(tmp_path / f"{number}.mkv", Clip(times=constant_times(16))) for number in range(2)]
    clips = TorchClips(
        films,
        partial(clips_at_random_indices, num_clips=3, num_frames_per_clip=2),
        clips_per_film=3,
        format=TensorFormat(size=(16, 8), dtype="float32"),
        decoder="software",
    )
    here = Counter((clip.source, clip.clip, *clip.indices.tolist()) for clip in clips)
    clips.set_epoch(0)
    loader = data.DataLoader(clips, batch_size=2, num_workers=2, multiprocessing_context="fork")
    found: Counter[tuple[int, ...]] = Counter()
    for batch in loader:
        assert tuple(batch.data.shape[1:]) == (2, 3, 8, 16)
        rows = zip(batch.source.tolist(), batch.clip.tolist(), batch.indices.tolist(), strict=True)
        found.update((source, clip, *indices) for source, clip, indices in rows)
    assert found == here

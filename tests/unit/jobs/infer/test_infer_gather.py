"""Tensors of segments into one file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from codecfleet.actors.dla.inference.segments import InferredSegment, NamedTensor
from codecfleet.actors.segment.walk import SegmentTally
from codecfleet.errors import ProofFailed
from codecfleet.jobs.infer.gather import TensorGather


def segment(number: int, ticks: list[int], *tensors: NamedTensor) -> InferredSegment:
    """Return a segment with these times and tensors."""
    pts_ticks, done = np.array(ticks, dtype=np.int64), {"host": "orin", "device": 0, "infer_s": 0.0}
    return InferredSegment(segment=number, pts_ticks=pts_ticks, tensors=tensors, tally=SegmentTally(), **done)  # type: ignore[arg-type]


def numbers(ticks: list[int], dtype: str = "<f2") -> NDArray[Any]:
    """Return a tensor whose numbers state its times."""
    return np.array(ticks, dtype=dtype).reshape(-1, 1, 1, 1)


@given(st.lists(st.integers(0, 4), max_size=6))
def test_segments_of_any_length_join_to_all_frames(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int]
) -> None:
    """Segments of any length, even empty ones, are joined so that each tensor has every frame once, in order."""
    gather, ticks = TensorGather(tmp_path_factory.mktemp("gather")), 0
    for number, length in enumerate(lengths):
        times = list(range(ticks, ticks + length))
        gather.join(segment(number, times, NamedTensor("a", numbers(times)), NamedTensor("b", numbers(times, "i1"))))
        ticks += length
    with np.load(gather.finish((1, 25)), allow_pickle=False) as found:
        assert found["pts_ticks"].tolist() == list(range(ticks))
        assert found["time_base"].tolist() == [1, 25]
        for name, dtype in (("a", "<f2"), ("b", "i1")) if lengths else ():
            assert found[name].dtype == np.dtype(dtype)
            assert found[name].ravel().tolist() == list(range(ticks))


def test_names_are_kept_apart(tmp_path: Path) -> None:
    """Tensors with a reserved name, equal names, a path or no name get distinct names."""
    gather = TensorGather(tmp_path)
    tensors = [NamedTensor(name, numbers([0])) for name in ("pts_ticks", "a/b", "a_b", "")]
    gather.join(segment(0, [0], *tensors))
    names = [tensor.name for tensor in gather.tensors]
    assert names == ["pts_ticks_", "a_b", "a_b_", "output_3"]
    with np.load(gather.finish((1, 25))) as found:
        assert set(found.files) == {"pts_ticks", "time_base", *names}


def test_what_does_not_follow_is_refused(tmp_path: Path) -> None:
    """Overlapping times and tensors of another type are refused before they are in a file."""
    gather = TensorGather(tmp_path)
    gather.join(segment(0, [0, 1], NamedTensor("a", numbers([0, 1]))))
    gather.join(segment(1, [], NamedTensor("a", numbers([]))))
    with pytest.raises(ProofFailed, match="segment 2 begins at 1"):
        gather.join(segment(2, [1, 2], NamedTensor("a", numbers([1, 2]))))
    for other in (NamedTensor("b", numbers([2])), NamedTensor("a", numbers([2], "<f4"))):
        with pytest.raises(ProofFailed, match="has the tensors"):
            gather.join(segment(2, [2], other))

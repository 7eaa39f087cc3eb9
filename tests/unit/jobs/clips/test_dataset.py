"""A dataset of clips: exact frames, each clip once over all ranks, resumable, in any process."""

import logging
import os
import pickle
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codecfleet import ClipDataset, FilmClip, clips_at_random_indices, clips_at_regular_indices, frames
from codecfleet.actors.tensors.host_tensor import to_tensor
from codecfleet.actors.tensors.tensor_format import TensorFormat
from codecfleet.errors import InputDamaged, InputError, UsageError
from codecfleet.testing.clips import Clip, constant_times, make_clip
from tests.spliced import packets_of

FORMAT = TensorFormat(size=(16, 8))
FOUR_RANDOM = partial(clips_at_random_indices, num_clips=4, num_frames_per_clip=3)
GOPS = (("x264-params", "keyint=8:min-keyint=8:scenecut=0:bframes=2"),)


def every_fifth(times_s: Sequence[object]) -> list[list[int]]:
    """Choose clips of two frames, more of them in a longer film."""
    return [[first, first + 1] for first in range(0, len(times_s) - 1, 5)]


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Three films of 24, 20 and 16 frames."""
    folder = tmp_path_factory.mktemp("films")
    counts = (24, 20, 16)
    made = (make_clip(folder / f"{n}.mkv", Clip(times=constant_times(n), options=GOPS)) for n in counts)
    return [str(path) for path in made]


def dataset(films: list[str], clips: Any = FOUR_RANDOM, **options: Any) -> ClipDataset:
    """Return a dataset with four clips of each film, decoded in software."""
    usual = {"clips_per_film": 4, "format": FORMAT, "decoder": "software", "threads": 1}
    return ClipDataset(films, clips, **(usual | options))


def told(clips: list[FilmClip]) -> list[tuple[int, int, tuple[int, ...]]]:
    """Return (film, clip, frames) for each clip."""
    return [(clip.source, clip.clip, tuple(clip.indices.tolist())) for clip in clips]


def test_a_clip_has_the_frames_it_names(films: list[str]) -> None:
    """A clip has the samples and times of the film's frames with its numbers."""
    found = list(dataset(films, films_open=2))
    assert len(found) == 12
    for clip in found:
        with frames(films[clip.source], decoder="software") as film:
            chosen = film.at(clip.indices).read()
        np.testing.assert_array_equal(clip.data, np.asarray(to_tensor(chosen, FORMAT)))
        assert clip.times_s.tolist() == [float(frame.time_s) for frame in chosen]


@pytest.mark.parametrize(("clips", "each"), [(FOUR_RANDOM, 4), (every_fifth, None)])
def test_ranks_share_an_epoch(films: list[str], clips: Any, each: int | None) -> None:
    """Ranks together have the clips of one epoch, each once; the next epoch has another order."""
    whole = dataset(films, clips, clips_per_film=each)
    first, second = told(list(whole)), told(list(whole))
    ranks = [dataset(films, clips, clips_per_film=each, rank=rank, world_size=2) for rank in range(2)]
    assert Counter(clip for rank in ranks for clip in told(list(rank))) == Counter(first)
    assert (whole.epoch, first != second) == (2, True)
    whole.set_epoch(0)
    assert told(list(whole)) == first


@pytest.mark.parametrize("seen", [0, 1, 5, 12])
@pytest.mark.parametrize("films_open", [1, 2])
def test_a_state_continues_after_the_last_clip(films: list[str], seen: int, films_open: int) -> None:
    """A state continues after the last clip, in another process and at an epoch's end too."""
    whole = told(list(dataset(films, films_open=films_open)))
    begun = dataset(films, films_open=films_open)
    clips = iter(begun)
    before = told([next(clips) for _ in range(seen)])
    other = dataset(films, films_open=films_open)
    other.load_state_dict(pickle.loads(pickle.dumps(begun.state_dict())))  # noqa: S301 - our own
    assert before + told(list(other)) == whole
    begun.close()


def test_a_state_of_another_shard_is_refused(films: list[str]) -> None:
    """The state of another shard is refused, because its clips differ."""
    with pytest.raises(UsageError):
        dataset(films).load_state_dict(dataset(films, rank=1, world_size=2).state_dict())


def test_a_copy_opens_its_own_films(films: list[str]) -> None:
    """A dataset that is being read pickles, and its copy reads the same clips."""
    used = dataset(films)
    clips = told(list(used))
    copy = pickle.loads(pickle.dumps(used))  # noqa: S301 - our own
    copy.set_epoch(0)
    assert told(list(copy)) == clips
    assert len(copy) == len(clips)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_opens_its_own_films(films: list[str]) -> None:
    """A forked process opens the films itself while its parent goes on reading the same films."""
    used = dataset(films)
    clips = iter(used)
    next(clips)
    opened = used._film(0)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, str(used._film(0) is not opened).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        assert answer.read() == "True"
    os.waitpid(child, 0)
    assert used._film(0) is opened
    assert len(list(clips)) == 11


def test_an_unreadable_film_ends_the_epoch_in_one_line(films: list[str], tmp_path: Path) -> None:
    """An unreadable film ends the epoch with an error that keeps its type and names the film."""
    broken = tmp_path / "broken.mkv"
    broken.write_bytes(b"no film" * 99)
    with pytest.raises(InputError) as raised:
        list(dataset([*films, str(broken)]))
    assert str(raised.value).startswith(str(broken))
    assert "\n" not in str(raised.value)


def test_an_unreadable_film_is_skipped_if_asked(
    films: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With "skip", the clips of all other films come, and the log has one line for the unreadable film."""
    broken = tmp_path / "broken.mkv"
    broken.write_bytes(b"no film" * 99)
    with caplog.at_level(logging.WARNING):
        found = list(dataset([*films, str(broken)], on_error="skip", films_open=4))
    assert Counter(clip.source for clip in found) == {0: 4, 1: 4, 2: 4}
    assert len(caplog.records) == 1


@pytest.fixture(scope="module")
def damaged(films: list[str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three films, the first with a damaged group of pictures in the middle."""
    content = bytearray(Path(films[0]).read_bytes())
    packet = packets_of(Path(films[0]))[8].data
    place = content.index(packet)
    content[place + 8 : place + len(packet)] = bytes(len(packet) - 8)
    path = tmp_path_factory.mktemp("damaged") / "damaged.mkv"
    path.write_bytes(content)
    return str(path)


DAMAGED = partial(clips_at_regular_indices, num_clips=3, num_frames_per_clip=2)
"""Clips that begin at frames 0, 11 and 22."""


def test_an_error_names_its_clip(damaged: str) -> None:
    """An error names its clip, and the epoch continues after that clip if the state is loaded again."""
    made = dataset([damaged], DAMAGED, clips_per_film=3, shuffle=False, strict=True)
    with pytest.raises(InputDamaged, match=f"^clip 1 of {damaged}: "):
        list(made)
    made.load_state_dict(made.state_dict())
    assert told(list(made)) == [(0, 2, (22, 23))]


def test_a_damaged_clip_is_skipped_if_asked(damaged: str, caplog: pytest.LogCaptureFixture) -> None:
    """With "skip", the film's other clips come, and the log names the skipped clip."""
    with caplog.at_level(logging.WARNING):
        found = list(dataset([damaged], DAMAGED, clips_per_film=3, shuffle=False, strict=True, on_error="skip"))
    assert told(found) == [(0, 0, (0, 1)), (0, 2, (22, 23))]
    assert [record.getMessage().startswith(f"skipped clip 1 of {damaged}: ") for record in caplog.records] == [True]


@pytest.mark.parametrize(
    "options",
    [
        {"rank": 1},
        {"films_open": 0},
        {"clips_per_film": 0},
        {"on_error": "ignore"},
        {"clips_per_film": None, "even": True},
    ],
)
def test_impossible_options_are_refused(films: list[str], options: dict[str, Any]) -> None:
    """Before anything is read."""
    with pytest.raises(UsageError):
        dataset(films, **options)


@pytest.mark.parametrize(
    "clips", [partial(clips_at_regular_indices, num_clips=3), lambda _: [[0], [0], [0], [0, 1]], lambda _: [[99]] * 4]
)
def test_clips_other_than_promised_are_refused(films: list[str], clips: Any) -> None:
    """Clips that differ in number or length from what was promised are refused."""
    with pytest.raises(UsageError):
        list(dataset(films, clips))


def test_the_length_of_an_unknown_number_of_clips_is_refused(films: list[str]) -> None:
    """The length of a dataset with an unknown number of clips raises TypeError."""
    with pytest.raises(TypeError):
        len(dataset(films, every_fifth, clips_per_film=None))

"""``ClipDataset``: clips of many films as tensors, for training, divided among ranks and worker processes."""

import inspect
import logging
import os
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from os import PathLike
from typing import Any, Final, NamedTuple, NoReturn, Unpack

import numpy as np
from numpy.typing import NDArray

from ...actors.tensors.frame_batch import FrameBatch
from ...actors.tensors.tensor_format import TensorFormat
from ...cluster.machine import cores
from ...errors import CodecfleetError, InputError, NoVideoTrack, Unsupported, UsageError, redacted
from ..frames.request import FrameOptions
from ..frames.stream import FrameStream, frames
from ..request.values import location
from .clip_order import ClipOrder, FilmPart

Sampler = Callable[..., Sequence[Sequence[int]]]
_FILMS_KEPT: Final = 64  #: The most idle films that keep their index; idle films have no decoder
_UNREADABLE: Final = (InputError, NoVideoTrack, Unsupported)
_INHERITED: Final[list[object]] = []
"""Films that the parent opened before a fork: neither used nor closed here, since their threads are in the parent."""
_LOG: Final = logging.getLogger("codecfleet.clips")


class FilmClip(NamedTuple):
    """One clip. PyTorch's default collation makes a batch of several clips."""

    data: Any  #: the tensor: (frames, channels, rows, columns), or as ``format`` says
    indices: NDArray[np.int64]  #: the numbers of the frames in their film
    times_s: NDArray[np.float64]  #: when each frame is shown, in seconds after the film's first picture
    source: int  #: the film's number among the sources
    clip: int  #: the clip's number in its film


class ClipDataset:
    """Clips of many films, in an order that a seed decides. Iterate over the dataset once in each epoch.

        dataset = ClipDataset(films, partial(clips_at_random_indices, num_frames_per_clip=16), clips_per_film=1)
        for clip in dataset:
            train(clip.data)

    Each clip of an epoch is in exactly one shard, the part that one worker process of one rank reads. A dataset can be
    pickled. It opens films only when they are read, never before a fork. A subclass that is also a
    ``torch.utils.data.IterableDataset`` works with ``DataLoader``, and finds out which shard its process reads.

    Args:
        sources: paths or fsspec URLs.
        clips: chooses a film's clips: a function of the times of its frames that returns lists of frame numbers, all of
            the same length. A parameter ``seed`` of this function gets another value for each film and epoch.
        clips_per_film: how many clips ``clips`` returns for each film; None if that number differs, so that shards have
            whole films.
        format: the format of a clip's tensor.
        seed: decides the order of the clips, and the seeds that ``clips`` gets.
        shuffle: whether films and clips come in random order.
        films_open: how many films are read at once, with their clips mixed.
        rank: this process's number among the processes that train.
        world_size: how many processes train.
        even: leave out the last clips of an epoch, so that all shards have the same number of clips.
        on_error: "raise" an error at a clip that cannot be read, or "skip" it, with a line in the log.
        **options: options of ``frames``. ``threads`` is by default this worker's part of the cores.

    Raises:
        UsageError: an option is out of range.
    """

    def __init__(
        self,
        sources: Iterable[str | PathLike[str]],
        clips: Sampler,
        *,
        clips_per_film: int | None = None,
        format: TensorFormat | None = None,  # noqa: A002 - the name in ``batches``
        seed: int = 0,
        shuffle: bool = True,
        films_open: int = 1,
        rank: int = 0,
        world_size: int = 1,
        even: bool = False,
        on_error: str = "raise",
        **options: Unpack[FrameOptions],
    ) -> None:
        self.sources = tuple(location("source", each) for each in sources)
        self.epoch = 0  #: the epoch that the next iteration reads; each iteration adds 1 at its end
        self._clips = clips
        self._format = format or TensorFormat()
        self._rank, self._world_size, self._on_error, self._options = rank, world_size, on_error, options
        self._order = ClipOrder(
            films=len(self.sources),
            clips_per_film=clips_per_film,
            seed=seed,
            shuffle=shuffle,
            films_open=films_open,
            even=even,
        )
        self._place = (0, 0)  # the number of the block of films, and how many clips of the block were returned
        self._resumes = False  # whether the next iteration begins at ``_place``
        self._pid = os.getpid()
        self._films: OrderedDict[int, FrameStream] = OrderedDict()
        self._check()

    def __len__(self) -> int:
        """Return how many clips this rank has in an epoch.

        Raises TypeError if films have different numbers of clips.
        """
        if self._order.clips_per_film is None:
            raise TypeError("the number of clips is unknown: clips_per_film is None")
        _, workers = _worker()
        first = self._rank * workers
        return self._order.count(range(first, first + workers), self._world_size * workers)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration reads from its beginning."""
        self.epoch, self._place, self._resumes = epoch, (0, 0), False

    def state_dict(self) -> dict[str, Any]:
        """Return this process's position: after the clip that was returned last."""
        shard, of = self._shard()
        return {"epoch": self.epoch, "block": self._place[0], "clips": self._place[1], "shard": shard, "shards": of}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration continue at ``state``. Raises UsageError if ``state`` belongs to another shard."""
        shard, of = self._shard()
        if (state["shard"], state["shards"]) != (shard, of):
            message = f"the state belongs to shard {state['shard']} of {state['shards']}, not {shard} of {of}"
            raise UsageError(message, "Resume with the same numbers of ranks and workers.")
        self.epoch, self._place, self._resumes = state["epoch"], (state["block"], state["clips"]), True

    def __iter__(self) -> Iterator[FilmClip]:
        """Yield this shard's clips, blocking for each.

        Raises:
            CodecfleetError: a clip cannot be read; the message begins with the film and the clip's number. The next
                iteration begins the epoch again; call ``load_state_dict(state_dict())`` to continue after that clip.
        """
        shard, of = self._shard()
        begin, done = self._place if self._resumes else (0, 0)
        self._place, self._resumes = (begin, done), False
        for number, block in enumerate(self._order.blocks(self.epoch, shard, of)):
            if number >= begin:
                yield from self._read(number, block, done if number == begin else 0)
        self.set_epoch(self.epoch + 1)

    def close(self) -> None:
        """Close the films that this process has open. Idempotent; a further iteration opens them again."""
        films = self._own_films()
        while films:
            films.popitem()[1].__exit__()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_films": OrderedDict(), "_pid": 0}

    def _check(self) -> None:
        if not 0 <= self._rank < self._world_size:
            _refuse(f"rank is {self._rank}, and must be from 0 to world_size - 1 ({self._world_size - 1})")
        if self._order.films_open < 1 or (self._order.clips_per_film is not None and self._order.clips_per_film < 1):
            _refuse("films_open and clips_per_film must be at least 1")
        if self._on_error not in ("raise", "skip"):
            _refuse(f'on_error is {self._on_error!r}, and must be "raise" or "skip"')
        if self._order.even and self._order.clips_per_film is None:
            _refuse("even shards need clips_per_film")

    def _shard(self) -> tuple[int, int]:
        """Return this process's shard, and the number of shards."""
        worker, workers = _worker()
        return self._rank * workers + worker, self._world_size * workers

    def _read(self, number: int, block: Sequence[FilmPart], done: int) -> Iterator[FilmClip]:
        """Yield the clips of a block of films, except the first ``done``."""
        parts = [(part, chosen) for part in block if (chosen := self._chosen(part.film)) is not None]
        lengths = [len(chosen) for _, chosen in parts]
        clips = self._order.mixed(self.epoch, [part for part, _ in parts], lengths)[done:]
        with ExitStack() as stack:
            readers = []
            for place, (part, chosen) in enumerate(parts):
                own = [chosen[clip] for each, clip in clips if each == place]
                readers.append(stack.enter_context(closing(_ClipReader(self._film(part.film), own, self._format))))
            for place, clip in clips:
                done += 1
                self._place = (number, done)
                film = parts[place][0].film
                try:
                    batch = readers[place].take()
                except CodecfleetError as error:
                    self._refuse_or_skip(f"clip {clip} of {self.sources[film]}", error)
                    continue
                times = np.array([float(each) for each in batch.times_s])
                yield FilmClip(batch.data, np.array(batch.indices), times, film, clip)

    def _chosen(self, film: int) -> Sequence[Sequence[int]] | None:
        """Return the frames of each clip of a film; None if the film is skipped because it cannot be read."""
        source = self.sources[film]
        try:
            times_s = self._film(film).times_s
        except CodecfleetError as error:
            self._refuse_or_skip(source, error)
            return None
        seeded = "seed" in inspect.signature(self._clips).parameters
        chosen = self._clips(times_s, **({"seed": self._order.film_seed(self.epoch, film)} if seeded else {}))
        expected = self._order.clips_per_film
        if expected is not None and len(chosen) != expected:
            _refuse(f"`clips` chose {len(chosen)} clips of {source}, but clips_per_film is {expected}")
        if len({len(each) for each in chosen}) > 1:
            _refuse(f"`clips` chose clips of {source} that differ in length")
        if not all(0 <= frame < len(times_s) for each in chosen for frame in each):
            _refuse(f"`clips` chose frames that are not among the {len(times_s)} frames of {source}")
        return chosen

    def _film(self, number: int) -> FrameStream:
        """Return an open film of this process. The film keeps its index for later epochs."""
        films = self._own_films()
        if number not in films:
            _, workers = _worker()
            shared: FrameOptions = {} if workers == 1 else {"threads": max(1, cores() // workers)}
            films[number] = frames(self.sources[number], **(shared | self._options))
        films.move_to_end(number)
        while len(films) > max(_FILMS_KEPT, self._order.films_open):
            films.popitem(last=False)[1].__exit__()
        return films[number]

    def _own_films(self) -> "OrderedDict[int, FrameStream]":
        if self._pid != os.getpid():
            _INHERITED.append(self._films)
            self._pid, self._films = os.getpid(), OrderedDict()
        return self._films

    def _refuse_or_skip(self, what: str, error: CodecfleetError) -> None:
        message = f"{what}: {error.message}"
        if self._on_error == "raise" or not isinstance(error, _UNREADABLE):
            raise type(error)(message, error.next_step, *error.args[2:]) from None
        _LOG.warning("skipped %s", redacted(message))


class _ClipReader:
    """Reads clips of one film in order, decoded ahead; after an error, reading continues with the next clip."""

    def __init__(self, film: FrameStream, clips: Sequence[Sequence[int]], format_: TensorFormat) -> None:
        self._film = film
        self._left = deque(clips)
        self._format = format_
        self._batches: Generator[FrameBatch] | None = None

    def take(self) -> FrameBatch:
        """Return the next clip. Raises CodecfleetError: the clip cannot be read."""
        if self._batches is None:
            self._batches = self._read(tuple(self._left))
        clip = self._left.popleft()
        try:
            return next(self._batches)
        except _UNREADABLE:
            # The reason may be another clip, decoded ahead together with this clip.
            self.close()
            return next(self._read((clip,)))

    def close(self) -> None:
        """Stop reading ahead. Idempotent."""
        if self._batches is not None:
            self._batches.close()
            self._batches = None

    def _read(self, clips: Sequence[Sequence[int]]) -> Generator[FrameBatch]:
        yield from self._film.at(frame for clip in clips for frame in clip).batches(len(clips[0]), self._format)


def _worker() -> tuple[int, int]:
    """Return (number, count) of this process among the workers of PyTorch's loader; (0, 1) in any other process."""
    loading = sys.modules.get("torch.utils.data")
    info = None if loading is None else loading.get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


def _refuse(message: str) -> NoReturn:
    raise UsageError(f"dataset of clips: {message}", "docs/learning.md describes the options.")

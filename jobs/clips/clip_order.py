"""Decides from a loader's shard, seed and epoch which clips it reads, and in which order. Pure."""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True, slots=True)
class FilmPart:
    """Clips of one film."""

    film: int  #: the film's index among the sources
    clips: range | None  #: the numbers of the film's clips; None for all of them


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipOrder:
    """The order of all clips in each epoch, and its division into shards: each clip is in exactly one shard.

    A shard takes successive clips of that order, so that few films are read by two shards.
    """

    films: int  #: how many films
    clips_per_film: int | None  #: None if the films have different numbers of clips; a shard then takes whole films
    seed: int  #: decides the order, and which clips are chosen
    shuffle: bool  #: whether films and their clips are in random order
    films_open: int  #: how many films are open at a time, with their clips mixed
    even: bool  #: whether all shards have the same number of clips; leftover clips are in no shard

    def count(self, shards: range, of: int) -> int:
        """Return the number of clips in ``shards``, or of films if films have different numbers of clips."""
        return sum(len(self._span(shard, of)) for shard in shards)

    def blocks(self, epoch: int, shard: int, of: int) -> list[tuple[FilmPart, ...]]:
        """Return the parts that shard ``shard`` of ``of`` shards reads, in blocks of films that are open together."""
        order = list(range(self.films))
        if self.shuffle:
            self._random(epoch, "films").shuffle(order)
        span, each = self._span(shard, of), self.clips_per_film
        if each is None:
            parts = [FilmPart(order[place], None) for place in span]
        else:
            films = ((place, list(units)) for place, units in groupby(span, lambda unit: unit // each))
            parts = [FilmPart(order[place], range(units[0] % each, units[-1] % each + 1)) for place, units in films]
        return [tuple(parts[begin : begin + self.films_open]) for begin in range(0, len(parts), self.films_open)]

    def mixed(self, epoch: int, block: Sequence[FilmPart], counts: Sequence[int]) -> list[tuple[int, int]]:
        """Return the clips of a block as (position of the part, number of the clip).

        ``counts`` has the number of clips of each film in the block.
        """
        clips = [
            (place, number)
            for place, (part, count) in enumerate(zip(block, counts, strict=True))
            for number in (range(count) if part.clips is None else part.clips)
        ]
        if self.shuffle:
            self._random(epoch, f"clips of {block[0]}").shuffle(clips)
        return clips

    def film_seed(self, epoch: int, film: int) -> int:
        """Return the seed for choosing a film's clips, the same in all shards."""
        return self._seed(epoch, f"film {film}")

    def _span(self, shard: int, of: int) -> range:
        units = self.films * (self.clips_per_film or 1)
        if self.even:
            return range(shard * (units // of), (shard + 1) * (units // of))
        return range(units * shard // of, units * (shard + 1) // of)

    def _random(self, epoch: int, use: str) -> random.Random:
        return random.Random(self._seed(epoch, use))  # noqa: S311 - not for security

    def _seed(self, epoch: int, use: str) -> int:
        """Return a seed that is the same in all processes, unlike ``hash``."""
        return int.from_bytes(hashlib.sha256(f"{self.seed}/{epoch}/{use}".encode()).digest()[:8], "big")

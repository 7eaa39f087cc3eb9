"""Clips are divided among ranks and workers exactly, for any number of each."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from codecfleet.jobs.clips.clip_order import ClipOrder

Clips = list[tuple[int, int]]

ORDERS = st.builds(
    ClipOrder,
    films=st.integers(0, 20),
    clips_per_film=st.integers(1, 9),
    seed=st.integers(0, 3),
    shuffle=st.booleans(),
    films_open=st.integers(1, 4),
    even=st.just(value=False),
)


def taken(order: ClipOrder, epoch: int, shard: int, of: int, counts: list[int]) -> Clips:
    """Return the (film, clip) pairs of a shard, in order."""
    return [
        (block[place].film, clip)
        for block in order.blocks(epoch, shard, of)
        for place, clip in order.mixed(epoch, block, [counts[part.film] for part in block])
    ]


@given(ORDERS, st.integers(0, 3), st.integers(1, 12))
def test_each_clip_is_in_one_shard(order: ClipOrder, epoch: int, of: int) -> None:
    """Each clip is in one shard, and shards differ by one clip at most."""
    counts = [order.clips_per_film or 0] * order.films
    shards = [taken(order, epoch, shard, of, counts) for shard in range(of)]
    every = Counter(clip for shard in shards for clip in shard)
    assert every == Counter((film, clip) for film, count in enumerate(counts) for clip in range(count))
    assert max(map(len, shards)) - min(map(len, shards)) <= 1
    assert [len(shard) for shard in shards] == [order.count(range(shard, shard + 1), of) for shard in range(of)]


@given(st.data(), st.integers(1, 12), st.booleans())
def test_each_film_of_unknown_length_is_in_one_shard(data: st.DataObject, of: int, shuffle: bool) -> None:  # noqa: FBT001
    """If films have different numbers of clips, each film is in one shard."""
    counts = data.draw(st.lists(st.integers(0, 9), max_size=12))
    order = ClipOrder(
        films=len(counts),
        clips_per_film=None,
        seed=1,
        shuffle=shuffle,
        films_open=data.draw(st.integers(1, 3)),
        even=False,
    )
    every = [clip for shard in range(of) for clip in taken(order, 0, shard, of, counts)]
    assert sorted(every) == [(film, clip) for film, count in enumerate(counts) for clip in range(count)]


@given(st.integers(0, 20), st.integers(1, 9), st.integers(1, 12))
def test_even_shards_have_as_many_clips(films: int, each: int, of: int) -> None:
    """Even shards have the same number of clips, and leave out fewer clips than there are shards."""
    order = ClipOrder(films=films, clips_per_film=each, seed=0, shuffle=True, films_open=2, even=True)
    shards = [taken(order, 0, shard, of, [each] * films) for shard in range(of)]
    assert {len(shard) for shard in shards} == {films * each // of}
    assert all(count == 1 for count in Counter(clip for shard in shards for clip in shard).values())


def test_epochs_and_seeds_differ() -> None:
    """The same seed and epoch repeat the order and the clips; another seed or epoch changes them."""

    def order(seed: int, epoch: int) -> tuple[Clips, int]:
        made = ClipOrder(films=9, clips_per_film=2, seed=seed, shuffle=True, films_open=3, even=False)
        return taken(made, epoch, 0, 1, [2] * 9), made.film_seed(epoch, 0)

    assert order(0, 0) == order(0, 0)
    assert len({str(order(seed, epoch)) for seed in range(3) for epoch in range(3)}) == 9

"""The burnt-in track: its choice, and what it shows at which time."""

import itertools
import zlib
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.segment.burn import Subtitle
from codecfleet.errors import InputTooLarge, Unsupported
from codecfleet.jobs.source.drawn import burnt_track as module
from codecfleet.jobs.source.drawn.burnt_track import NEVER_S, PackedShowing, burnt_track, in_order, read_burnt
from codecfleet.jobs.source.tracks import SourceDescription, Track, TrackKind, describe_tracks
from codecfleet.testing.clips import Clip, constant_times, make_clip
from tests.subtitle_tracks import Cue, bars, pgs_packet, with_subtitles

PGS, STYLED = "hdmv_pgs_subtitle", "ass"


def source_of(*tracks: tuple[str, str | None]) -> SourceDescription:
    """Return a source with subtitle tracks of (codec, language)."""
    every = tuple(
        Track(index=n + 2, kind=TrackKind.SUBTITLE, codec=codec, time_base=Fraction(1, 1000), language=language)
        for n, (codec, language) in enumerate(tracks)
    )
    return SourceDescription(url="film.mkv", format="matroska", tracks=every)


def showing(start_s: Fraction, end_s: Fraction | None, number: int | None) -> PackedShowing:
    """Return an event that shows subtitle ``number``, or clears the screen."""
    subtitle = Subtitle(
        start_s=Fraction(0),
        end_s=Fraction(0),
        canvas=(9, 9),
        x=number or 0,
        y=0,
        width=1,
        height=1,
        sha256="",
        packed=zlib.compress(b"abcd"),
    )
    return PackedShowing(start_s, end_s, None if number is None else subtitle)


@pytest.mark.parametrize(("asked", "index"), [(0, 2), (2, 4), ("deu", 3), ("DEU", 3), (None, None)])
def test_a_track_is_named_by_number_or_language(asked: int | str | None, index: int | None) -> None:
    """Numbers count from 0 among the subtitles; a language means its first track."""
    found = burnt_track(source_of((PGS, "eng"), (PGS, "deu"), (PGS, "deu")), asked)
    assert (None if found is None else found.index) == index


def test_what_cannot_be_burnt_in_is_refused() -> None:
    """If a track does not exist, the error lists those that do; styled text is refused too."""
    source = source_of((PGS, "eng"), (STYLED, None))
    for asked in (2, "fra"):
        with pytest.raises(Unsupported, match=r"it has 0: hdmv_pgs_subtitle eng, 1: ass"):
            burnt_track(source, asked)
    with pytest.raises(Unsupported, match="cannot be burnt in"):
        burnt_track(source, 1)
    with pytest.raises(Unsupported, match="it has none"):
        burnt_track(source_of(), 0)


TIMES = st.fractions(min_value=-5, max_value=50, max_denominator=1000)
SHOWINGS = st.lists(st.tuples(TIMES, st.none() | TIMES, st.booleans()), max_size=12)


@given(SHOWINGS, TIMES)
def test_what_is_on_screen(given_: list[tuple[Fraction, Fraction | None, bool]], at: Fraction) -> None:
    """At any time the last subtitle that has begun is on screen, unless it clears or has ended."""
    showings = [showing(start, end, n if shows else None) for n, (start, end, shows) in enumerate(given_)]
    begun = [(start, n) for n, (start, _, _) in enumerate(given_) if start <= at]
    due = None
    if begun:
        number = max(begun)[1]
        end = given_[number][1]
        due = number if given_[number][2] and (end is None or at < end) else None
    found = in_order(showings)
    shown = [each.x for each in found if each.start_s <= at < each.end_s]
    assert shown == ([] if due is None else [due])
    assert all(before.end_s <= after.start_s for before, after in itertools.pairwise(found))


def test_the_same_again_is_one() -> None:
    """A page that DVB repeats while it is on screen is held once, until it ends."""
    second = Fraction(1)
    pages = [showing(n * second, n * second + 2, 7) for n in range(5)]
    found = in_order([*pages, showing(9 * second, None, 7), showing(10 * second, None, 8)])
    assert [(each.start_s, each.end_s, each.x) for each in found] == [(0, 6, 7), (9, 10, 7), (10, NEVER_S, 8)]


def film_with(folder: Path, cues: list[Cue]) -> SourceDescription:
    """Return a film with a PGS track."""
    film = make_clip(folder / "film.mp4", Clip(times=constant_times(50), width=128, height=96))
    return describe_tracks(str(with_subtitles(film, folder / "both.mkv", [("pgssub", "eng", cues)])))


def test_a_track_is_read_whole(tmp_path: Path) -> None:
    """Each subtitle lasts until the next; undecodable ones are counted; the digest covers what is shown."""
    cues = [
        Cue(Fraction(1, 5), pgs_packet((128, 96), [(10, 60, bars(80, 20))])),
        Cue(Fraction(1), b"\x16\x00\x01"),
        Cue(Fraction(3, 2), pgs_packet((128, 96), [])),
        Cue(Fraction(9, 5), pgs_packet((128, 96), [(0, 0, bars(8, 8))])),
    ]
    source = film_with(tmp_path, cues)
    track = burnt_track(source, "eng")
    assert track is not None
    found = read_burnt(source.url, track, (128, 96), None).burnt((128, 96), Fraction(1))
    assert [(each.start_s, each.end_s) for each in found.subtitles] == [
        (Fraction(1, 5), Fraction(3, 2)),
        (Fraction(9, 5), NEVER_S),
    ]
    assert found.failed <= 1
    again = read_burnt(source.url, track, (128, 96), None).burnt((128, 96), Fraction(1))
    assert again.sha256 == found.sha256
    other = film_with(tmp_path, cues[:2])
    assert read_burnt(other.url, track, (128, 96), None).burnt((128, 96), Fraction(1)).sha256 != found.sha256


def test_a_track_takes_no_more_than_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too large a track is refused while it is read, before it is in memory."""
    source = film_with(
        tmp_path, [Cue(Fraction(n, 100), pgs_packet((128, 96), [(n % 9, 0, bars(80, 20))])) for n in range(90)]
    )
    track = burnt_track(source, 0)
    assert track is not None
    assert len(read_burnt(source.url, track, (128, 96), None).burnt((128, 96), Fraction(1)).subtitles) == 90
    monkeypatch.setattr(module, "MOST_BYTES", 40_000)
    with pytest.raises(InputTooLarge, match="take more than"):
        read_burnt(source.url, track, (128, 96), None).burnt((128, 96), Fraction(1))

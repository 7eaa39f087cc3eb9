"""The groups of sound and of subtitles from which a viewer chooses, by the rules of HLS."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, count

from ..names import one_line
from ..values import Package, PackagedTrack, PlayedKind

#: A viewer's choice, for which there may be several encodings: its language, its title, whether it is forced, and its
#: number among choices that are otherwise equal.
_Choice = tuple[str | None, str, bool, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One track of a group, as a viewer sees it."""

    track: PackagedTrack
    name: str  #: Unique in the group, and the same for the same choice in each group
    is_default: bool
    is_automatic: bool  #: Whether a player may choose it by the viewer's language


class AlternativeType(StrEnum):
    """The type of the tracks in a group, as HLS names it."""

    SOUND = "AUDIO"
    SUBTITLES = "SUBTITLES"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternatives:
    """A group of HLS: the tracks from which a player chooses one to play with a variant."""

    type: AlternativeType
    name: str
    members: tuple[Alternative, ...]

    @property
    def tracks(self) -> tuple[PackagedTrack, ...]:
        """The tracks of its members."""
        return tuple(each.track for each in self.members)


def sound_groups(package: Package) -> tuple[Alternatives, ...]:
    """Return the groups that the tracks name, or else one group for each codec and number of channels.

    AAC comes first, as every player knows it; of several AAC groups, the one with the fewest channels.

    HLS wants the same choices in each group. A group without a track for a choice takes one from an earlier group,
    never from a later group. So the AAC group, which plays everywhere, needs no other codec.
    """
    named: dict[str, list[PackagedTrack]] = {}
    for track in sorted(package.of(PlayedKind.AUDIO), key=lambda track: not _is_aac(track)):
        for name in track.given.groups or (f"{track.codec}-{track.channels}",):
            named.setdefault(name, []).append(track)
    ordered = sorted(named.items(), key=lambda group: _reach(group[1]))
    return _groups(AlternativeType.SOUND, dict(ordered))


def _is_aac(track: PackagedTrack) -> bool:
    return track.codec.startswith("mp4a.")


def _reach(members: Sequence[PackagedTrack]) -> tuple[bool, int]:
    """Return a sort key: the groups that more players can play come first."""
    if not all(map(_is_aac, members)):
        return True, 0  # other codecs stay in the order of their tracks
    return False, max(track.channels for track in members)


def text_groups(package: Package) -> tuple[Alternatives, ...]:
    """Return one group with all subtitles, or () if there are none."""
    tracks = package.of(PlayedKind.TEXT)
    return _groups(AlternativeType.SUBTITLES, {"text": tracks} if tracks else {})


def _groups(type_: AlternativeType, named: Mapping[str, Sequence[PackagedTrack]]) -> tuple[Alternatives, ...]:
    known: dict[_Choice, PackagedTrack] = {}
    groups: dict[str, dict[_Choice, PackagedTrack]] = {}
    for name, members in named.items():
        groups[name] = known | (own := _choices(members))
        known = own | known
    flagged = (choice for each in groups.values() for choice, track in each.items() if track.given.is_default)
    default = next(flagged, next(iter(known), None) if type_ is AlternativeType.SOUND else None)
    automatic = _first_of_each_language(sorted(known, key=lambda choice: choice != default))
    names = _names(known, type_)

    def alternative(choice: _Choice, track: PackagedTrack) -> Alternative:
        return Alternative(
            track=track, name=names[choice], is_default=choice == default, is_automatic=choice in automatic
        )

    return tuple(
        Alternatives(type=type_, name=name, members=tuple(alternative(*each) for each in members.items()))
        for name, members in groups.items()
    )


def _choices(members: Iterable[PackagedTrack]) -> dict[_Choice, PackagedTrack]:
    seen: Counter[tuple[str | None, str, bool]] = Counter()
    found: dict[_Choice, PackagedTrack] = {}
    for track in members:
        choice = (track.given.language, one_line(track.given.title), track.given.is_forced)
        found[*choice, seen[choice]] = track
        seen[choice] += 1
    return found


def _first_of_each_language(choices: Iterable[_Choice]) -> frozenset[_Choice]:
    first: dict[tuple[str | None, bool], _Choice] = {}
    for choice in choices:
        language, _, is_forced, _ = choice
        first.setdefault((language, is_forced), choice)
    return frozenset(first.values())


def _names(choices: Iterable[_Choice], type_: AlternativeType) -> dict[_Choice, str]:
    names: dict[_Choice, str] = {}
    for choice in choices:
        language, title, _, _ = choice
        wanted = title or language or type_.name.capitalize()
        others = chain([f"{wanted} ({language})"] if title and language else [], (f"{wanted} {n}" for n in count(2)))
        names[choice] = next(each for each in chain([wanted], others) if each not in names.values())
    return names

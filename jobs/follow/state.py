"""The journal of a followed recording: which parts are encoded, and which segments are published."""

import json
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

from ...actors.media.whole_file import write_whole
from ...errors import JournalRefused
from ..join.spool import storage_error
from ..report.report import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedPart:
    """An encoded and proven window, as the journal keeps it."""

    first: int  #: The numbers of its segments: [``first``, ``until``)
    until: int
    ends: tuple[int | None, ...]  #: Where its segments end, in ticks; None at the end of the source
    ends_s: Fraction  #: Where its pictures end in the package
    begins_s: Fraction  #: The time of its first picture, on the source's clock
    fullness_bits: dict[str, Fraction]  #: How full a decoder's buffer is after it, by rendition with a rate limit
    sound: dict[int, Fraction]  #: The package time of each sound file's time 0, by the track's number
    reports: dict[str, dict[str, Any]]  #: The report of each rendition

    @property
    def is_last(self) -> bool:
        """Whether it ends at the end of the source."""
        return self.ends[-1] is None

    def report(self, name: str) -> Report:
        """Return the report of a rendition."""
        return Report.model_validate(self.reports[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowState:
    """All that a new run needs to continue the ladder."""

    identity: tuple[int, int]  #: The recording's device and inode
    request: str  #: The options that may not change, in JSON
    size_bytes: int = 0  #: The recording's size when the newest part was added; a smaller file is refused
    groups: tuple[tuple[str, ...], ...] = ()  #: The groups of each sound track; () if the preset names none
    origin_s: Fraction | None = None  #: The package's time 0 on the source's clock
    ended_bytes: int | None = None  #: The recording's final size; None while it may grow
    parts: tuple[FollowedPart, ...] = ()
    published: dict[str, int] = field(default_factory=dict)  #: How many segments of each track are in the playlists

    @property
    def ends(self) -> tuple[int | None, ...]:
        """Where the encoded segments end, in ticks; None at the end of the source."""
        return tuple(ticks for part in self.parts for ticks in part.ends)

    @property
    def tracks(self) -> frozenset[str]:
        """The names of the tracks that may have been published."""
        first = self.parts[:1]
        return frozenset(name for part in first for name in (*part.reports, *(f"sound-{n}" for n in part.sound)))

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Return the state in a file; None if there is none. Raises JournalRefused: another version wrote it."""
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise JournalRefused(f"{path} cannot be read: {error}", "Choose another folder.") from error
        try:
            parts = tuple(_part(each) for each in found.pop("parts"))
            origin = found.pop("origin_s")
            identity = (int(found["identity"][0]), int(found["identity"][1]))
            groups = tuple(map(tuple, found["groups"]))
            known = {"identity": identity, "groups": groups, "parts": parts, "origin_s": _time(origin)}
            return cls(**found | known)
        except (KeyError, TypeError, ValueError) as error:
            message = f"{path} is from another version of codecfleet"
            raise JournalRefused(message, "Choose another folder.") from error

    def write(self, path: Path) -> None:
        """Replace the file in one step. Raises StorageFailed."""
        try:
            write_whole(path, json.dumps(asdict(self), default=str).encode())
        except OSError as error:
            raise storage_error(error, path) from error


def _part(found: dict[str, Any]) -> FollowedPart:
    times = {name: _time(found[name]) for name in ("ends_s", "begins_s")}
    fullness = {name: Fraction(bits) for name, bits in found["fullness_bits"].items()}
    sound = {int(index): Fraction(time_s) for index, time_s in found["sound"].items()}
    return FollowedPart(**found | times | {"ends": tuple(found["ends"]), "fullness_bits": fullness, "sound": sound})


def _time(text: str | None) -> Fraction | None:
    return None if text is None else Fraction(text)

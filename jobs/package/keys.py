"""Reads the file of ``--keys``. No message repeats its content, because a secret may be anywhere in the file."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from ...cluster.toml_file import read_toml
from ...errors import UsageError
from .values import PlayedKind, Scheme, TrackKey

_PAGE: Final = 'docs/ladder.md, "Keys", describes the file.'
_ENTRY: Final = "key"
_ALLOWED: Final = frozenset({"kid", "key", "uri", "format", "tracks"})
_HEX: Final = re.compile(r"[0-9A-Fa-f]{32}")
_KINDS: Final = (PlayedKind.VIDEO.value, PlayedKind.AUDIO.value)
_VALUE: Final = re.compile(r"[!#-~]+")
"""ASCII without spaces and quotes."""
_SOUND: Final = re.compile(r"sound-\d+")


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a file, by the name or the kind of a track; None has the key of all other tracks."""

    path: str
    by_name: Mapping[str | None, TrackKey]

    def of(self, pictures: Mapping[str, str], sounds: Iterable[str]) -> dict[str, TrackKey]:
        """Return the key of each track by its name. Raises UsageError: one has no key.

        ``pictures`` has, for each track of pictures, the rendition of the preset whose key it gets.
        """
        found = {name: self._of(preset, PlayedKind.VIDEO) for name, preset in pictures.items()}
        found |= {name: self._of(name, PlayedKind.AUDIO) for name in sounds}
        if clear := [name for name, key in found.items() if key is None]:
            message = f"{self.path} has no key for {', '.join(clear)}"
            raise UsageError(message, "Leave `tracks` out of one key: it is then for all other tracks.")
        return {name: key for name, key in found.items() if key is not None}

    def _of(self, name: str, kind: PlayedKind) -> TrackKey | None:
        return self.by_name.get(name) or self.by_name.get(kind.value) or self.by_name.get(None)


def read_keys(path: str, renditions: Collection[str]) -> Keys:
    """Return the keys of a file for a preset with these renditions. Raises UsageError: it is missing or wrong."""
    try:
        file = read_toml("key file", path, missing="Check the path.", wrong=_PAGE, parse_float=str)
    except UsageError as error:
        if not isinstance(error.__context__, ValueError | RecursionError):
            raise  # the file cannot be read
        # The parser's message may repeat the names in the file.
        raise UsageError(f"the key file {path} is not valid TOML", _PAGE) from None
    entries = file.tables.get(_ENTRY)
    if set(file.tables) - {_ENTRY, "scheme"} or not isinstance(entries, list) or not entries:
        raise UsageError(f"{path} must have at least one [[{_ENTRY}]], and nothing else but a scheme", _PAGE)
    if file.tables.get("scheme", Scheme.CBCS) not in list(Scheme):
        raise UsageError(f"{path}: the scheme is neither cbcs nor cenc", _PAGE)
    scheme = Scheme(file.tables.get("scheme", Scheme.CBCS))
    by_name: dict[str | None, TrackKey] = {}
    for number, table in enumerate(entries, 1):
        place = f"{path}: [[{_ENTRY}]] {number}"
        key = _key(place, table, scheme)
        if any(each.kid == key.kid for each in by_name.values()):
            _refuse(place, "has the kid of an earlier key")
        for name in _tracks(place, table, renditions):
            if name in by_name:
                _refuse(place, "names a track that already has a key")
            by_name[name] = key
    return Keys(path, by_name)


def _refuse(place: str, what: str) -> NoReturn:
    raise UsageError(f"{place} {what}", _PAGE)


def _key(place: str, table: object, scheme: Scheme) -> TrackKey:
    if not isinstance(table, dict) or set(table) - _ALLOWED:
        _refuse(place, f"may have only {', '.join(sorted(_ALLOWED))}")
    for name in ("kid", "key"):
        if not isinstance(table.get(name), str) or not _HEX.fullmatch(table[name].replace("-", "")):
            _refuse(place, f"has no {name} of 32 hexadecimal digits")
    for name in [each for each in ("uri", "format") if each in table]:
        if not isinstance(table[name], str) or not _VALUE.fullmatch(table[name]):
            _refuse(place, f"has a {name} that is not text, or that has quotes or spaces")
    kid, key = (bytes.fromhex(table[name].replace("-", "")) for name in ("kid", "key"))
    return TrackKey(scheme, kid, key, **{name: table[name] for name in ("uri", "format") if name in table})


def _tracks(place: str, table: Mapping[str, Any], renditions: Collection[str]) -> list[str | None]:
    tracks = table.get("tracks")
    if tracks is None:
        return [None]
    if not isinstance(tracks, list) or not tracks or not all(isinstance(each, str) for each in tracks):
        _refuse(place, "has tracks that are not a list of names")
    known = {*_KINDS, *renditions}
    if not all(each in known or _SOUND.fullmatch(each) for each in tracks):
        _refuse(place, f"names a track that is none of {', '.join(sorted(known))}, sound-1 ...")
    return list(dict.fromkeys(tracks))

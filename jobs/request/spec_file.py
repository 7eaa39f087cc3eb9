"""Specs in files: a TOML file whose keys are the options of ``codecfleet transcode``, for jobs that come again.

A key has its option's name with ``_`` for ``-``; lists and tables are in the plural. Values are written as on the
command line, numbers without quotes too. docs/config.md lists every key.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from ...actors.encode.settings import Codec
from ...errors import UsageError
from .spec import TranscodeSpec, first_objection
from .values import parse_choice, parse_count, parse_counts, parse_rate, parse_size, parse_time, refusal

__all__ = ["KEYS", "Key", "load_spec"]

_HELP: Final = "docs/config.md lists the keys and their values."
_GIVEN_WITH_THE_JOB: Final = frozenset({"source", "output"})
_ENCODER_OPTION_WORDS: Final = (str, int)

Reader = Callable[[str, object], Any]


def load_spec(path: str | Path, *, source: str, output: str, **overrides: object) -> TranscodeSpec:
    """Return the spec that a TOML file describes, for one input and output.

    Args:
        path: the file.
        source: as in ``TranscodeSpec``; a file never names its input.
        output: as in ``TranscodeSpec``; nor its output.
        overrides: fields of ``TranscodeSpec`` that count instead of the file's. A bitrate given here takes the place
            of the file's quality too, and the other way round.

    Raises:
        UsageError: the file cannot be read, is no TOML, has a key or a value that makes no sense; or the fields do
            not fit together.
    """
    fields = _read_fields(Path(path))
    if "bitrate_bps" in overrides:
        fields.pop("quality", None)
    if "quality" in overrides:
        fields.pop("bitrate_bps", None)
    try:
        return TranscodeSpec.model_validate({**fields, **overrides, "source": source, "output": output})
    except ValidationError as error:
        message = f"{path}: {first_objection(error)}"
        raise UsageError(message, _HELP) from None


def _read_fields(path: Path) -> dict[str, Any]:
    document = _read_toml(path)
    fields = {}
    for name, value in document.items():
        key = KEYS.get(name)
        if key is None:
            raise _unknown_key(path, name)
        fields[key.field] = key.read(f"{path}: {name}", value)
    return fields


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        # A float would round times and rates; as text they reach the same parsers as the command line's.
        return tomllib.loads(path.read_text(encoding="utf-8"), parse_float=str)
    except OSError as error:
        message = f"the spec {path} cannot be read: {error.strerror}"
        raise UsageError(message, "Check the path.") from None
    except UnicodeDecodeError:
        message = f"the spec {path} is not UTF-8 text"
        raise UsageError(message, "Save it as UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        message = f"the spec {path} is no TOML: {error}"
        raise UsageError(message, 'Text stands in quotes: start = "1:30".') from None


def _unknown_key(path: Path, name: str) -> UsageError:
    message = f"{path}: there is no key {name}"
    if name in _GIVEN_WITH_THE_JOB:
        return UsageError(message, "Input and output are given with each job, not in its spec.")
    near = get_close_matches(name.replace("-", "_"), KEYS, n=1, cutoff=0.5)
    return UsageError(message, f"Did you mean {near[0]}?" if near else _HELP)


def _words(value: object) -> str | None:
    """Return a TOML text or number as the text a user would type; None for anything else (``true``, a date, a list)."""
    return str(value) if isinstance(value, _ENCODER_OPTION_WORDS) and not isinstance(value, bool) else None


def _read_words(parse: Callable[[str, str], Any], kind: str) -> Reader:
    def read(name: str, value: object) -> Any:  # noqa: ANN401 - what the parser returns
        words = _words(value)
        if words is None:
            raise refusal(name, str(value), f"not {kind}", "Write text in quotes, or a number.")
        return parse(name, words)

    return read


def _read_choice(*choices: str) -> Reader:
    return _read_words(partial(parse_choice, choices=choices), "one of its values")


def _read_count(least: int, most: int) -> Reader:
    return _read_words(partial(parse_count, least=least, most=most), "a whole number")


def _read_codec(name: str, value: object) -> Codec:
    return Codec(_read_choice(*(codec.value for codec in Codec))(name, value))


def _read_name(name: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise refusal(name, str(value), "not a name", 'Write text in quotes: "yuv420p10le".')
    return value


def _read_flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise refusal(name, str(value), "neither true nor false", "Write true or false, without quotes.")
    return value


def _read_counts(name: str, value: object) -> tuple[int, ...]:
    words = [_words(item) for item in value] if isinstance(value, list) else [None]
    if None in words:
        raise refusal(name, str(value), "not a list of whole numbers", "Write [0, 2].")
    return parse_counts(name, [word for word in words if word is not None])


def _read_pairs(name: str, value: object) -> tuple[tuple[str, str], ...]:
    table: Mapping[str, object] = value if isinstance(value, dict) else {"": None}
    pairs = [(key, _words(item)) for key, item in table.items()]
    if not all(key and words for key, words in pairs):
        raise refusal(name, str(value), "not a table of options", 'Write { tune = "film", bf = 3 }.')
    return tuple((key, words or "") for key, words in pairs)


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a spec file: the field of ``TranscodeSpec`` it sets, and how its values are read."""

    field: str
    read: Reader


_READ_RATE: Final = _read_words(parse_rate, "a rate in bits")
_READ_TIME: Final = _read_words(parse_time, "a time")
_READ_LENGTH: Final = _read_words(partial(parse_time, positive=True), "a length of time")
_READ_TRACK: Final = _read_count(0, 1_000)

KEYS: Final[Mapping[str, Key]] = {
    "codec": Key("codec", _read_codec),
    "quality": Key("quality", _read_count(0, 63)),
    "bitrate": Key("bitrate_bps", _READ_RATE),
    "maxrate": Key("maxrate_bps", _READ_RATE),
    "bufsize": Key("bufsize_bits", _READ_RATE),
    "preset": Key("preset", _read_count(1, 7)),
    "encoder_options": Key("encoder_options", _read_pairs),
    "scale": Key("scale", _read_words(parse_size, "a picture size")),
    "pix_fmt": Key("pix_fmt", _read_name),
    "deinterlace": Key("deinterlace", _read_choice("off", "auto", "on")),
    "start": Key("start_s", _READ_TIME),
    "end": Key("end_s", _READ_LENGTH),
    "video_track": Key("video_track", _READ_TRACK),
    "audio_tracks": Key("audio_tracks", _read_counts),
    "audio": Key("audio", _read_choice("copy", "aac", "opus", "none")),
    "subtitles": Key("subtitles", _read_choice("copy", "none")),
    "segment_seconds": Key("segment_s", _READ_LENGTH),
    "workers": Key("workers", _read_count(1, 10_000)),
    "priority": Key("priority", _read_count(0, 100)),
    "weight": Key("weight", _read_count(1, 100)),
    "device": Key("device", _read_choice("auto", "cpu", "gpu")),
    "encoder": Key("encoder", _read_choice("auto", "software", "nvenc")),
    "fragmented": Key("fragmented", _read_flag),
    "overwrite": Key("overwrite", _read_flag),
    "strict": Key("strict", _read_flag),
    "force": Key("force", _read_flag),
}
"""Every key, in the order of ``TranscodeSpec``'s fields."""

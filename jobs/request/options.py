"""Declares each option once: ``Option`` is metadata of a pydantic field, for the command line, TOML files and docs.

The field's type and bounds define the values; a type with a special notation names a ``Kind``.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import cache, partial
from types import UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from ...actors.encode.settings import Codec
from ...cluster.toml_file import first_problem
from ...errors import UsageError
from .spellings import parse_codec, parse_preset
from .values import (
    parse_bytes,
    parse_choice,
    parse_count,
    parse_counts,
    parse_crop,
    parse_frame_rate,
    parse_grid,
    parse_loudness,
    parse_numbers,
    parse_pad,
    parse_pairs,
    parse_path,
    parse_place,
    parse_rate,
    parse_size,
    parse_target,
    parse_time,
    parse_title,
    parse_track,
    refusal,
)

ModelT = TypeVar("ModelT", bound=BaseModel)
Speller = Callable[[str], str]  #: Returns a field's name in the user's spelling


@dataclass(frozen=True, slots=True)
class Kind:
    """How a kind of value is written on the command line and in TOML files, and how it is parsed."""

    metavar: str
    values: str  #: The notation in a TOML file, for docs/config.md
    #: Returns the value; takes a name for errors, and the text from the command line or the value from TOML
    read: Callable[[str, object], Any]
    is_list: bool = False  #: Whether the command line may repeat the option
    #: Takes a value, or an item of a list, and returns the text from which ``read`` makes it
    write: Callable[[Any], str] = str


def _word(raw: object) -> str | None:
    return str(raw) if isinstance(raw, str | int) and not isinstance(raw, bool) else None


def _words(noun: str, parse: Callable[[str, str], Any], name: str, raw: object) -> object:
    if (word := _word(raw)) is None:
        raise refusal(name, str(raw), f"not {noun}", "Write text in quotes, or a number.")
    return parse(name, word)


def _flag(name: str, raw: object) -> bool:
    if not isinstance(raw, bool):
        raise refusal(name, str(raw), "neither true nor false", "Write true or false, without quotes.")
    return raw


def _name(name: str, raw: object) -> str:
    if not isinstance(raw, str):
        raise refusal(name, str(raw), "not text", "Put the value in quotes.")
    return parse_path(name, raw)


def _names(name: str, raw: object) -> tuple[str, ...]:
    if not isinstance(raw, list):
        raise refusal(name, str(raw), "not a list of names", 'Write ["films", "more"].')
    return tuple(_name(name, each) for each in raw)


def _counts(name: str, raw: object) -> tuple[int, ...]:
    words = [_word(item) for item in raw] if isinstance(raw, list) else [None]
    if None in words:
        raise refusal(name, str(raw), "not a list of whole numbers", "Write [0, 2].")
    return parse_counts(name, [word for word in words if word is not None])


def _pairs(name: str, raw: object) -> tuple[tuple[str, str], ...]:
    if isinstance(raw, list) and all(isinstance(item, str) for item in raw):
        return parse_pairs(name, raw)
    pairs = [(key, _word(item)) for key, item in raw.items()] if isinstance(raw, dict) else [("", None)]
    if not all(key and word for key, word in pairs):
        raise refusal(name, str(raw), "not a table of options", 'Write { tune = "film", bf = 3 }.')
    return tuple((key, word or "") for key, word in pairs)


def _size_text(sides: tuple[int | None, int]) -> str:
    width, height = sides
    return f"{height}p" if width is None else f"{width}x{height}"


def _pad_text(value: tuple[int, int] | Fraction) -> str:
    return f"{value.numerator}:{value.denominator}" if isinstance(value, Fraction) else _size_text(value)


def _joined(separator: str, value: object) -> str:
    return separator.join(map(str, value)) if isinstance(value, tuple) else str(value)


def _decimal(value: Fraction) -> str:
    return str(Decimal(value.numerator) / value.denominator)


NAME: Final = Kind("NAME", "text", _name)
RATE: Final = Kind("RATE", "rate", partial(_words, "a rate in bits", parse_rate))
BYTES: Final = Kind("BYTES", "size", partial(_words, "a size in bytes", parse_bytes))
SIZE: Final = Kind(
    "WxH|720p", '`"1280x720"` or `"720p"`', partial(_words, "a picture size", parse_size), write=_size_text
)
CROP: Final = Kind(
    "auto|W:H:X:Y",
    '`"auto"` or `"1920:800:0:140"`',
    partial(_words, "a part of a picture", parse_crop),
    write=partial(_joined, ":"),
)
PAD: Final = Kind(
    "WxH|W:H",
    '`"1920x1080"` or `"16:9"`',
    partial(_words, "a picture size or shape", parse_pad),
    write=_pad_text,
)
FPS: Final = Kind("N|N/D", '`25` or `"30000/1001"`', partial(_words, "a frame rate", parse_frame_rate))
PLACE: Final = Kind(
    "X,Y|CORNER",
    '`"20,30"` or `"top-left"`',
    partial(_words, "a place in a picture", parse_place),
    write=partial(_joined, ","),
)
TRACK: Final = Kind("N|LANGUAGE", '`0` or `"eng"`', partial(_words, "a track's number or language", parse_track))
GRID: Final = Kind("COLUMNSxROWS", '`"10x10"`', partial(_words, "a grid", parse_grid), write=_size_text)
LOUDNESS: Final = Kind("LUFS", "`-23` or `-16.5`", partial(_words, "a loudness", parse_loudness), write=_decimal)
NUMBERS: Final = Kind("M[,M,M]", "text", partial(_words, "text", parse_numbers))
COUNTS: Final = Kind("N", "list of numbers", _counts, is_list=True)
PAIRS: Final = Kind("K=V", "table of strings or whole numbers", _pairs, is_list=True, write="=".join)
FLAG: Final = Kind("", "`true`, `false`", _flag)
TARGET: Final = Kind("METRIC:VALUE", '`"xpsnr:42"`', partial(_words, "a target quality", parse_target))
TITLE: Final = Kind("METRIC[:VALUE]", '`"xpsnr"` or `"vmaf:94"`', partial(_words, "a metric", parse_title))
CODEC: Final = Kind(
    "|".join(Codec), ", ".join(f'`"{each}"`' for each in Codec), partial(_words, "an allowed value", parse_codec)
)
PRESET: Final = Kind(
    "1..7", "1 to 7, or x264's name for the speed", partial(_words, "a whole number or a preset's name", parse_preset)
)
TIME: Final = Kind("TIME", "time", partial(_words, "a time", parse_time))
NAMES: Final = Kind("NAME", "list of strings", _names, is_list=True)
_FRACTION: Final = re.compile(r"-?[0-9]+(?:/[1-9][0-9]*)?")
_KINDS: Final[Mapping[object, Kind]] = {
    bool: FLAG,
    str: NAME,
    Fraction: TIME,
    tuple[tuple[str, str], ...]: PAIRS,
}


def as_written(kind: Kind, value: object) -> object:
    """Return the value of a field; text is parsed as on the command line. Raises ValueError: the text is invalid.

    Text that pydantic reads itself is returned unchanged: names, flags, and fractions such as ``3/2``, as journals
    have them.
    """
    if isinstance(value, str):
        texts = [value]
    elif kind.is_list and isinstance(value, list | tuple) and value and all(isinstance(each, str) for each in value):
        texts = list(value)
    else:
        return value
    if kind in (NAME, NAMES, FLAG) or (kind in (TIME, LOUDNESS) and _FRACTION.fullmatch(texts[0])):
        return value
    try:
        found: object = kind.read("", texts if kind.is_list else texts[0])
    except UsageError as error:
        raise ValueError(f"{error.message.lstrip()}. {error.next_step.rstrip('.')}") from None
    return found


@dataclass(frozen=True, slots=True)
class Option:
    """How a field is written on the command line and in TOML files.

    The docs turn ``docs/NAME.md`` and ``--flags`` in these help texts into links and keys.
    """

    flag: str  #: A flag, or the name of a positional argument; "" if only files and variables set the field
    panel: str | None = None  #: The option's group in the help
    default: str = ""  #: The meaning of an absent value, in words
    example: str = ""  #: An example of a value in TOML
    key: str = ""  #: The key in TOML files; by default the name of the flag, or of the field
    metavar: str = ""  #: By default the kind's metavar
    kind: Kind = NAME  #: Needed only if the field's type does not imply the kind
    help: str = ""  #: The field's description
    aliases: tuple[str, ...] = ()  #: Other flags

    @property
    def is_argument(self) -> bool:
        """Whether the option is a positional argument."""
        return bool(self.flag) and not self.flag.startswith("--")

    @property
    def also(self) -> tuple[str, ...]:
        """The aliases, spelled as keys in TOML files."""
        return tuple(alias.removeprefix("--").replace("-", "_") for alias in self.aliases)

    @property
    def text(self) -> str:
        """The option's help text on the command line."""
        also = f" Also {', '.join(self.aliases)}." * bool(self.aliases)
        text = f"{self.help}{also}{' Repeatable.' * self.kind.is_list}"
        return f"{text} Default: {self.default}." if self.default else text


def _kind_of(field: FieldInfo) -> Kind:
    type_: Any = field.annotation
    if get_origin(type_) in (Union, UnionType):
        (type_,) = (each for each in get_args(type_) if each is not type(None))
    if isinstance(type_, type) and issubclass(type_, Enum):
        return _choice([each.value for each in type_])
    if get_origin(type_) is Literal:
        return _choice(get_args(type_))
    if type_ is int:
        least, most = (
            next(getattr(each, bound) for each in field.metadata if hasattr(each, bound)) for bound in ("ge", "le")
        )
        parse = partial(parse_count, least=least, most=most)
        return Kind("N", f"{least} to {most}", partial(_words, "a whole number", parse))
    return _KINDS[type_]


def _choice(choices: Sequence[str]) -> Kind:
    parse = partial(parse_choice, choices=choices)
    listed = ", ".join(f'`"{choice}"`' for choice in choices)
    read = partial(_words, "an allowed value", parse)
    return Kind("|".join(choices), listed, read, write=lambda value: str(getattr(value, "value", value)))


@cache
def options_of(model: type[BaseModel]) -> Mapping[str, Option]:
    """Return a model's options by field, in order, with kinds and defaults filled in."""
    return {
        name: _settled(name, field, option)
        for name, field in model.model_fields.items()
        for option in field.metadata
        if isinstance(option, Option)
    }


def _settled(name: str, field: FieldInfo, option: Option) -> Option:
    kind = _kind_of(field) if option.kind is NAME else option.kind
    stated = option.default or kind is FLAG or field.default in (None, ()) or field.is_required()
    return replace(
        option,
        kind=kind,
        help=field.description or "",
        key="" if option.is_argument else option.key or option.flag.removeprefix("--").replace("-", "_") or name,
        metavar=option.metavar or kind.metavar,
        default=option.default if stated else str(field.default),
    )


def with_own_names(given: Mapping[str, Any], aliases: Mapping[str, str]) -> dict[str, Any]:
    """Replace aliases by names, as {alias: name} says. Raises ValueError: an option is given under both names."""
    for alias, name in aliases.items():
        if alias in given and name in given:
            raise ValueError(f"{alias} and {name} are one option: leave one of them out")
    return {aliases.get(name, name): value for name, value in given.items()}


def flag_of(model: type[BaseModel]) -> Speller:
    """Return a function that spells a model's fields as the command line does."""
    return lambda field: options_of(model)[field].flag


def build(model: type[ModelT], fields: Mapping[str, Any], spell: Speller, next_step: str) -> ModelT:
    """Return a model of these fields.

    Raises UsageError: a value is invalid; ``spell`` spells the field's name in the error.
    """
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        where, problem = first_problem(error)
        said = f"{spell(where[0])}: {problem}" if where else re.sub(r"`(\w+)`", lambda m: spell(m[1]), problem)
        raise UsageError(said, next_step) from None


def command_line(command: str, spec: BaseModel) -> tuple[str, ...]:
    """Return a command line with the fields that were set in a spec.

    Raises UsageError: the command would refuse a value, or cannot express it.
    """
    arguments, flags = [command], []
    for field, option in options_of(type(spec)).items():
        value = getattr(spec, field)
        # Without --preset the configuration's preset applies, which may change the codec.
        if value is None or value is False or field not in {*spec.model_fields_set, "preset"}:
            continue
        if option.kind is FLAG:
            flags.append(option.flag)
        elif option.is_argument:
            arguments += [re.sub("^-(?=.)", "./-", text) for text in _texts(option, value)]  # a name, not an option
        else:
            flags += [f"{option.flag}={text}" for text in _texts(option, value)]
    return *arguments, *flags


def _texts(option: Option, value: Any) -> list[str]:  # noqa: ANN401 - any field
    kind = option.kind
    if kind is COUNTS and not value:
        raise UsageError(f"{option.flag} cannot be an empty list", "Leave the sound out with audio='none'.")
    texts = [kind.write(each) for each in (value if kind.is_list else [value])]
    kind.read(option.flag, texts if kind.is_list else texts[0])
    return texts

"""Merges a job's options from several layers: configuration, preset, spec file, command line."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from .options import Speller, build
from .spellings import CODECS

SpecT = TypeVar("SpecT", bound=BaseModel)
_RATES: Final = frozenset(
    {"quality", "bitrate_bps", "target_quality", "size_bytes"}
)  #: Fields of which a spec may have at most one
_OF_A_CODEC: Final = ("quality", "encoder_options")  #: Fields whose values are valid for only one codec
_OF_ENCODED_SOUND: Final = ("audio_bitrate_bps", "audio_channels", "loudness_lufs")


@dataclass(frozen=True, slots=True)
class Layer:
    """The fields of a spec from one layer, and how that layer spells their names."""

    fields: Mapping[str, Any]
    spell: Speller


def spec_of(model: type[SpecT], layers: Sequence[Layer], next_step: str) -> SpecT:
    """Build ``model`` from all layers; later layers take precedence, as ``left_by`` describes.

    Raises UsageError: a field is invalid, or fields conflict; the message names fields as their layer does.
    """
    values: dict[str, Any] = {}
    spellers: dict[str, Speller] = {}
    for layer in layers:
        values = left_by(values, layer.fields) | dict(layer.fields)
        spellers |= dict.fromkeys(layer.fields, layer.spell)
    return build(model, values, lambda field: spellers.get(field, layers[-1].spell)(field), next_step)


def left_by(former: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of ``former`` that still apply under ``given``.

    Quality, bitrate, size and target quality replace one another. If ``given`` has another codec, the former quality
    and encoder options are dropped. If it has ``audio`` copy or none, the former settings of encoded sound are dropped.
    """
    ended = {*given, *_ended(former, given)}
    return {field: value for field, value in former.items() if field not in ended}


def _ended(former: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[str]:
    if not _RATES.isdisjoint(given):
        yield from _RATES
    codecs = [CODECS.get(str(fields.get("codec")).lower()) for fields in (former, given)]
    if None not in codecs and codecs[0] is not codecs[1]:
        yield from _OF_A_CODEC
    if given.get("audio") in ("copy", "none"):
        yield from _OF_ENCODED_SOUND

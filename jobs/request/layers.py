"""A job's options from several places, one over the other: configuration, preset, spec file, command line."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from .options import Speller, build
from .spellings import CODECS

SpecT = TypeVar("SpecT", bound=BaseModel)
_EXCLUDED: Final = {"quality": "bitrate_bps", "bitrate_bps": "quality"}
_OF_A_CODEC: Final = ("quality", "encoder_options")  #: What another codec's encoder reads otherwise, or not at all
_OF_ENCODED_SOUND: Final = ("audio_bitrate_bps", "audio_channels", "loudness_lufs")


@dataclass(frozen=True, slots=True)
class Layer:
    """The fields of a spec that one place gives, and the names that they have there."""

    fields: Mapping[str, Any]
    spell: Speller


def spec_of(model: type[SpecT], layers: Sequence[Layer], next_step: str) -> SpecT:
    """Return the ``model`` of all layers; later ones win (``left_by``), and the last one spells what none has.

    Raises UsageError: the fields do not fit together, or one makes no sense.
    """
    values: dict[str, Any] = {}
    spellers: dict[str, Speller] = {}
    for layer in layers:
        values = left_by(values, layer.fields) | dict(layer.fields)
        spellers |= dict.fromkeys(layer.fields, layer.spell)
    return build(model, values, lambda field: spellers.get(field, layers[-1].spell)(field), next_step)


def left_by(former: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of ``former`` still counts under ``given``.

    Quality and bitrate end each other; another codec ends the quality and options meant for the earlier one; sound that
    is not encoded ends how it would be.
    """
    ended = {*given, *_ended(former, given)}
    return {field: value for field, value in former.items() if field not in ended}


def _ended(former: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[str]:
    yield from (_EXCLUDED[field] for field in given if field in _EXCLUDED)
    codecs = [CODECS.get(str(fields.get("codec")).lower()) for fields in (former, given)]
    if None not in codecs and codecs[0] is not codecs[1]:
        yield from _OF_A_CODEC
    if given.get("audio") in ("copy", "none"):
        yield from _OF_ENCODED_SOUND

"""An encoded segment without its payload, as plain values, and back."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Final

import numpy as np

from ...actors.decode.decoding import PictureHash
from ...actors.media.timeline import RepairedTime
from ...actors.segment.encoding import EncodedSegment
from ...actors.segment.walk import SegmentTally

_ARRAYS: Final = {"pts_ticks": "<i8", "sizes_bytes": "<i8", "keyframes": "|b1"}
"""The arrays with an entry for each packet, and how their entries are written."""
_PLAIN: Final = tuple(
    each.name for each in fields(EncodedSegment) if each.name not in {*_ARRAYS, "payload", "tally", "resized"}
)


class BadFacts(ValueError):
    """The values are not those of a segment."""


def packed_facts(segment: EncodedSegment) -> dict[str, Any]:
    """Return all but the payload."""
    arrays = {name: np.asarray(getattr(segment, name)).astype(kind).tobytes() for name, kind in _ARRAYS.items()}
    plain = {name: getattr(segment, name) for name in _PLAIN}
    resized = [[width, height, count] for (width, height), count in segment.resized.items()]
    return {**plain, **arrays, "resized": resized, "tally": asdict(segment.tally)}


def facts_of(values: Mapping[str, Any]) -> EncodedSegment:
    """Return the segment, whose payload is empty.

    Raises:
        BadFacts: something is missing, too much, or of another kind.
    """
    try:
        arrays: dict[str, Any] = {
            name: np.frombuffer(values[name], dtype=kind).copy() for name, kind in _ARRAYS.items()
        }
        segment = EncodedSegment(
            **{name: values[name] for name in _PLAIN},
            **arrays,
            payload=np.empty(0, dtype=np.uint8),
            tally=_tally(values["tally"]),
            resized={(width, height): count for width, height, count in values["resized"]},
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadFacts(f"{type(error).__name__}: {error}") from error
    if len({len(array) for array in arrays.values()}) != 1:
        raise BadFacts("the arrays differ in length")
    return segment


def _tally(values: Mapping[str, Any]) -> SegmentTally:
    plain: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    for name in ("seam_before", "seam_after"):
        plain[name] = tuple(PictureHash(**each) for each in values[name])
    return SegmentTally(**{**plain, "repaired": RepairedTime(**values["repaired"])})

"""The records of a journal, and their format as a stream of bytes. Pure.

    record = length (4 bytes, little endian) | checksum (16 bytes) | content (msgpack)

A checksum is BLAKE2b over the previous checksum and the content, so a changed, missing, repeated or moved record ends
the readable part. Any beginning of a stream can be read, and gives the first records.
"""

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, TypeAlias

import msgpack
import numpy as np

from ...actors.decode.picture_hash import PictureHash
from ...actors.media.timeline import RepairedTime
from ...actors.segment.encoding import EncodedSegment
from ...actors.segment.targeting import ReachedQuality
from ...actors.segment.walk import SegmentTally

FORMAT: Final = 1
CHECKSUM_BYTES: Final = 16
_LENGTH: Final = struct.Struct("<I")
_FIRST: Final = f"codecfleet journal {FORMAT}".encode().ljust(CHECKSUM_BYTES, b"\0")[:CHECKSUM_BYTES]
"""The checksum before the first record."""
_TEXT: Final = {"unicode_errors": "surrogateescape"}  #: File names need not be valid text
#: Arrays that hold a value for each packet
_ARRAYS: Final = {"pts_ticks": "<i8", "sizes_bytes": "<i8", "keyframes": "|b1"}
_PLAIN: Final = tuple(
    each.name
    for each in fields(EncodedSegment)
    if each.name not in {*_ARRAYS, "payload", "tally", "resized", "quality"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHeader:
    """The first record: a description of the job in plain values."""

    job: Mapping[str, Any]  #: everything that determines the output's bytes, except ``encoder``
    encoder: Mapping[str, Any]  #: the encoder's kind, and a digest of its settings
    spec: Mapping[str, Any]  #: the fields of the request, with which the job is continued
    output: str
    segments: int


@dataclass(frozen=True, slots=True)
class Begun:
    """A segment went to a worker."""

    segment: int


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """A segment is encoded, and its payload is stored."""

    segment: int
    until: int  #: the last planned segment that the encoded segment covers
    entry_moves: int
    attempt: int
    facts: EncodedSegment  #: the segment without its payload
    payload_bytes: int
    payload_sha256: str
    #: all encodings of the segment for a rate, each as (pass, CRF, bytes); the last one is stored
    tries: tuple[tuple[int, str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class OtherBytes:
    """The size of everything in the output except the pictures, after a pass over the film."""

    number: int  #: the pass
    other_bytes: int


@dataclass(frozen=True, slots=True)
class Complete:
    """The output is complete and proven, and is published next. ``report`` has the fields of the job's report."""

    output_bytes: int
    output_sha256: str
    report: Mapping[str, Any]


Record: TypeAlias = JobHeader | Begun | Encoded | OtherBytes | Complete
_KINDS: Final[Mapping[str, type[Record]]] = {
    "header": JobHeader,
    "begun": Begun,
    "encoded": Encoded,
    "measured": OtherBytes,
    "complete": Complete,
}


class BadRecord(ValueError):
    """The content of a record is invalid, or unknown to this version."""


@dataclass(frozen=True, slots=True)
class RecordStream:
    """The readable part of a journal."""

    contents: tuple[bytes, ...] = ()
    checksum: bytes = _FIRST  #: the checksum of the last readable record
    rest_bytes: int = 0  #: the size of the unreadable end
    is_torn: bool = False  #: whether the unreadable end is one incomplete record


def framed(content: bytes, before: bytes = _FIRST) -> tuple[bytes, bytes]:
    """Return the bytes and the checksum of a record that follows the record with the checksum ``before``."""
    checksum = _checksum(before, content)
    return _LENGTH.pack(len(content)) + checksum + content, checksum


def read_stream(data: bytes) -> RecordStream:
    """Read records up to the first record that is incomplete or changed."""
    contents: list[bytes] = []
    at, checksum, head = 0, _FIRST, _LENGTH.size + CHECKSUM_BYTES
    while at + head <= len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        stated = data[at + _LENGTH.size : at + head]
        content = data[at + head : at + head + length]
        if len(content) < length:
            break
        if _checksum(checksum, content) != stated:
            return RecordStream(tuple(contents), checksum, len(data) - at)
        contents.append(content)
        at, checksum = at + head + length, stated
    return RecordStream(tuple(contents), checksum, len(data) - at, is_torn=at < len(data))


def packed(record: Record) -> bytes:
    """Return a record's content as msgpack."""
    values = {each.name: getattr(record, each.name) for each in fields(record)}
    if isinstance(record, Encoded):
        values["facts"] = _packed_facts(values.pop("facts"))  # always last
    kind = next(kind for kind, type_ in _KINDS.items() if isinstance(record, type_))
    content: bytes = msgpack.packb({"kind": kind, **values}, default=lambda value: value.item(), **_TEXT)
    return content


def unpacked(content: bytes) -> Record:
    """Return the record with this content. Raises BadRecord: the content is invalid."""
    try:
        values = msgpack.unpackb(content, strict_map_key=False, **_TEXT)
        kind = values.pop("kind")
        if kind == "encoded":
            values["facts"] = _facts_of(values["facts"])
            values["tries"] = tuple(tuple(each) for each in values.get("tries", ()))
        record: Record = _KINDS[kind](**values)
    except (AttributeError, KeyError, TypeError, ValueError, msgpack.UnpackException) as error:
        raise BadRecord(f"{type(error).__name__}: {error}") from error
    return record


def _checksum(before: bytes, content: bytes) -> bytes:
    return hashlib.blake2b(before + content, digest_size=CHECKSUM_BYTES).digest()


def _packed_facts(segment: EncodedSegment) -> dict[str, Any]:
    arrays = {name: np.asarray(getattr(segment, name)).astype(kind).tobytes() for name, kind in _ARRAYS.items()}
    plain = {name: getattr(segment, name) for name in _PLAIN}
    resized = [[width, height, count] for (width, height), count in segment.resized.items()]
    quality = None if segment.quality is None else asdict(segment.quality)
    return {**plain, **arrays, "resized": resized, "tally": asdict(segment.tally), "quality": quality}


def _facts_of(values: Mapping[str, Any]) -> EncodedSegment:
    """Return the segment, whose payload is left empty. Invalid values raise errors of many classes."""
    arrays: dict[str, Any] = {name: np.frombuffer(values[name], dtype=kind).copy() for name, kind in _ARRAYS.items()}
    if len({len(array) for array in arrays.values()}) != 1:
        raise ValueError("the arrays differ in length")
    return EncodedSegment(
        **{name: values[name] for name in _PLAIN},
        **arrays,
        payload=np.empty(0, dtype=np.uint8),
        tally=_tally(values["tally"]),
        resized={(width, height): count for width, height, count in values["resized"]},
        quality=None if (quality := values["quality"]) is None else _quality(quality),
    )


def _quality(values: Mapping[str, Any]) -> ReachedQuality:
    return ReachedQuality(**{**values, "values": tuple(values["values"])})


def _tally(values: Mapping[str, Any]) -> SegmentTally:
    plain: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    for name in ("seam_before", "seam_after"):
        plain[name] = tuple(PictureHash(**each) for each in values[name])
    return SegmentTally(**{**plain, "repaired": RepairedTime(**values["repaired"])})

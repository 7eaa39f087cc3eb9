"""The records of a journal, and how they lie one after the other in a stream of bytes.

    record = length (4 bytes, little endian) | checksum (16 bytes) | content (msgpack)

A checksum is BLAKE2b over the one before it and the content: nothing can be changed, left out, doubled or moved without
ending the readable part there. Reading is pure; a prefix of a stream reads as a prefix of its records.
"""

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgpack

from ...actors.segment.encoding import EncodedSegment
from .facts import BadFacts, facts_of, packed_facts

FORMAT: Final = 1
CHECKSUM_BYTES: Final = 16
_LENGTH: Final = struct.Struct("<I")
_FIRST: Final = f"codecfleet journal {FORMAT}".encode().ljust(CHECKSUM_BYTES, b"\0")[:CHECKSUM_BYTES]
"""What stands for the checksum before the first record's."""
_TEXT: Final = {"unicode_errors": "surrogateescape"}
"""Names of files need not be valid text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHeader:
    """What the job is: the first record. ``job`` is all that its bytes depend on but ``encoder``; both are plain.

    ``spec`` are the fields of the request, from which the job is continued; ``output`` and ``segments`` are for people.
    """

    job: Mapping[str, Any]
    encoder: Mapping[str, Any]
    spec: Mapping[str, Any]
    output: str
    segments: int


@dataclass(frozen=True, slots=True)
class Begun:
    """A segment went to a worker."""

    segment: int


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """A segment came back, up to the end of ``until``, and its payload is safe."""

    segment: int
    until: int
    entry_moves: int
    attempt: int
    facts: EncodedSegment
    payload_bytes: int
    payload_sha256: str


@dataclass(frozen=True, slots=True)
class Complete:
    """The output is whole and proven, and gets its name next; ``report`` are the fields of the job's report."""

    output_bytes: int
    output_sha256: str
    report: Mapping[str, Any]


Record: TypeAlias = JobHeader | Begun | Encoded | Complete
_KINDS: Final[Mapping[str, type[Record]]] = {
    "header": JobHeader,
    "begun": Begun,
    "encoded": Encoded,
    "complete": Complete,
}


class BadRecord(ValueError):
    """The content of a record is none that this version writes."""


@dataclass(frozen=True, slots=True)
class RecordStream:
    """What could be read of a journal, up to ``checksum``; ``rest_bytes`` of it could not.

    ``is_torn`` says that the rest is one record that was not written to its end.
    """

    contents: tuple[bytes, ...] = ()
    checksum: bytes = _FIRST
    rest_bytes: int = 0
    is_torn: bool = False


def framed(content: bytes, before: bytes = _FIRST) -> tuple[bytes, bytes]:
    """Return a record as it is written after the one with the checksum ``before``, and its own checksum."""
    checksum = _checksum(before, content)
    return _LENGTH.pack(len(content)) + checksum + content, checksum


def read_stream(data: bytes) -> RecordStream:
    """Read records up to the first that is not whole and unchanged."""
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
    """Return a record's content."""
    match record:
        case JobHeader():
            fields = {name: getattr(record, name) for name in ("job", "encoder", "spec", "output", "segments")}
        case Begun():
            fields = {"segment": record.segment}
        case Encoded():
            names = ("segment", "until", "entry_moves", "attempt", "payload_bytes", "payload_sha256")
            fields = {name: getattr(record, name) for name in names} | {"facts": packed_facts(record.facts)}
        case Complete():
            fields = {name: getattr(record, name) for name in ("output_bytes", "output_sha256", "report")}
    kind = next(kind for kind, type_ in _KINDS.items() if isinstance(record, type_))
    content: bytes = msgpack.packb({"kind": kind, **fields}, default=lambda value: value.item(), **_TEXT)
    return content


def unpacked(content: bytes) -> Record:
    """Return the record of a content.

    Raises:
        BadRecord: it is none.
    """
    try:
        fields = msgpack.unpackb(content, strict_map_key=False, **_TEXT)
        kind = fields.pop("kind")
        if kind == "encoded":
            fields["facts"] = facts_of(fields["facts"])
        record: Record = _KINDS[kind](**fields)
    except (AttributeError, BadFacts, KeyError, TypeError, ValueError, msgpack.UnpackException) as error:
        raise BadRecord(f"{type(error).__name__}: {error}") from error
    return record


def _checksum(before: bytes, content: bytes) -> bytes:
    return hashlib.blake2b(before + content, digest_size=CHECKSUM_BYTES).digest()

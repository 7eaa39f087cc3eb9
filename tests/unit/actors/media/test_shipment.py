import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.media.stores import (
    MARK_PLACES,
    Shipment,
    content_mark,
    place_of,
    source_version,
    version_anywhere,
)
from codecfleet.errors import InputUnreadable

CONTENT = bytes(range(256)) * 1024


class ShippedMemory(MemoryFileSystem):  # type: ignore[misc] # fsspec has no types
    """What another machine sends."""

    protocol = "shipped-memory"

    def info(self, path: str, **_: object) -> dict[str, Any]:
        """Return a version in the form in which readers of files state it."""
        return {"name": path, "type": "file", "size": len(CONTENT), "mtime": "its version"}


@dataclass(frozen=True, slots=True)
class MemoryShipment(Shipment):
    """A shipped source in memory."""

    def prepare(self) -> None:
        """Have fsspec know it."""
        fsspec.register_implementation("shipped-memory", ShippedMemory, clobber=True)


@pytest.fixture
def film(tmp_path: Path) -> Path:
    """A file on the job's machine."""
    path = tmp_path / "film.mkv"
    path.write_bytes(CONTENT)
    return path


def sent(film: Path, version: str = "its version") -> tuple[MemoryShipment, object]:
    """Return the source's shipment, and its version as every machine must see it."""
    shipment = MemoryShipment("shipped-memory://far/film.mkv", (len(CONTENT), version), content_mark(str(film)))
    return shipment, version_anywhere(str(film), source_version(str(film)))


def test_a_source_that_lies_here_is_not_shipped(film: Path) -> None:
    """The same file under the same name is read locally, even if it is a copy on another disk."""
    shipment, expected = sent(film)
    stat = film.stat()
    film.rename(film.with_name("before"))
    film.write_bytes(CONTENT)
    os.utime(film, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert place_of(str(film), expected, shipment) == (str(film), source_version(str(film)))


def test_a_source_that_is_not_here_is_shipped(film: Path) -> None:
    """The shipped source is read if its name has no file here, a folder, or a file of another size or time."""
    shipment, expected = sent(film)
    shipped = (shipment.url, shipment.version)
    stat = film.stat()
    os.utime(film, ns=(0, 0))
    assert place_of(str(film), expected, shipment) == shipped
    film.write_bytes(CONTENT[1:])
    os.utime(film, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert place_of(str(film), expected, shipment) == shipped
    film.unlink()
    assert place_of(str(film), expected, shipment) == shipped
    film.mkdir()
    assert place_of(str(film), expected, shipment) == shipped


@pytest.mark.parametrize("begin", [0, len(CONTENT) // 2, len(CONTENT) - 1])
def test_another_content_of_the_same_size_and_time_is_not_taken(begin: int, film: Path) -> None:
    """A local file that differs from the source only in content is not mistaken for the source."""
    shipment, expected = sent(film)
    stat = film.stat()
    film.write_bytes(CONTENT[:begin] + bytes(len(CONTENT) - begin))
    os.utime(film, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert place_of(str(film), expected, shipment)[0] == shipment.url


def test_a_source_that_changed_where_it_lies_is_refused(film: Path) -> None:
    """A shipped source must have the version that the job has read."""
    shipment, expected = sent(film, "an earlier version")
    film.unlink()
    with pytest.raises(InputUnreadable, match="was changed or removed while it was read"):
        place_of(str(film), expected, shipment)


@given(size=st.integers(0, 200_000))
def test_a_mark_sees_the_first_and_the_last_byte(size: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Files of any size have a mark, which depends on the first and the last byte; an empty file has one too."""
    path = tmp_path_factory.getbasetemp() / "marked"
    path.write_bytes(bytes(size))
    marks = {content_mark(str(path))}
    for changed in {0, size - 1} if size else ():
        path.write_bytes(bytes(changed) + b"!" + bytes(size - changed - 1))
        marks.add(content_mark(str(path)))
    assert len(marks) == min(size + 1, 3)
    assert MARK_PLACES > 2

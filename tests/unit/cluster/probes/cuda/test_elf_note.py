"""The note in libcuda about forward compatibility: read from files, whatever they contain."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from codecfleet.cluster.probes.cuda.packages import forward_note_of
from codecfleet.cluster.probes.cuda.report import ForwardNote
from codecfleet.cluster.probes.report.absence import Absence, Maybe

from ...maybe import missing

SAID = {"format": 1, "CUDA version": "13.1", "driver": [535, 580], "device": [1, 2]}
REAL = Path(__file__).resolve().parents[5].parent / "shared" / "data" / "fwd_compat_elf"

Read = Callable[[bytes], Maybe[ForwardNote]]


def library(said: object = SAID, owner: bytes = b"NVIDIA Corporation\0") -> bytes:
    """Return the bytes of a library with a note, after bytes without meaning and the notes of other owners."""
    text = json.dumps(said).encode() + b"\0"
    notes = ((b"GNU\0", b"1234"), (owner, text))
    packed = (
        struct.pack("<3I", len(name), len(body), 0) + name + b"\0" * (-len(name) % 4) + body for name, body in notes
    )
    return b"\x7fELF\2\1 NVIDIA Corporation \0" + b"".join(packed) + bytes(64)


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Return a function that reads the note of a library with these bytes."""
    path = tmp_path / "libcuda.so.590.44.01"

    def note_in(data: bytes) -> Maybe[ForwardNote]:
        path.write_bytes(data)
        return forward_note_of(path)

    return note_in


def test_the_note_is_read(read: Read) -> None:
    """The note has the CUDA version, the branches and the kinds of device; Orin's note has only the CUDA version."""
    assert read(library()) == ForwardNote("13.1", (535, 580), (1, 2))
    assert read(library({"format": 1, "CUDA version": "13.2"})) == ForwardNote("13.2")


@pytest.mark.parametrize("data", [b"no library", library(owner=b"Someone Else\0")])
def test_a_file_without_the_note_has_none(read: Read, data: bytes) -> None:
    """A file without NVIDIA's note has the absence "not found"."""
    assert missing(read(data)).absence is Absence.NOT_FOUND


@pytest.mark.parametrize("said", [{"": 1}, {"CUDA version": 13.1}, {"CUDA version": "latest"}])
def test_a_note_without_a_version_is_damaged(read: Read, said: object) -> None:
    """A note without a CUDA version decides nothing."""
    assert missing(read(library(said))).absence is Absence.FAILED


def test_what_is_no_number_in_a_list_is_left_out(read: Read) -> None:
    """Only whole numbers in the list are branches."""
    said = {**SAID, "driver": [535, True, "570", -1, 1 << 40, None, 5.5], "device": "all"}
    assert read(library(said)) == ForwardNote("13.1", (535,), ())


@pytest.mark.parametrize("text", [b'{"a":' + b"[" * 60000, b'{"a": \xff}'])
def test_a_hostile_note_is_an_absence(read: Read, text: bytes) -> None:
    """A description that is no JSON does not end the reader."""
    assert missing(read(b"NVIDIA Corporation\0\0" + text + b"\0")).absence is Absence.FAILED


@pytest.mark.parametrize("name", ["nothing", "empty", "."])
def test_a_file_that_cannot_be_read_is_an_absence(tmp_path: Path, name: str) -> None:
    """A missing or empty file, or a folder, is an absence."""
    (tmp_path / "empty").touch()
    assert missing(forward_note_of(tmp_path / name)).absence is Absence.FAILED


@pytest.mark.skipif(not REAL.is_dir(), reason=f"there are no real libraries in {REAL}")
@pytest.mark.parametrize(
    ("name", "cuda_version", "drivers"),
    [
        ("libcuda.so.575.57.08", "12.9", (535, 550, 560, 565, 570, 575)),
        ("libcuda.so.590.44.01", "13.1", (535, 550, 570, 575, 580, 590)),
        ("libcuda.orin.13.2.1.so.1.1", "13.2", ()),
    ],
)
def test_real_libraries_are_read(name: str, cuda_version: str, drivers: tuple[int, ...]) -> None:
    """NVIDIA's own libraries have the expected notes."""
    found = forward_note_of(REAL / name)
    assert isinstance(found, ForwardNote)
    assert (found.cuda_version, found.drivers) == (cuda_version, drivers)

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.probes.cuda.packages import forward_note_of, read_forward_note
from codecfleet.cluster.probes.cuda.report import ForwardNote
from codecfleet.cluster.probes.report.absence import Absence, Unavailable

from ...maybe import missing

SECTION = ".note.cuda.fwd_compatibility"
SAID = {"format": 1, "CUDA version": "13.1", "driver": [535, 580], "device": [1, 2]}
REAL = Path(__file__).resolve().parents[5].parent / "shared" / "data" / "fwd_compat_elf"


def note(owner: bytes, description: bytes, *, claimed_more: int = 0) -> bytes:
    """Return one ELF note, which claims to be longer by ``claimed_more``."""
    padded = owner + b"\0" * (-len(owner) % 4)
    body = description + b"\0" * (-len(description) % 4)
    return struct.pack("<3I", len(owner), len(description) + claimed_more, 0) + padded + body


def elf(sections: dict[str, bytes]) -> bytes:
    """Return a file with an ELF header, these sections, and the table of their names."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in (*sections, ".shstrtab"))
    blobs = [*sections.values(), names]
    table_at = 64 + sum(map(len, blobs))
    header = struct.pack("<2HI3QI6H", 3, 62, 1, 0, 0, table_at, 0, 64, 0, 0, 64, len(blobs) + 1, len(blobs))
    table, at = bytes(64), 64
    for name, blob in zip((*sections, ".shstrtab"), blobs, strict=True):
        table += struct.pack("<2I4Q2I2Q", names.index(name.encode() + b"\0"), 7, 0, 0, at, len(blob), 0, 0, 4, 0)
        at += len(blob)
    return b"\x7fELF\2\1\1" + bytes(9) + header + b"".join(blobs) + table


def library(said: object = SAID) -> bytes:
    """Return a library with NVIDIA's note, after notes of other owners."""
    mine = note(b"NVIDIA Corporation\0", json.dumps(said).encode() + b"\0")
    return elf({".note.gnu.build-id": note(b"GNU\0", b"1234"), SECTION: note(b"GNU\0", b"5") + mine})


def test_the_note_is_read() -> None:
    """The note has the CUDA version, the branches and the kinds of device."""
    assert read_forward_note(library()) == ForwardNote("13.1", (535, 580), (1, 2))


def test_a_note_with_a_version_alone_has_no_branches() -> None:
    """Orin's note has only the CUDA version."""
    assert read_forward_note(library({"format": 1, "CUDA version": "13.2"})) == ForwardNote("13.2")


def test_a_note_that_claims_more_than_its_section_holds_is_read() -> None:
    """Orin's note claims to be two bytes longer than its section."""
    body = json.dumps({"CUDA version": "13.2"}).encode() + b"\0"
    assert read_forward_note(elf({SECTION: note(b"NVIDIA Corporation\0", body, claimed_more=6)})) == ForwardNote("13.2")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no library",
        elf({".text": b"code"}),
        elf({SECTION: note(b"Someone Else\0", json.dumps(SAID).encode())}),
        elf({SECTION: b""}),
        library().replace(b"\x7fELF\2\1", b"\x7fELF\1\1"),  # CUDA runs only on 64-bit machines
        library().replace(b"\x7fELF\2\1", b"\x7fELF\2\2"),  # and only on little-endian machines
    ],
)
def test_a_file_without_the_note_has_none(data: bytes) -> None:
    """A file that is not ELF, or lacks NVIDIA's note, has the absence "not found"."""
    found = missing(read_forward_note(data))
    assert found.absence is Absence.NOT_FOUND


@pytest.mark.parametrize("said", [[], {}, {"CUDA version": 13.1}, {"CUDA version": "latest"}, "13.1", None])
def test_a_note_without_a_version_is_damaged(said: object) -> None:
    """A note without a CUDA version decides nothing."""
    found = missing(read_forward_note(library(said)))
    assert found.absence is Absence.FAILED


def test_what_is_no_number_in_a_list_is_left_out() -> None:
    """Only whole numbers in the list are branches."""
    said = {**SAID, "driver": [535, True, "570", -1, 1 << 40, None, 5.5], "device": "all"}
    assert read_forward_note(library(said)) == ForwardNote("13.1", (535,), ())


def test_json_nested_beyond_reason_is_an_absence() -> None:
    """A hostile description does not end the reader."""
    data = elf({SECTION: note(b"NVIDIA Corporation\0", b"[" * 60000)})
    assert isinstance(read_forward_note(data), Unavailable)


@given(
    st.integers(0, len(library())),
    st.lists(st.tuples(st.integers(0, len(library()) - 1), st.integers(0, 255)), max_size=12),
)
def test_a_damaged_library_never_raises(kept: int, changes: list[tuple[int, int]]) -> None:
    """A truncated file with changed bytes, even in the headers, gives a note or an absence."""
    data = bytearray(library())
    for at, value in changes:
        data[at] = value
    assert isinstance(read_forward_note(bytes(data[:kept])), ForwardNote | Unavailable)


def test_a_file_is_read_from_the_disk(tmp_path: Path) -> None:
    """The note of a file is that of its bytes; a missing or empty file is an absence."""
    path = tmp_path / "libcuda.so.590.44.01"
    path.write_bytes(library())
    assert forward_note_of(path) == ForwardNote("13.1", (535, 580), (1, 2))
    path.write_bytes(b"")
    for unreadable in (path, tmp_path / "nothing", tmp_path):
        found = forward_note_of(unreadable)
        assert isinstance(found, Unavailable)
        assert found.absence is Absence.FAILED


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

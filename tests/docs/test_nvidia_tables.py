"""The tables of docs/nvidia against the code, and against NVIDIA's documents where they lie beside the checkout."""

import importlib
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
TABLES = REPOSITORY / "docs" / "nvidia"
ORIGINALS = REPOSITORY.parent / "shared" / "seeds"

_HEADER = "| section | function or rule | lives in | note |"
_PLACE = re.compile(r"^`([a-z_]+(?:\.[a-z_0-9]+)*):([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)`$")
_WITHOUT_PLACE = ("not applicable: ", "not built: ")
_SECTION = re.compile(r"^(\d+(?:\.\d+)*)\.\s+\S")
_NAME = re.compile(
    r"\b(?:nvml[A-Z]\w+|cuda[A-Z][a-z]\w+|cudaEGL\w+|cu[A-Z][a-z]\w+|cuEGL\w+|cudla[A-Z]\w+"
    r"|CUDA_ERROR_\w+|CU_DEVICE_ATTRIBUTE_\w+)"
)
_CODE = re.compile(r"[;{}]\s*$|^\s*(?://|#|\.$)|<<<|\w\($|^\s+\w[^.]*,\s*$")
_SLIPS = {
    "nvmlDevicenvmlDeviceGetVbiosVersion": "nvmlDeviceGetVbiosVersion",
    "cuEGLStreamConsumeConnectWithFlags": "cuEGLStreamConsumerConnectWithFlags",
    "cudaEglFramestructure": "cudaEglFrame",
    "cudaEgl": "",
}
"""Names that the documents misspell, and what they mean; "" is not a name."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table: the cells as they are written."""

    line: int
    section: str
    rule: str
    place: str
    note: str


@dataclass(frozen=True, slots=True)
class Original:
    """One of NVIDIA's documents: our table of it, its text, and what of it is not held against the table.

    ``only_names`` maps a chapter that we do not implement to the names in it that we do use; only the chapter itself
    needs a row. ``has_code`` says that it has samples, whose names are not rules.
    """

    table: str
    text: str
    only_names: tuple[tuple[str, tuple[str, ...]], ...] = ()
    has_code: bool = False


DOCUMENTS = (
    Original("cuda-compatibility.md", "cuda_compatibility.txt"),
    Original("vgpu.md", "vgpu_management_sdk_guide.txt"),
    Original("tegra.md", "cuda_for_tegra.txt", only_names=(("5", ("cudlaDeviceGetCount",)),), has_code=True),
)


def rows(table: Path) -> list[Row]:
    """Return the rows of every table in that format in a document."""
    found: list[Row] = []
    inside = False
    for number, line in enumerate(table.read_text(encoding="utf-8").splitlines(), 1):
        if not line.startswith("|"):
            inside = False
        elif line == _HEADER:
            inside = True
        elif inside and not set(line) <= set("|- "):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            assert len(cells) == 4, f"{table.name}:{number} has {len(cells)} cells"
            found.append(Row(number, *cells))
    return found


def all_rows() -> list[tuple[str, Row]]:
    """Return the rows of all tables with their documents' names."""
    return [(table.name, row) for table in sorted(TABLES.glob("*.md")) for row in rows(table)]


def missing_place(row: Row) -> str:
    """Return what is wrong with where a row says that its rule lives; "" for nothing."""
    if row.place.startswith(_WITHOUT_PLACE):
        return "" if row.place.partition(": ")[2] else "it does not say why"
    match = _PLACE.match(row.place)
    if match is None:
        return f"{row.place} is not a place, and does not say why there is none"
    try:
        found: object = importlib.import_module(f"codecfleet.{match[1]}")
    except ImportError as error:
        return str(error)
    for name in match[2].split("."):
        if not hasattr(found, name):
            return f"{match[1]} has no {match[2]}"
        found = getattr(found, name)
    return ""


def names_of(original: Original, text: str) -> set[str]:
    """Return the functions, errors and attributes that a document's prose names."""
    found: set[str] = set()
    chapter = ""
    wanted = dict(original.only_names)
    for line in text.splitlines():
        heading = _SECTION.match(line)
        chapter = heading[1].split(".")[0] if heading else chapter
        if original.has_code and _CODE.search(line):
            continue
        names = {_SLIPS.get(name, name) for name in _NAME.findall(line)}
        found |= names & set(wanted[chapter]) if chapter in wanted else names
    return found - {""}


def sections_of(original: Original, text: str) -> set[str]:
    """Return the numbers of a document's sections."""
    left_out = dict(original.only_names)
    numbers = {match[1] for match in map(_SECTION.match, text.splitlines()) if match}
    return {number for number in numbers if number.split(".")[0] not in left_out or number in left_out}


def unnamed(names: set[str], found: list[Row]) -> list[str]:
    """Return the names that no row has in its rule."""
    said = {word for row in found for word in re.findall(r"\w+", row.rule)}
    return sorted(names - said)


def uncovered(sections: set[str], found: list[Row]) -> list[str]:
    """Return the sections without a row; one that does not apply speaks for the sections below it."""
    own = {row.section for row in found}
    whole = {row.section for row in found if row.place.startswith(_WITHOUT_PLACE)}
    return sorted(section for section in sections - own if not any(section.startswith(f"{above}.") for above in whole))


@pytest.mark.parametrize("original", DOCUMENTS, ids=lambda original: original.table)
def test_every_document_has_its_table(original: Original) -> None:
    """Each of NVIDIA's documents that we implement has a table with rows."""
    assert rows(TABLES / original.table)


def test_everything_is_where_the_tables_say() -> None:
    """Each place is a module that imports and a name in it; what does not apply or is not built says why."""
    wrong = [f"{name}:{row.line}: {trouble}" for name, row in all_rows() if (trouble := missing_place(row))]
    assert wrong == []


def test_no_row_stands_twice() -> None:
    """A rule of a section has one row."""
    said = [(name, row.section, row.rule) for name, row in all_rows()]
    assert sorted(key for key in set(said) if said.count(key) > 1) == []


def test_every_row_names_a_section_and_a_rule() -> None:
    """The first two cells are a section's number and words."""
    wrong = [
        f"{name}:{row.line}" for name, row in all_rows() if not (re.fullmatch(r"[\d.]+", row.section) and row.rule)
    ]
    assert wrong == []


@pytest.mark.parametrize("original", DOCUMENTS, ids=lambda original: original.table)
def test_every_name_and_section_of_the_document_has_a_row(original: Original) -> None:
    """Functions, errors and attributes that a document names, and its sections, are all in our table of it."""
    path = ORIGINALS / original.text
    if not path.is_file():
        pytest.skip(f"there is no {path}")
    text, found = path.read_text(encoding="utf-8"), rows(TABLES / original.table)
    names, sections = names_of(original, text), sections_of(original, text)
    assert names
    assert sections
    assert unnamed(names, found) == []
    assert uncovered(sections, found) == []


@pytest.mark.parametrize("original", DOCUMENTS, ids=lambda original: original.table)
def test_a_row_that_is_removed_is_missed(original: Original) -> None:
    """The check above fails when the rows of a name, or those that speak for a section, are gone."""
    path = ORIGINALS / original.text
    if not path.is_file():
        pytest.skip(f"there is no {path}")
    text, found = path.read_text(encoding="utf-8"), rows(TABLES / original.table)
    for name in names_of(original, text):
        assert name in unnamed({name}, [row for row in found if name not in row.rule])
    for section in sections_of(original, text):
        kept = [row for row in found if not f"{section}.".startswith(f"{row.section}.")]
        assert section in uncovered({section}, kept)

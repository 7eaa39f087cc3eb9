"""The tables of docs/nvidia: each row works and is tested, or says why not; none of the documents' items is missing."""

import re
from dataclasses import dataclass

import pytest

from .nvidia_tables import (
    ITEMS,
    NEWER,
    PAGES,
    REPOSITORY,
    Row,
    count_table,
    counted,
    not_items,
    rows,
    unreachable,
    untested,
)
from .test_option_tables import held

ORIGINALS = REPOSITORY.parent / "shared" / "seeds"
NOT_BUILT_MAX = 10
COMPLETE = ("4", "5")
"""Chapters of CUDA for Tegra of which all is built: EGL and cuDLA."""

_SECTION = re.compile(r"^(\d+(?:\.\d+)*)\.\s+\S")
_NAME = re.compile(
    r"\b(?:nvml[A-Z]\w+|cuda[A-Z][a-z]\w+|cudaEGL\w+|cu[A-Z][a-z]\w+|cuEGL\w+|cudla[A-Z]\w+|NvMediaDla\w+"
    r"|egl[A-Z]\w+KHR|CUDA_ERROR_\w+|CU_DEVICE_ATTRIBUTE_\w+)"
)
_CODE = re.compile(r"[;{}]\s*$|^\s*(?://|#|\.$)|<<<|\w\($|^\s+\w[^.]*,\s*$")
_SLIPS = {
    "nvmlDevicenvmlDeviceGetVbiosVersion": "nvmlDeviceGetVbiosVersion",
    "cuEGLStreamConsumeConnectWithFlags": "cuEGLStreamConsumerConnectWithFlags",
    "cudaEglFramestructure": "cudaEglFrame",
    "cudaEgl": "",
    "eglCreateSync64KHR": "eglCreateSyncKHR",
    "cudaSuccess": "",
    "cudlaSuccess": "",
}
"""Names that the documents misspell, or write in two ways, and what they mean; "" is not a name."""


@dataclass(frozen=True, slots=True)
class Original:
    """One of NVIDIA's documents: our page on it, its text, and how its names are found.

    ``has_code`` says that it has samples, whose names are not items.
    """

    page: str
    text: str
    has_code: bool = False


DOCUMENTS = (
    Original("cuda-compatibility.md", "cuda_compatibility.txt"),
    Original("vgpu.md", "vgpu_management_sdk_guide.txt"),
    Original("tegra.md", "cuda_for_tegra.txt", has_code=True),
)


def names_of(original: Original, text: str) -> set[str]:
    """Return the functions, errors and attributes that a document's prose names."""
    found: set[str] = set()
    for line in text.splitlines():
        if not (original.has_code and _CODE.search(line)):
            found |= {_SLIPS.get(name, name) for name in _NAME.findall(line)}
    return found - {""}


def sections_of(text: str) -> set[str]:
    """Return the numbers of a document's sections."""
    return {match[1] for match in map(_SECTION.match, text.splitlines()) if match}


def unnamed(names: set[str], page: str, found: list[Row]) -> list[str]:
    """Return the names that neither a row has in its item, nor the chapter on what is not an item."""
    said = {word for row in found for word in re.findall(r"\w+", row.item)} | set(re.findall(r"\w+", not_items(page)))
    return sorted(names - said)


def uncovered(sections: set[str], page: str, found: list[Row]) -> list[str]:
    """Return the sections without a row that the page does not say to have no item."""
    empty = set(re.findall(r"\d+(?:\.\d+)*", not_items(page)))
    return sorted(sections - {row.section for row in found} - empty)


@pytest.mark.parametrize("page", ITEMS)
def test_every_item_has_its_row(page: str) -> None:
    """A page has as many rows as its document has items, each once, under a section."""
    found = [row for row in rows(page) if row.section != NEWER]
    assert len(found) == ITEMS[page]
    assert [row.place for row in found if not (re.fullmatch(r"\d+(\.\d+)*", row.section) and row.item)] == []
    said = [(row.section, row.item) for row in rows(page)]
    assert sorted(key for key in set(said) if said.count(key) > 1) == []


@pytest.mark.parametrize("page", ITEMS)
def test_every_row_is_reached_and_tested(page: str) -> None:
    """What a row names leads somewhere, and its test or result exists."""
    wrong = [f"{row.place}: {why}" for row in rows(page) for why in (*unreachable(row), *untested(row))]
    assert wrong == []


def test_what_is_not_built_has_a_reason_that_is_not_itself() -> None:
    """Few items are not built, none of EGL, cuDLA or compatibility; each reason says more than that it is not built."""
    missing = [(page, row) for page in ITEMS for row in rows(page) if row.state == "not built" and row.section != NEWER]
    assert len(missing) <= NOT_BUILT_MAX
    for page, row in missing:
        assert page != "cuda-compatibility.md", row.place
        assert page != "tegra.md" or not row.section.startswith(COMPLETE), row.place
        reason = row.reached_by.removeprefix("not built: ")
        assert len(reason.split()) > 1, row.place
        assert "not built" not in reason, row.place


def test_the_counts_are_those_of_the_tables() -> None:
    """docs/nvidia/README.md says how many items of each document there are, work, and are not built."""
    path = PAGES / "README.md"
    text = path.read_text(encoding="utf-8")
    wanted = re.sub(r"(<!-- counts -->).*?(<!-- end -->)", rf"\1\n{count_table()}\n\2", text, flags=re.DOTALL)
    assert held(path, wanted), "make docs writes it"
    assert sum(counted(page).total() for page in ITEMS) == sum(ITEMS.values())


@pytest.mark.parametrize(
    ("row", "reasons"),
    [
        (Row("", "1", "x", "`codecfleet.encode(colour=)`", "unit test_licence.py::test_no"), 2),
        (Row("", "1", "x", "`codecfleet doctor --vgpu`, `encoder_options=qmin`", ""), 3),
        (Row("", "1", "x", "`cluster.probes.vgpu.guest:nothing`, works", "GPU absent.json"), 2),
        (Row("", "1", "x", "not built: it cannot be", ""), 0),
        (Row("", "1", "x", "pending: somebody", ""), 2),
        (Row("", "1", "x", "`codecfleet.EglStream(colour=)`", "GPU egl-stream-h100.json"), 1),
        (Row("", "1", "x", "`codecfleet.Frame.index`", "GPU nvdec-h200.json"), 0),
    ],
)
def test_what_leads_nowhere_is_found(row: Row, reasons: int) -> None:
    """A parameter, option, key, name, test or result that does not exist is one reason each."""
    assert len([*unreachable(row), *untested(row)]) == reasons


@pytest.mark.parametrize("original", DOCUMENTS, ids=lambda original: original.page)
def test_every_name_and_section_of_the_document_has_a_row(original: Original) -> None:
    """Functions, errors and attributes that a document names, and its sections, are all on our page of it."""
    path = ORIGINALS / original.text
    if not path.is_file():
        pytest.skip(f"there is no {path}")
    text, found = path.read_text(encoding="utf-8"), rows(original.page)
    names, sections = names_of(original, text), sections_of(text)
    assert names
    assert sections
    assert unnamed(names, original.page, found) == []
    assert uncovered(sections, original.page, found) == []
    for name in names - set(re.findall(r"\w+", not_items(original.page))):
        assert name in unnamed({name}, original.page, [row for row in found if name not in row.item])

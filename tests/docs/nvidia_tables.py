"""The tables of docs/nvidia: their rows, what each names, and how many items of each document work."""

import ast
import importlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from inspect import get_annotations
from pathlib import Path
from typing import Final, get_args, get_type_hints

from codecfleet.actors.settle.nvenc_options import SETTINGS

from .option_tables import all_commands

REPOSITORY: Final = Path(__file__).resolve().parents[2]
PAGES: Final = REPOSITORY / "docs" / "nvidia"
ITEMS: Final = {"pynvvideocodec.md": 118, "tegra.md": 164, "vgpu.md": 92, "cuda-compatibility.md": 74}
"""How many things a program can do each of NVIDIA's documents has, by our page on it."""
NEWER: Final = "–"  # noqa: RUF001 - the documents' sign for "no section"
SEPARATOR: Final = " · "
ROOTS: Final = {
    "GPU": ("tests/device", "benchmarks/results"),
    "simulator": ("tests/driver_sim",),
    "unit": ("tests/unit", "tests/contract", "tests/integration", "tests/docs"),
}
"""How a row can be tested, and where such tests and result files are."""

_HEADER: Final = "| section | item | reached by | tested by |"
_FIELDS: Final = re.compile(r"fields of `([^`]+)`")
_SAME_NAME: Final = "`encoder_options` of the same name"
_PUBLIC: Final = re.compile(r"codecfleet((?:\.\w+)+)(?:\((\w+)=\))?")
_PLACE: Final = re.compile(r"([a-z_0-9]+(?:\.[a-z_0-9]+)*):(\w+(?:\.\w+)*)")


@dataclass(frozen=True, slots=True)
class Row:
    """One item of a row: where the row is, and its cells as they are written."""

    place: str
    section: str
    item: str
    reached_by: str
    tested_by: str

    @property
    def state(self) -> str:
        """Whether the item works: "works" or "not built"."""
        return "not built" if self.reached_by.startswith("not built: ") else "works"


@cache
def rows(page: str) -> list[Row]:
    """Return the items of every table of a page that has those four columns; a row may have several."""
    found: list[Row] = []
    inside = False
    for number, line in enumerate((PAGES / page).read_text(encoding="utf-8").splitlines(), 1):
        inside = line == _HEADER or (inside and line.startswith("|"))
        if inside and line != _HEADER and not set(line) <= set("|- "):
            cells = [cell.strip() for cell in line[1:].removesuffix("|").split("|")]
            assert len(cells) == 4, f"{page}:{number} has {len(cells)} cells"
            section, items, reached, tested = cells
            ways = (_item_and_way(item, reached) for item in items.split(SEPARATOR))
            found += [Row(f"{page}:{number}", section, *way, tested) for way in ways]
    return found


def _item_and_way(item: str, reached: str) -> tuple[str, str]:
    """Return an item of a row, and what reaches it alone where the row says so for all of its items at once."""
    name, _, field = item.removesuffix("`)").partition(" (`")
    if field and (owner := _FIELDS.search(reached)):
        return name, reached.replace(owner[0], f"`{owner[1]}.{field}`")
    return item, reached.replace(_SAME_NAME, f"`encoder_options={item.strip('`')}`")


def counted(page: str) -> Counter[str]:
    """Return how many of the document's own items are in each state."""
    return Counter(row.state for row in rows(page) if row.section != NEWER)


def count_table() -> str:
    """Return the table of docs/nvidia/README.md: items, works and not built by document."""
    by_page = {page: counted(page) for page in ITEMS}
    total = sum(by_page.values(), Counter[str]())
    states = ["works", "not built"]
    titles = {page: (PAGES / page).read_text(encoding="utf-8").splitlines()[0].removeprefix("# ") for page in ITEMS}
    lines = [["document", "items", *states], ["---"] * (2 + len(states))]
    for name, counts in [*((f"[{titles[page]}]({page})", found) for page, found in by_page.items()), ("all", total)]:
        lines.append([name, str(counts.total()), *(str(counts[state]) for state in states)])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def codes(cell: str) -> list[str]:
    """Return what a cell has in code."""
    return re.findall(r"`([^`]+)`", cell)


def unreachable(row: Row) -> Iterator[str]:
    """Yield each name of a row's third cell that leads nowhere; a row that works names something."""
    if row.state != "works":
        return
    names = codes(row.reached_by)
    yield from (f"{name} leads nowhere" for name in names if not _leads(name))
    yield from [] if names else ["nothing is named"]


def _leads(name: str) -> bool:
    if name.startswith("codecfleet "):
        return _is_command(name.split()[1:])
    if name.startswith("encoder_options="):
        return name.partition("=")[2] in SETTINGS
    if match := _PUBLIC.fullmatch(name):
        found = _attribute(importlib.import_module("codecfleet"), match[1].removeprefix("."))
        return found is not None and (not match[2] or match[2] in _parameters(found))
    if match := _PLACE.fullmatch(name):
        return _attribute(importlib.import_module(f"codecfleet.{match[1]}"), match[2]) is not None
    return False


def _parameters(function: object) -> set[str]:
    """Return the names that a function takes, those of an unpacked TypedDict among them."""
    hints = get_type_hints(function.__init__ if isinstance(function, type) else function)
    parts = [each for hint in hints.values() for each in get_args(hint) if isinstance(each, type)]
    return hints.keys() | {name for each in parts for name in get_annotations(each)}


def _is_command(words: list[str]) -> bool:
    name = " ".join(word for word in words if not word.startswith("--"))
    command = all_commands().get(name)
    options = {option for each in command.params for option in each.opts} if command else set()
    return command is not None and {word for word in words if word.startswith("--")} <= options


def _attribute(found: object, path: str) -> object:
    """Return the attribute at a dotted path, or the annotation of a field without a value; None if there is neither."""
    for name in path.split("."):
        found = getattr(found, name, getattr(found, "__annotations__", {}).get(name))
    return found


def untested(row: Row) -> Iterator[str]:
    """Yield what is wrong with a row's fourth cell; a row that works has a test or a result that exists."""
    proofs = [proof.strip() for proof in row.tested_by.split(",") if proof.strip()]
    if row.state == "works" and not proofs:
        yield "no test is named"
    for proof in proofs:
        kind, _, named = proof.partition(" ")
        file, _, function = named.partition("::")
        paths = [path for root in ROOTS.get(kind, ()) for path in _files(root).get(Path(file).name, [])]
        found = [path for path in paths if path.as_posix().endswith(f"/{file}")]
        if len(found) != 1:
            yield f"{proof}: {len(found)} such files"
        elif file.endswith(".py") and function not in _tests(found[0]):
            yield f"{proof}: there is no such test"


@cache
def _files(root: str) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in (REPOSITORY / root).rglob("*.*"):
        if path.name.startswith("test_") or path.suffix in {".json", ".txt"}:
            found.setdefault(path.name, []).append(path)
    return found


@cache
def _tests(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {node.name for node in functions if node.name.startswith("test_")}

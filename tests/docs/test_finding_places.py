"""The map of the code in CONTRIBUTING: each room and file that it names exists and holds what it says. The glossary."""

import ast
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
CONTRIBUTING = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
GLOSSARY = (REPOSITORY / "docs" / "glossary.md").read_text(encoding="utf-8")
FLOORS = ("codecfleet", "jobs", "cluster", "actors")
WORDS_MAX = 25


def table(text: str) -> list[list[str]]:
    """Return the cells of the rows of a text's first table."""
    first = re.split(r"\n\n(?!\|)", text.partition("\n| ")[2])[0]
    return [[cell.strip() for cell in row.strip("| ").split(" | ")] for row in first.splitlines()[2:]]


def chapter(heading: str) -> str:
    """Return a chapter of CONTRIBUTING."""
    return CONTRIBUTING.partition(f"\n## {heading}\n")[2]


def rooms_on_the_map() -> set[str]:
    """Return the rooms that the map names; a name without a floor belongs to the floor that its row names first."""
    rooms: set[str] = set()
    for cell, *_ in table(chapter("Map of the code")):
        names = re.findall(r"`([\w/]+)`", cell)
        floor = names[0].partition("/")[0]
        rooms |= {name if "/" in name else f"{floor}/{name}" for name in names}
    return rooms


def test_every_room_is_on_the_map() -> None:
    """The map names each package of the floors, and no other."""
    rooms = {path.parent for floor in FLOORS for path in (REPOSITORY / floor).glob("*/__init__.py")}
    own = {path.relative_to(REPOSITORY).as_posix() for path in rooms if not path.is_symlink()}
    assert rooms_on_the_map() == own


def test_the_glossary_has_few_words_each_once() -> None:
    """Few words, each once."""
    words = [word for word, _ in table(GLOSSARY)]
    assert 0 < len(set(words)) == len(words) <= WORDS_MAX


@pytest.mark.parametrize(("question", "path", "name"), table(chapter("Where to find it")))
def test_an_answer_names_a_file_and_what_it_defines(question: str, path: str, name: str) -> None:
    """The file exists, in a room of the map, and defines the function or class."""
    file = REPOSITORY / path.strip("`")
    assert "/".join(file.relative_to(REPOSITORY).parts[:2]) in rooms_on_the_map(), question
    tree = ast.parse(file.read_text(encoding="utf-8"))
    assert name.strip("`") in {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}

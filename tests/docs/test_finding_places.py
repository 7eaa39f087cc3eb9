"""The map of the house and its answers: every room and file that they name exists, and holds what they say."""

import ast
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
CONTRIBUTING = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
FLOORS = ("jobs", "cluster", "actors")
MAP_ROWS_MAX = 12
GLOSSARY = (REPOSITORY / "docs" / "glossary.md").read_text(encoding="utf-8")
QUESTIONS = 10


def table(text: str, heading: str) -> list[list[str]]:
    """Return the cells of the rows of the first table below a heading."""
    chapter = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.*) \|$", chapter, re.MULTILINE)
    return [[cell.strip() for cell in row.split(" | ")] for row in rows[1:]]


ROOMS = table(CONTRIBUTING, "Map of the code")
PLACES = table(CONTRIBUTING, "Where to find it")


def rooms_on_the_map() -> set[str]:
    """Return the rooms that the map names; one without a floor belongs to the floor that its row names first."""
    rooms: set[str] = set()
    for cell, *_ in ROOMS:
        names = re.findall(r"`([\w/]+)`", cell)
        floor = names[0].partition("/")[0]
        rooms |= {name if "/" in name else f"{floor}/{name}" for name in names}
    return rooms


def test_the_map_has_at_most_twelve_rows() -> None:
    """A map that a stranger takes in at a glance."""
    assert 0 < len(ROOMS) <= MAP_ROWS_MAX


def test_every_room_is_on_the_map() -> None:
    """The map names each package of the floors, and no other."""
    rooms = {path.parent for floor in FLOORS for path in (REPOSITORY / floor).glob("*/__init__.py")}
    assert rooms_on_the_map() - {"codecfleet/"} == {path.relative_to(REPOSITORY).as_posix() for path in rooms}


def test_the_glossary_has_its_words_once() -> None:
    """Each word is explained once, among those that users meet or among those of the code."""
    words = [word for heading in ("What you meet", "Inside") for word, _ in table(GLOSSARY, heading)]
    assert len(set(words)) == len(words) > 0


def test_ten_questions_are_answered() -> None:
    """Each question has one answer."""
    assert len({question for question, *_ in PLACES}) == len(PLACES) == QUESTIONS


@pytest.mark.parametrize(("question", "path", "name"), PLACES)
def test_an_answer_names_a_file_and_what_it_defines(question: str, path: str, name: str) -> None:
    """The file exists, in a room of the map, and defines the function or class."""
    file = REPOSITORY / path.strip("`")
    assert "/".join(file.relative_to(REPOSITORY).parts[:2]) in rooms_on_the_map(), question
    tree = ast.parse(file.read_text(encoding="utf-8"))
    assert name.strip("`") in {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}

"""The house: floors one way, no cycle between rooms, and no room that reaches deep into another floor's rooms."""

import ast
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from .import_graph import FLOORS, PACKAGE, Import, product_files, product_imports

MAX_ROOM_FILES = 14
ABOVE = {"actors": ("cluster", "jobs"), "cluster": ("jobs",), "jobs": ()}
ROOF = ("cli", "console", "testing")
DEEPEST = 2
"""``jobs`` may import a module of ``cluster.fleet``, a sibling's child; of what lies deeper, the package alone."""


@pytest.fixture(scope="module")
def imports(repository: Path) -> list[Import]:
    """Every import within the product."""
    return product_imports(repository)


def package_of(name: str, files: dict[str, Path]) -> str:
    """Return the package that holds a module; a package's is itself."""
    return name if files[name].name == "__init__.py" else name.rpartition(".")[0]


def test_no_cycle_between_packages_at_any_level(imports: list[Import], repository: Path) -> None:
    """Within each package, its sub-packages and modules import one another in one direction only."""
    files = product_files(repository)
    packages = {name for name, path in files.items() if path.name == "__init__.py"}
    cycles = []
    for package in sorted(packages):
        graph: dict[str, set[str]] = defaultdict(set)
        for each in imports:
            ends = [_child(package, name) for name in (each.importer, each.imported)]
            # Two modules of one room may name each other's types.
            if all(ends) and ends[0] != ends[1] and any(f"{package}.{end}" in packages for end in ends):
                graph[ends[0]].add(ends[1])
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            cycles.append(f"{package}: {' <- '.join(error.args[1])}")
    assert cycles == []


def _child(package: str, name: str) -> str:
    """Return which child of ``package`` a module is or lies in, "" for none."""
    return name.removeprefix(f"{package}.").partition(".")[0] if name.startswith(f"{package}.") else ""


def test_floors_import_downwards(imports: list[Import]) -> None:
    """Jobs import cluster and actors, cluster imports actors, and none of them the roof."""
    upwards = [
        str(each)
        for each in imports
        if (floor := _child(PACKAGE, each.importer)) in FLOORS
        and _child(PACKAGE, each.imported) in (*ABOVE[floor], *ROOF)
    ]
    assert upwards == []


def test_what_lies_deeper_is_imported_from_its_package(imports: list[Import], repository: Path) -> None:
    """A module of another branch is imported itself down to a sibling's child; below that, through the ``__init__``."""
    files = product_files(repository)
    deep = []
    for each in imports:
        here = package_of(each.importer, files).split(".")
        there = package_of(each.imported, files).split(".")
        common = next(
            (i for i, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), min(map(len, (here, there)))
        )
        if len(there) - common > DEEPEST and not each.imported_is_package:
            deep.append(str(each))
    assert deep == []


def test_a_room_holds_few_files(repository: Path) -> None:
    """What grows past a dozen files holds two things."""
    sizes: dict[str, int] = defaultdict(int)
    for name, path in product_files(repository).items():
        if path.name != "__init__.py":
            sizes[name.rpartition(".")[0]] += 1
    assert {name: size for name, size in sizes.items() if size > MAX_ROOM_FILES} == {}


OPENERS = frozenset({"open_source", "open_store", "open_regular", "decode_range", "read_source", "read_burnt"})
"""The functions by which jobs open files, and ``av.open``."""
READS_FIRST = {f"{PACKAGE}.jobs.plan.{name}" for name in ("reads", "borders")}


def test_planning_reads_first(repository: Path) -> None:
    """Of the rooms that plan, the reading step alone imports what opens a file; a header is tried in memory."""
    found = {
        name: {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
        | {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        for name, path in product_files(repository).items()
        if name.startswith((f"{PACKAGE}.jobs.plan.", f"{PACKAGE}.jobs.carry."))
        for tree in [ast.parse(path.read_text(encoding="utf-8"))]
    }
    assert {name for name, names in found.items() if names & OPENERS} == READS_FIRST
    assert {name for name, names in found.items() if "av" in names} == {f"{PACKAGE}.jobs.carry.header_trial"}

"""Code of the product has a caller in the product: nothing is there that only tests reach."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from codecfleet.cli.app import MODULES

from .call_graph import Walk
from .product_modules import BODY, Module, programs, read_modules

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDERS = ("actors", "cluster", "jobs")
FAKES = "testing"
"""What ships for users' own tests: it may reach the product, and does not make it reached."""
PAGES = ("dla.md", "nvdec.md", "nvenc.md")
"""Pages whose tables say which of our names does what one of NVIDIA's does."""

_TABLE_PLACE = re.compile(r"`([a-z_]+(?:\.[a-z_0-9]+)*):([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)`")
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[a-z_]\w*)?")


def public_names() -> Iterator[str]:
    """Yield the key of each public name of the package, as its ``_HOMES`` has them."""
    tree = ast.parse((REPOSITORY / "codecfleet" / "__init__.py").read_text(encoding="utf-8"))
    (homes,) = (
        node.value for node in tree.body if isinstance(node, ast.Assign) and "_HOMES" in ast.dump(node.targets[0])
    )
    for home, names in ast.literal_eval(homes).items():
        yield from (f"{home}:{name}" for name in names)


@pytest.fixture(scope="module")
def modules() -> dict[str, Module]:
    """The product's modules, and the fakes that ship with it."""
    return read_modules(REPOSITORY, FOLDERS)


@pytest.fixture(scope="module")
def walk(modules: dict[str, Module]) -> Walk:
    """A walk from the command line, the public API, and the programs of workers and probes."""
    walk = Walk(modules)
    commands = [f"cli.{module}:COMMANDS" for module in MODULES]  # the command line imports them by name
    walk.run([f":{BODY}", *public_names(), *programs(modules), *commands, "__main__:main"])
    return walk


def test_everything_has_a_caller(walk: Walk) -> None:
    """From the command line, the public API, the worker and the supervisor, all of the product is reached."""
    unreached = [found for found in walk.unreached() if found.module.split(".")[0] != FAKES]
    assert [f"{found.key} (line {found.line})" for found in unreached] == []


def test_tables_name_what_is_reached(modules: dict[str, Module], walk: Walk) -> None:
    """Each place in the tables of docs/nvidia is one that the walk reaches, itself or the class that it belongs to."""
    wrong = []
    for page in sorted((REPOSITORY / "docs" / "nvidia").glob("*.md")):
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            for module, name in _TABLE_PLACE.findall(line):
                if module in modules and not _is_reached(modules[module], name, walk):
                    wrong.append(f"{page.name}:{number}: {module}:{name}")
    assert wrong == []


@pytest.mark.parametrize("page", PAGES)
def test_pages_name_what_is_reached(modules: dict[str, Module], walk: Walk, page: str) -> None:
    """Each of our names in a table of a session's page is one that the walk reaches."""
    by_name = {
        name: module for module in modules.values() for name in module.definitions if module.name.split(".")[0] != FAKES
    }
    named = [
        (number, name)
        for number, line in enumerate((REPOSITORY / "docs" / page).read_text(encoding="utf-8").splitlines(), 1)
        if line.startswith("|")
        for name in re.findall(r"`([^`]+)`", line)
        if _NAME.fullmatch(name) and name.partition(".")[0] in by_name
    ]
    assert named, "the page names nothing of ours"
    wrong = [(number, name) for number, name in named if not _is_reached(by_name[name.partition(".")[0]], name, walk)]
    assert wrong == []


def _is_reached(module: Module, name: str, walk: Walk) -> bool:
    owner, _, member = name.partition(".")
    found = module.definitions.get(owner)
    if found is None:
        # A name that its module imports is somebody else's, or stands in that one's own place.
        return owner in module.imports
    method = found.methods.get(member)
    return walk.has_caller(found if method is None or method.is_stub else method)


SAMPLE = {
    "cli": """
from .jobs.run import Runner, Shape, used
def main():
    runner = Runner()
    runner.start()
    if isinstance(runner, Shape):
        getattr(runner, "by_text")()
    used()
""",
    "jobs/run": """
from typing import Protocol, TypedDict
class Part(TypedDict): ...
class Options(Part): ...
class Unasked(Part): ...
class Base:
    def start(self): ...
    def never(self): self.also_never()
    def also_never(self): return dead()
class Runner(Base):
    limit = DEFAULT = 3
    def start(self): return [helper(each) for each in ()]
    def by_text(self): pass
    @property
    def unread(self): return 1
    def __repr__(self): return shown()
class Shape: ...
class Like(Protocol):
    def start(self): ...
class Wrong(Exception): ...
def helper(each: "Like"): return TABLE[each]
def used(**options: "Options"):
    helper = 1
    return shadowed(helper)
def shadowed(value): return value
def shown(): return ""
def dead(): return also_dead()
def also_dead(): raise Wrong
TABLE = {1: entry}
def entry(): ...
@register
def registered(): ...
UNUSED = 1
""",
}


def test_the_walk_finds_what_has_no_caller(tmp_path: Path) -> None:
    """Dead functions, methods, constants, and classes that are only asked about, are found; nothing else is."""
    for name, text in SAMPLE.items():
        path = tmp_path / (f"codecfleet/{name}.py" if "/" not in name else f"{name}.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    walk = Walk(read_modules(tmp_path, ["jobs"]))
    walk.run(["cli:main"])
    unreached = {found.key.removeprefix("jobs.run:") for found in walk.unreached()}
    assert unreached == {
        *("Base.never", "Base.also_never", "Runner.unread", "Shape", "Wrong", "dead", "also_dead", "UNUSED", "Unasked"),
    }


def test_a_root_that_is_gone_is_an_error(tmp_path: Path) -> None:
    """An entry point that was renamed does not make the walk begin nowhere."""
    with pytest.raises(LookupError, match=r"there is no cli.app:main"):
        Walk(read_modules(tmp_path, [])).run(["cli.app:main"])

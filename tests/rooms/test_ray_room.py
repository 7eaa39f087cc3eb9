"""Ray is imported in one room alone, and what is private to it is used in one part of that."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRIVATE = ("_raylet", "internal_kv", "core", "v2")
ROOM = "cluster/ray"
VARIABLES = ("RAY_START_HOOK", "RAY_OVERRIDE_")
"""Variables that Ray reads and does not document."""


def private_uses(source: str) -> Iterator[str]:
    """Yield every import, attribute and module name in Python source that is private to Ray."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value]
            if node.value.startswith(VARIABLES):
                yield node.value
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "ray.init":
            yield from (each.arg for each in node.keywords if each.arg and each.arg.startswith("_"))
        for name in names:
            first, *rest = name.split(".")
            if first == "ray" and any(part in PRIVATE or part.startswith("_") for part in rest if part[:2] != "__"):
                yield name


def product() -> Iterator[tuple[str, str]]:
    """Yield each module of the product: its path, and its source."""
    for floor in ("actors", "cluster", "jobs", "codecfleet"):
        for path in (ROOT / floor).rglob("*.py"):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def imports_ray(source: str) -> bool:
    """Return whether Python source imports Ray, or a module of it, anywhere."""
    nodes = list(ast.walk(ast.parse(source)))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    named = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level}
    loaded = {
        each.value
        for node in nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module")
        for each in node.args
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    }
    return any(name.partition(".")[0] == "ray" for name in plain | named | loaded)


def test_one_room_imports_ray() -> None:
    """All others call its small typed functions."""
    assert [path for path, source in product() if imports_ray(source) and not path.startswith(f"{ROOM}/")] == []


def test_one_room_uses_what_is_private_to_ray() -> None:
    """No other module of the product imports or reaches into Ray's private modules, or passes private arguments."""
    users = {path.rpartition("/")[0] for path, source in product() if any(private_uses(source))}
    assert users == {f"{ROOM}/private"}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from ray._private import state", ["ray._private.state"]),
        ("from ray import _raylet", ["ray._raylet"]),
        ("from ray.experimental import internal_kv", ["ray.experimental.internal_kv"]),
        ("ray._private.worker", ["ray._private.worker", "ray._private"]),
        ("import_module('ray._private.utils')", ["ray._private.utils"]),
        ("from ray.autoscaler.v2.utils import is_autoscaler_v2", ["ray.autoscaler.v2.utils.is_autoscaler_v2"]),
        ("ray.init(_temp_dir='here')", ["_temp_dir"]),
        ("{'RAY_START_HOOK': 'hook'}", ["RAY_START_HOOK"]),
        ("from ray.util import list_named_actors; ray.get(ray.__version__)", []),
    ],
)
def test_private_uses_are_seen(source: str, found: list[str]) -> None:
    """The search sees each way to reach what is private."""
    assert list(private_uses(source)) == found

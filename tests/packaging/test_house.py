"""Rules that hold for every module: which floors know NVIDIA's packages, and that one class name means one thing."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("actors", "cluster", "jobs", "codecfleet")
NVIDIA = ("PyNvVideoCodec", "cuda", "pynvml", "codecfleet.actors.nvidia")
"""What generic code does without: NVIDIA's packages, and what drives them."""
ENGINES = ("actors/nvidia/", "actors/dla/")


def _modules(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    """Yield each module of some folders, by its path from the root; links to the floors are not followed."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not any(each.is_symlink() for each in path.parents):
                yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())


def _imported(path: str, tree: ast.Module) -> Iterator[str]:
    """Yield the absolute names that a module imports anywhere: in functions and for type checkers too."""
    parts = list(Path(path).with_suffix("").parts)
    package = (parts if parts[0] == "codecfleet" else ["codecfleet", *parts])[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str))


def _nvidia_imports(path: str, tree: ast.Module) -> list[str]:
    prefixes = tuple(f"{each}." for each in NVIDIA)
    return [name for name in _imported(path, tree) if f"{name}.".startswith(prefixes)]


def test_generic_code_is_free_of_nvidia() -> None:
    """Jobs and actors know a device by its interface; a process that makes one imports what drives it."""
    found = {
        path: names
        for path, tree in _modules("actors", "jobs")
        if not path.startswith(ENGINES) and (names := _nvidia_imports(path, tree))
    }
    assert found == {}


@pytest.mark.parametrize(
    "code",
    [
        "from ..actors.nvidia.gpu import Gpu",
        "from ..actors import nvidia",
        "def f():\n    import pynvml",
        "if TYPE_CHECKING:\n    from cuda.bindings import driver",
        "import PyNvVideoCodec as nvc",
        'importlib.import_module("cuda.core")',
    ],
)
def test_an_import_of_nvidia_is_found_wherever_it_hides(code: str) -> None:
    """In functions, for type checkers, by name."""
    assert _nvidia_imports("jobs/module.py", ast.parse(code))
    assert not _nvidia_imports("jobs/module.py", ast.parse("from ..actors.nvidious import cuda_free\nimport cudax"))


def test_a_class_name_means_one_thing() -> None:
    """No two public classes of the product share a name: a reader who meets one knows which it is."""
    homes: dict[str, list[str]] = {}
    for path, tree in _modules(*FOLDERS):
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(path)
    assert len(homes) > len(FOLDERS)
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}

"""Who imports whom in the product: every import statement, wherever it stands."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "codecfleet"
FLOORS = ("actors", "cluster", "jobs")


@dataclass(frozen=True, slots=True)
class Import:
    """One module's import of another, or of a package's ``__init__``."""

    importer: str
    imported: str
    line: int
    imported_is_package: bool

    def __str__(self) -> str:
        """Return it as a line that an editor can follow."""
        return f"{self.importer}:{self.line} imports {self.imported}"


def product_files(root: Path) -> dict[str, Path]:
    """Return the product's modules and packages by their full names; ``root`` is the checkout."""
    floors = [(PACKAGE, root / floor) for floor in FLOORS]
    found = {}
    for prefix, folder in [*floors, ("", root / PACKAGE)]:
        for path in folder.rglob("*.py"):  # does not follow the package's links to the floors
            parts = [part for part in (prefix, *path.relative_to(root).with_suffix("").parts) if part]
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def product_imports(root: Path) -> list[Import]:
    """Return every import within the product, those of types and of functions' bodies among them."""
    files = product_files(root)
    return [found for name, path in files.items() for found in _imports_of(name, path, files)]


def _imports_of(importer: str, path: Path, files: dict[str, Path]) -> Iterator[Import]:
    package = importer.split(".") if path.name == "__init__.py" else importer.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *(node.module or "").split(".")]).strip(".")
            names = [f"{base}.{alias.name}" for alias in node.names]
            found = {name if name in files else base for name in names}
        elif isinstance(node, ast.Import):
            found = {alias.name for alias in node.names}
        else:
            continue
        for name in sorted(found & files.keys()):
            yield Import(importer, name, node.lineno, files[name].name == "__init__.py")

"""The product's modules as syntax trees: what each defines, what its names mean, and what refers to what."""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

PACKAGE = "codecfleet"
BODY = "<body>"
"""The name of what a module runs when it is imported."""

_NAME_IN_TEXT = re.compile(r"[a-z]\w*(?:_\w+|[A-Z]\w*)")
"""Text that can only be the name of a method, since no word of prose looks like it: ``getattr`` may be given it."""
_PLACE_IN_TEXT = re.compile(r":(\w+)")
"""The end of ``f"{__name__}:function"``, by which a function of this module is run in a process of its own."""
_PLAIN_DECORATORS = frozenset(
    {
        *("property", "cached_property", "staticmethod", "classmethod", "abstractmethod", "override", "overload"),
        *("final", "setter", "cache", "lru_cache", "contextmanager", "asynccontextmanager", "dataclass", "wraps"),
    }
)
"""Decorators that register a function nowhere; any other one may, and so reaches it."""
_TYPES_ONLY = frozenset({"isinstance", "issubclass", "cast", "suppress", "TypeVar"})
"""Functions that name a class without making one."""

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True)
class References:
    """What a piece of code refers to: names as they are written, with what follows their dots, and bare attributes."""

    paths: set[tuple[str, ...]] = field(default_factory=set)
    types: set[tuple[str, ...]] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)

    def take(self, other: "References") -> None:
        """Add what another piece of code refers to."""
        self.paths |= other.paths
        self.types |= other.types
        self.attributes |= other.attributes


@dataclass(slots=True)
class Definition:
    """A function, a class, a method (``Class.method``) or a constant of a module."""

    module: str
    name: str
    line: int
    references: References
    is_class: bool = False
    is_stub: bool = False
    bases: list[tuple[str, ...]] = field(default_factory=list)
    methods: dict[str, "Definition"] = field(default_factory=dict)
    always: set[str] = field(default_factory=set)

    @property
    def key(self) -> str:
        """Module and name, as documents write it."""
        return f"{self.module}:{self.name}"


@dataclass(slots=True)
class Module:
    """One module: what it defines, what its names mean, and what it runs when it is imported."""

    name: str
    path: Path
    definitions: dict[str, Definition] = field(default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    body: References = field(default_factory=References)
    is_program: bool = False


class _Collector(ast.NodeVisitor):
    """Collects what a piece of code refers to, names that it binds itself left out."""

    def __init__(self, bound: Iterable[str] = ()) -> None:
        self.found = References()
        self._bound = set(bound)

    def collect(self, nodes: Iterable[ast.AST | None]) -> References:
        for node in nodes:
            if node is not None:
                self.visit(node)
        return self.found

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and node.id not in self._bound:
            self.found.paths.add((node.id,))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        path = _dotted(node)
        if path is not None and path[0] not in self._bound:
            self.found.paths.add(path)
        self.found.attributes.add(node.attr)
        if path is None or isinstance(node.value, ast.Attribute):
            self.visit(node.value)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            if _NAME_IN_TEXT.fullmatch(node.value):
                self.found.attributes.add(node.value)
            elif place := _PLACE_IN_TEXT.fullmatch(node.value):
                self.found.paths.add((place[1],))

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in _TYPES_ONLY:
            self.visit(node.func)
            for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
                self._visit_types(argument)
        else:
            self.generic_visit(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.type is not None:
            self._visit_types(node.type)
        self.collect(node.body)

    def visit_MatchClass(self, node: ast.MatchClass) -> None:
        self._visit_types(node.cls)
        self.collect([*node.patterns, *node.kwd_patterns])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._visit_types(node.annotation)
        self.collect([node.target, node.value])

    def visit_FunctionDef(self, node: _Function) -> None:
        inner = _Collector(self._bound | _bindings(node))
        self.found.take(inner.collect([*node.decorator_list, *_defaults(node.args), *node.body]))
        self._visit_annotations(node)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        inner = _Collector(self._bound | {argument.arg for argument in _arguments(node.args)})
        self.found.take(inner.collect([*_defaults(node.args), node.body]))

    def _visit_annotations(self, node: _Function) -> None:
        for annotation in (node.returns, *(argument.annotation for argument in _arguments(node.args))):
            if annotation is not None:
                self._visit_types(annotation)

    def _visit_types(self, node: ast.AST) -> None:
        found = _Collector(self._bound).collect([_unquoted(node)])
        self.found.types |= found.paths | found.types


def _unquoted(node: ast.AST) -> ast.AST:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return ast.parse(node.value, mode="eval").body
    return node


def _dotted(node: ast.AST) -> tuple[str, ...] | None:
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return (node.id, *reversed(names)) if isinstance(node, ast.Name) else None


def _arguments(arguments: ast.arguments) -> list[ast.arg]:
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [*named, *(each for each in (arguments.vararg, arguments.kwarg) if each is not None)]


def _defaults(arguments: ast.arguments) -> list[ast.expr | None]:
    return [*arguments.defaults, *arguments.kw_defaults]


def _bindings(function: _Function) -> set[str]:
    """Return the names that a function binds itself: its arguments, and what it assigns; not what it imports."""
    bound = {argument.arg for argument in _arguments(function.args)} - {"self", "cls"}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
    return bound


def read_modules(root: Path, folders: Iterable[str]) -> dict[str, Module]:
    """Return the product's modules by their names, without the package's own.

    Args:
        root: the checkout.
        folders: those that hold the product's packages; ``codecfleet`` itself gives its own modules alone.
    """
    paths = [path for folder in folders for path in sorted((root / folder).rglob("*.py"))]
    own = sorted((root / PACKAGE).rglob("*.py"))  # its links to the folders are not followed
    modules: dict[str, Module] = {}
    for path in [*paths, *own]:
        parts = list(path.relative_to(root).with_suffix("").parts)
        parts = parts[1:] if parts[0] == PACKAGE else parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        modules[name] = _read_module(name, path, is_package=is_package)
    return modules


def _read_module(name: str, path: Path, *, is_package: bool) -> Module:
    module = Module(name, path)
    package = name.split(".") if is_package else name.split(".")[:-1]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            _note_import(module, node, [part for part in package if part])
    body = _Collector()
    for statement in tree.body:
        _take_statement(module, statement, body)
    module.body = body.found
    return module


def _note_import(module: Module, node: ast.ImportFrom, package: list[str]) -> None:
    if node.level == 0:
        origin = (node.module or "").split(".")
        if origin[0] != PACKAGE:
            return
        base = origin[1:]
    else:
        # The top package's own name is not part of a module's name here, so its floor is one level down.
        base = [*package[: len(package) - (node.level - 1)], *(node.module.split(".") if node.module else [])]
    for alias in node.names:
        module.imports[alias.asname or alias.name] = (".".join(base), alias.name)


def _take_statement(module: Module, node: ast.stmt, body: _Collector) -> None:
    if isinstance(node, _Function):
        found = _function(module.name, node, node.name)
        module.definitions[node.name] = found
        if _is_registered(node) or _is_pythons(node.name):
            body.found.paths.add((node.name,))
    elif isinstance(node, ast.ClassDef):
        module.definitions[node.name] = _class(module.name, node)
    elif isinstance(node, ast.Assign | ast.AnnAssign) and (names := _targets(node)):
        references = _Collector().collect([node])
        for name in names:
            module.definitions[name] = Definition(module.name, name, node.lineno, references)
    elif isinstance(node, ast.If) and "__main__" in ast.dump(node.test):
        module.is_program = True
        body.collect(node.body)
    elif not isinstance(node, ast.Import | ast.ImportFrom):
        body.visit(node)


def _targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    names = [each for target in targets for each in ast.walk(target)]
    return [each.id for each in names if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]


def _function(module: str, node: _Function, name: str) -> Definition:
    return Definition(module, name, node.lineno, _Collector().collect([node]), is_stub=_is_stub(node))


def _is_stub(node: _Function) -> bool:
    """Tell whether a function only says what others do: a docstring, dots, or an error that it is not implemented."""
    rest = [each for each in node.body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))]
    return all(isinstance(each, ast.Raise | ast.Pass) and "NotImpl" in ast.dump(each) for each in rest)


def _is_registered(node: _Function) -> bool:
    names = [(_dotted(each.func if isinstance(each, ast.Call) else each) or ("?",))[-1] for each in node.decorator_list]
    return any(name not in _PLAIN_DECORATORS for name in names)


def _class(module: str, node: ast.ClassDef) -> Definition:
    functions = [each for each in node.body if isinstance(each, _Function)]
    others = [each for each in node.body if not isinstance(each, _Function)]
    references = _Collector().collect([*node.decorator_list, *node.bases, *node.keywords, *others])
    found = Definition(module, node.name, node.lineno, references, is_class=True)
    found.bases = [path for base in node.bases if (path := _dotted(_unsubscripted(base))) is not None]
    for each in functions:
        method = _function(module, each, f"{node.name}.{each.name}")
        if earlier := found.methods.get(each.name):  # a property and its setter
            method.references.take(earlier.references)
        found.methods[each.name] = method
        if _is_registered(each) or _is_pythons(each.name):
            found.always.add(each.name)
    return found


def _is_pythons(name: str) -> bool:
    """Tell whether Python itself calls a function of this name."""
    return name == "_missing_" or (name.startswith("__") and name.endswith("__"))


def _unsubscripted(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Subscript) else node


def programs(modules: dict[str, Module]) -> list[str]:
    """Return the keys of the modules that Python runs by themselves, and of the programs that our processes start."""
    started = [f"{name}:main" for name, module in modules.items() if module.imports.get("begin") == _BEGIN]
    return started + [f"{name}:{BODY}" for name, module in modules.items() if module.is_program]


_BEGIN = ("actors.process.program", "begin")

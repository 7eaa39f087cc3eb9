"""What of the product its entry points reach: a walk over all its modules.

The walk follows names exactly, and methods by their name: a method counts as reached when its class is made somewhere
in reached code and its name is used as an attribute somewhere in reached code. So what it calls unreached has no
caller; a method that shares its name with a used one may escape it. Annotations, ``isinstance``, ``except`` and
patterns name a class without making one.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from .product_modules import BODY, Definition, Module, References

_NEUTRAL_BASES = frozenset(
    {"object", "ABC", "Generic", "Protocol", "Enum", "IntEnum", "StrEnum", "IntFlag", "NamedTuple"}
)
"""Bases of Python's own that call no method by a name of ours."""


class Walk:
    """The walk: give it roots, then ask what it did not reach."""

    def __init__(self, modules: dict[str, Module]) -> None:
        self._modules = modules
        self.reached: set[str] = set()
        self._typed: set[str] = set()
        self._attributes: set[str] = set()
        self._waiting: list[Definition] = []
        self._waiting_for: dict[str, list[tuple[Definition, Definition]]] = defaultdict(list)
        self._begun: set[str] = set()

    def run(self, roots: Iterable[str]) -> None:
        """Walk from ``module:name`` keys; a class among them is reached with its public methods."""
        for key in roots:
            module, _, name = key.partition(":")
            self._begin(module)
            found = None if name == BODY else self._resolve(module, (name,))
            if found is None and name != BODY:
                message = f"there is no {key} to walk from"
                raise LookupError(message)
            if found is not None:
                self._reach(found)
                for method in found.methods.values():
                    if not method.name.rpartition(".")[2].startswith("_"):
                        self._reach(method)
        while self._waiting:
            self._follow(self._waiting.pop())

    def has_caller(self, found: Definition) -> bool:
        """Tell whether something reaches a definition: a class may also be needed as a type alone."""
        return found.key in self.reached or (found.key in self._typed and self._is_only_a_type(found))

    def unreached(self) -> Iterator[Definition]:
        """Yield what nothing reaches, classes without their methods."""
        for module in self._modules.values():
            for found in module.definitions.values():
                if found.name.startswith("__"):
                    continue
                if not self.has_caller(found):
                    yield found
                elif found.key in self.reached:
                    methods = found.methods.values()
                    yield from (each for each in methods if not each.is_stub and each.key not in self.reached)

    def _is_only_a_type(self, found: Definition) -> bool:
        """Tell whether a class that is never made need not be: a protocol, or a base that says what others do."""
        return any(path[-1] in {"Protocol", "ABC"} for path in found.bases)

    def _begin(self, name: str) -> None:
        """Import a module: what it runs then is reached."""
        if name in self._begun or name not in self._modules:
            return
        self._begun.add(name)
        self._refer(name, self._modules[name].body)

    def _resolve(self, module: str, path: tuple[str, ...]) -> Definition | None:
        """Return what a dotted name means in a module, following imports; None where it is not ours."""
        seen = 0
        while module in self._modules and path and seen < len(self._modules):
            seen += 1
            here = self._modules[module]
            if path[0] in here.definitions:
                found = here.definitions[path[0]]
                return found.methods.get(path[1], found) if len(path) > 1 else found
            if path[0] not in here.imports:
                return None
            origin, name = here.imports[path[0]]
            submodule = f"{origin}.{name}" if origin else name
            module, path = (submodule, path[1:]) if submodule in self._modules else (origin, (name, *path[1:]))
            self._begin(module)
        return None

    def _reach(self, found: Definition) -> None:
        if found.key in self.reached:
            return
        self.reached.add(found.key)
        self._begin(found.module)
        self._waiting.append(found)

    def _follow(self, found: Definition) -> None:
        self._refer(found.module, found.references)
        if not found.is_class:
            return
        foreign = self._has_foreign_base(found)
        for name, method in found.methods.items():
            if name in found.always or name in self._attributes or foreign:
                self._reach(method)
            else:
                self._waiting_for[name].append((found, method))

    def _has_foreign_base(self, found: Definition) -> bool:
        """Tell whether somebody else's base class may call its methods."""
        for path in found.bases:
            if path[-1] in _NEUTRAL_BASES or path[-1].endswith(("Error", "Exception")):
                continue
            if self._resolve(found.module, path) is None:
                return True
        return False

    def _is_model(self, found: Definition) -> bool:
        """Tell whether a class is used wherever it is a type: pydantic makes it, or it is what a dictionary holds."""
        bases = (self._resolve(found.module, path) for path in found.bases)
        return any(path[-1] in {"BaseModel", "TypedDict"} for path in found.bases) or any(
            base is not None and base.is_class and self._is_model(base) for base in bases
        )

    def _refer(self, module: str, references: References) -> None:
        for path in references.paths:
            found = self._resolve(module, path)
            if found is not None:
                owner = self._modules[found.module].definitions.get(found.name.partition(".")[0])
                if owner is not None and owner is not found:
                    self._reach(owner)
                self._reach(found)
        for path in references.types:
            found = self._resolve(module, path)
            if found is not None:
                is_new = found.key not in self._typed
                self._typed.add(found.key)
                if not found.is_class or self._is_model(found):
                    self._reach(found)
                elif is_new and self._is_only_a_type(found):
                    self._refer(found.module, found.references)
        for name in references.attributes - self._attributes:
            self._attributes.add(name)
            for _, method in self._waiting_for.pop(name, ()):
                self._reach(method)

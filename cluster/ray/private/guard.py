"""Checks whether a part of Ray's internals is the tested one, by Ray's version and the signature of the part."""

import inspect
import os
from collections.abc import Mapping
from importlib import import_module
from operator import attrgetter
from typing import Final

TESTED_MINORS: Final = ((2, 60),)  #: The versions of Ray that pass the contract tests: ``make ray-contract``
SWITCH, OFF, ANY_VERSION = "_CODECFLEET_RAY_PRIVATE", "off", "any-version"
"""A variable for tests. Its values limit a process to public calls, or skip the check of Ray's version."""


def why_unknown(shapes: Mapping[str, tuple[str, ...] | type], package: str = "ray._private") -> str:
    """Return why parts of Ray may not be used; "" if Ray's version was tested and all parts have the expected shape.

    The shape of a function is its arguments; the shape of a value is its type.
    """
    import ray

    switched = os.environ.get(SWITCH)
    if switched == OFF:
        return "its internals are switched off"
    tested = [[str(major), str(minor)] for major, minor in TESTED_MINORS]
    if switched != ANY_VERSION and ray.__version__.split(".")[:2] not in tested:
        return f"codecfleet was not tested with Ray {ray.__version__}"
    different = next((name for name, shape in shapes.items() if not _fits(package, name, shape)), None)
    return "" if different is None else f"its {package}.{different} differs from the tested version"


def _fits(package: str, name: str, shape: tuple[str, ...] | type) -> bool:
    module, _, attribute = name.partition(".")
    try:
        found = attrgetter(attribute)(import_module(f"{package}.{module}"))
        if isinstance(shape, type):
            return isinstance(found, shape)
        inspect.signature(found).bind(**dict.fromkeys(shape))
    except (ImportError, AttributeError, TypeError, ValueError):
        return False
    return True

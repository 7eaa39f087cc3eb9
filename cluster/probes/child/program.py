"""The program that runs one probe, and tells what it yields as it comes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ...process.plain import PlainEnd
from ...process.program import begin

Probe: TypeAlias = Callable[..., Any]
"""An importable function, or generator function."""


@dataclass(frozen=True, slots=True)
class RunProbe:
    """To the program: what it is to run."""

    probe: Probe
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Yielded:
    """From the program: a value that the probe yielded, or what it returned."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """From the program: the exception that ended the probe."""

    error: str


def main() -> None:
    """Run the probe that the process which started this one sends."""
    end = PlainEnd(begin()[0])
    try:
        order: RunProbe = end.receive()
        found = order.probe(**order.arguments)
        for value in found if isinstance(found, Iterator) else (found,):
            end.send(Yielded(value))
    except Exception as error:  # noqa: BLE001 - whatever the probe raised is its answer
        end.send(Raised(f"{type(error).__name__}: {error}"))

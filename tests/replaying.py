"""Decides again what a supervisor has decided: ``python -m tests.replaying FILE`` of ``codecfleet status --events``."""

import io
import pickle
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from codecfleet.cluster.supervisor.core.core import Core
from codecfleet.cluster.supervisor.runner.recording import Decided, decide


def replayed(packed: bytes) -> tuple[int, list[str]]:
    """Decide everything again; return the number of events, and the decisions and states that differ."""
    kept = unpickled(packed)
    core = next(kept)
    assert isinstance(core, Core)
    count, found = 0, list[str]()
    for then in kept:
        if isinstance(then, Decided):
            count += 1
            now = decide(core, then.event, then.now_s)
            if plain(now) != plain(then):
                found.append(f"event {core.state.event}:\n  {then}\nnow\n  {now}")
        elif plain(core.state) != plain(then.state):
            found.append(f"the state after event {core.state.event} is another")
            core = then
    return count, found


def unpickled(packed: bytes) -> Iterator[Any]:
    """Yield a recording's objects, without a last one that is cut because the supervisor was killed."""
    stream = io.BytesIO(packed)
    while stream.tell() < len(packed):
        try:
            yield pickle.load(stream)
        except (EOFError, pickle.UnpicklingError):
            return


def plain(value: object) -> Any:
    """Return a value as lists, texts and numbers, so that equal values are equal in any order of their sets."""
    if is_dataclass(value):
        return [type(value).__name__, *(plain(getattr(value, each.name)) for each in fields(value))]
    if isinstance(value, Enum) or value is None or isinstance(value, str | int | float | bytes):
        return value
    if isinstance(value, dict):
        return sorted(([plain(name), plain(each)] for name, each in value.items()), key=repr)
    if isinstance(value, set | frozenset):
        return sorted((plain(each) for each in value), key=repr)
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return [type(value).__name__, plain(vars(value)) if hasattr(value, "__dict__") else repr(value)]


if __name__ == "__main__":
    count, differences = replayed(Path(sys.argv[1]).read_bytes())
    sys.stdout.write("\n".join([f"{count} events, {len(differences)} differences", *differences, ""]))
    sys.exit(bool(differences))

"""Tasks have owners: whatever is started beside other code ends it when it fails, and ends with it."""

import ast
from collections import Counter
from pathlib import Path

from .import_graph import product_files

STARTS = ("create_task", "ensure_future")
OWNERS = {
    "codecfleet.actors.task_owner": 1,  # TaskOwner's group
    "codecfleet.actors.background": 2,  # of objects that are started and closed, such as pools and supervisors
    "codecfleet.jobs.held": 1,  # jobs, batches and streams of frames, whose owner is the user
}
LEFT = {
    # Each of these is to start its tasks in a TaskOwner; lower a number, or delete its line, when it does.
}
"""Modules that still start tasks without an owner, and how many."""


def _started(path: Path) -> int:
    """Return how often a module starts a task."""
    calls = (node.func for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
    return sum(isinstance(called, ast.Attribute) and called.attr in STARTS for called in calls)


def test_tasks_are_started_by_their_owners_alone(repository: Path) -> None:
    """A bare task can die unheard: its error is lost, and what waits for it waits without end."""
    found = Counter({name: _started(path) for name, path in product_files(repository).items()})
    assert +(found - Counter(OWNERS) - Counter(LEFT)) == Counter()
    assert {name: found[name] for name in OWNERS} == OWNERS

"""House rules that no kept tool checks; which room may import what is in pyproject.toml, for import-linter."""

import ast
import gc
import re
from collections import Counter
from pathlib import Path

import pytest

from codecfleet import errors

ROOT = Path(__file__).parents[2]
FLOORS = ("actors", "cluster", "jobs")
MAX_ROOM_FILES = 14
OWNERS = {
    "actors/task_owner.py": 1,  # TaskOwner's group
    "actors/background.py": 2,  # of objects that are started and closed, such as pools and supervisors
    "jobs/held.py": 1,  # jobs, batches and streams of frames, which their user owns
    "codecfleet/cli/interrupts.py": 1,  # the whole work of a command
}
"""Modules that start tasks, and how many."""
OPENERS = {"open_source", "open_store", "open_regular", "decode_range", "read_source", "read_burnt"}
"""The functions by which jobs open files."""
STARTS_PROCESSES = re.compile(
    r"subprocess|multiprocessing(\..*)?|ProcessPoolExecutor|(create_)?subprocess_(exec|shell)"
    r"|fork(pty)?|posix_spawnp?|(exec|spawn)[lv]p?e?|popen|system"
)
"""What starts processes: names that are imported, and functions that are called."""
RAY_PRIVATE = {"_raylet", "internal_kv", "core", "v2"}
RAY_VARIABLES = ("RAY_START_HOOK", "RAY_OVERRIDE_")
"""Variables that Ray reads and does not document."""
USED_BY_NAME = [
    *("nvml*", "persistent_id", "persistent_load", "handleError", "_missing_"),  # NVML, pickle, logging and enum
    *("*_async", "bsl", "skipped_packets", "of_dma_buf", "at_times"),  # methods of public classes, which users call
    *("state_dict", "load_state_dict"),  # of ClipDataset, by the names of PyTorch's loaders
    "gpu_slices",  # codecfleet.testing
]
"""What vulture sees no use of."""


Modules = dict[str, list[ast.AST]]


@pytest.fixture(scope="module")
def modules() -> Modules:
    """All nodes of each module of the product by its path, the roof's links to the floors left out."""
    paths = [path for folder in (*FLOORS, "codecfleet") for path in sorted((ROOT / folder).rglob("*.py"))]
    gc.disable()  # it would walk a growing tree again and again: 4 s
    try:
        return {
            path.relative_to(ROOT).as_posix(): list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
            for path in paths
        }
    finally:
        gc.enable()


def calls(nodes: list[ast.AST]) -> list[tuple[str, ast.Call]]:
    """Return a module's calls by the name of what is called."""
    return [(dotted(node.func), node) for node in nodes if isinstance(node, ast.Call)]


def dotted(node: ast.AST) -> str:
    """Return an expression's names, joined by dots: ``jobs.first.wait`` of ``jobs[0].first().wait``."""
    match node:
        case ast.Attribute():
            return f"{dotted(node.value)}.{node.attr}"
        case ast.Call():
            return dotted(node.func)
        case ast.Subscript():
            return dotted(node.value)
    return node.id if isinstance(node, ast.Name) else ""


def imported(nodes: list[ast.AST]) -> set[str]:
    """Return the names that a module imports anywhere, without their modules."""
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    return {alias.name for node in imports for alias in node.names}


def test_a_room_holds_few_files(modules: Modules) -> None:
    """A room with more files holds two subjects."""
    sizes = Counter(path.rpartition("/")[0] for path in modules if not path.endswith("__init__.py"))
    assert {room: size for room, size in sizes.items() if size > MAX_ROOM_FILES} == {}


def test_deep_modules_are_imported_from_their_package(modules: Modules) -> None:
    """From another branch of the tree, a module more than two packages down is imported through an ``__init__``."""
    deep = []
    for path, nodes in modules.items():
        for node in (node for node in nodes if isinstance(node, ast.ImportFrom) and node.level):
            common = [part for part in Path(path).parts[: -node.level] if part != "codecfleet"]
            named = [*common, *(node.module or "").split(".")]
            targets = [named, *([*named, alias.name] for alias in node.names)]
            found = [target for target in targets if "/".join(filter(None, target)) + ".py" in modules]
            deep += [f"{path}:{node.lineno}" for target in found if len(target) - len(common) > 3]
    assert deep == []


def test_a_class_name_means_one_thing(modules: Modules) -> None:
    """No two public classes share a name."""
    bodies = [node.body for nodes in modules.values() for node in nodes if isinstance(node, ast.Module)]
    names = Counter(node.name for body in bodies for node in body if isinstance(node, ast.ClassDef))
    assert [name for name, count in names.items() if count > 1 and not name.startswith("_")] == []


def test_tasks_are_started_by_their_owners_alone(modules: Modules) -> None:
    """The error of a bare task is lost, and code that waits for the task waits forever."""
    started = {
        path: sum(called.endswith((".create_task", ".ensure_future")) for called, _ in calls(nodes))
        for path, nodes in modules.items()
    }
    assert {path: count for path, count in started.items() if count} == OWNERS


def test_one_module_starts_processes(modules: Modules) -> None:
    """``start_command`` gives each process a session of its own, and its starter a sign of its end."""
    starters = {
        path
        for path, tree in modules.items()
        for name in imported(tree) | {called.rpartition(".")[2] for called, _ in calls(tree)}
        if STARTS_PROCESSES.fullmatch(name)
    }
    typed = "cluster/ray/start_watch.py"  # names the type of the processes that Ray starts
    assert starters == {"actors/process/running.py", typed}


def test_one_module_opens_films(modules: Modules) -> None:
    """``open_source`` opens films, so that a film can name no other file; a header is tried in memory."""
    readers = {
        path
        for path, nodes in modules.items()
        for called, call in calls(nodes)
        if called in ("av.open", "av.container.open") and "'w'" not in map(ast.unparse, call.args)
        if not path.startswith("codecfleet/testing/")
    }
    assert readers == {"actors/media/opening.py", "jobs/carry/header_trial.py"}


def test_errors_say_what_to_do_next(modules: Modules) -> None:
    """Every error that can end a command says what to do next, wherever in the product it comes from.

    Exceptions: wrong use of the API, a cancellation, and what is retried (those end a command only when wrapped).
    """
    families = (errors.InputError, errors.RequestError, errors.WorkError)
    ending = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, families) and kind.retry is errors.Retry.NEVER
    }
    silent = [
        f"{path}:{call.lineno} {called}"
        for path, nodes in modules.items()
        for called, call in calls(nodes)
        if called in ending and len(call.args) < 2 and not any(isinstance(each, ast.Starred) for each in call.args)
    ]
    assert silent == []


def test_planning_reads_first(modules: Modules) -> None:
    """In the rooms that plan, only the reading step opens files."""
    rooms = {path: imported(nodes) for path, nodes in modules.items() if path.startswith(("jobs/plan/", "jobs/carry/"))}
    assert {path for path, names in rooms.items() if names & OPENERS} == {"jobs/plan/reads.py", "jobs/plan/borders.py"}
    assert {path for path, names in rooms.items() if "av" in names} == {"jobs/carry/header_trial.py"}


def test_one_room_uses_what_is_private_to_ray(modules: Modules) -> None:
    """Any release of Ray may change its private names; ``cluster/ray/private`` has a public substitute for each."""
    users = {path.rpartition("/")[0] for path, nodes in modules.items() if any(map(_is_private_to_ray, nodes))}
    assert users == {"cluster/ray/private"}


def _is_private_to_ray(node: ast.AST) -> bool:
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and not node.level:
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    elif isinstance(node, ast.Attribute):
        names = [dotted(node)]
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        names = [node.value]
    elif isinstance(node, ast.Call) and dotted(node.func) == "ray.init":
        return any((each.arg or "").startswith("_") for each in node.keywords)
    parts = [name.split(".") for name in names]
    return any(name.startswith(RAY_VARIABLES) for name in names) or any(
        first == "ray" and any(part in RAY_PRIVATE or (part[:1] == "_" and part[:2] != "__") for part in rest)
        for first, *rest in parts
    )


@pytest.mark.slow
@pytest.mark.ci
def test_everything_has_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """No function, class or method is used by tests alone."""
    from vulture.core import Vulture

    monkeypatch.chdir(ROOT)
    found = Vulture(ignore_names=USED_BY_NAME, ignore_decorators=["@*_validator", "@*_serializer"])
    found.scavenge([*FLOORS, "codecfleet"], exclude=[f"codecfleet/{each}" for each in (*FLOORS, "testing")])
    kinds = {"function", "class", "method", "property"}
    unused = [each for each in found.get_unused_code() if each.typ in kinds and not each.name.startswith("__")]
    assert [f"{each.filename}:{each.first_lineno} {each.name}" for each in unused] == []

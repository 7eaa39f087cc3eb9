"""What comes from storage or from a film is data: nothing that runs code reads it, and one module opens films."""

import ast
from collections.abc import Iterator
from pathlib import Path

from .import_graph import PACKAGE, product_files

OPENS_FILMS = f"{PACKAGE}.actors.media.opening"
READS_MEMORY = frozenset({f"{PACKAGE}.jobs.carry.header_trial"})
"""A header that was just written into memory."""
BETWEEN_OUR_PROCESSES = frozenset(
    {
        "actors.process.messages",
        "actors.worker.packed_work",
    }
)
"""They unpickle work and results that processes of one user send each other; none reads a file."""
WRITES_ALONE = "cluster.supervisor.runner.recording"
"""It pickles for those who debug it, and never unpickles."""
RUNS_CODE = frozenset(
    {
        *("pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "torch", "yaml", "runpy", "code"),
        *("multiprocessing", "multiprocessing.connection", "importlib.util"),
    }
)
LOADS = frozenset(["eval", "exec", "compile", "__import__"])


def trees(repository: Path) -> Iterator[tuple[str, ast.AST]]:
    """Yield the product's modules, without its fakes, as syntax trees."""
    for name, path in product_files(repository).items():
        if not name.startswith(f"{PACKAGE}.testing"):
            yield name, ast.parse(path.read_text(encoding="utf-8"))


def imported(tree: ast.AST) -> set[str]:
    """Return the modules that a module imports from elsewhere."""
    nodes = list(ast.walk(tree))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Yield a module's calls by the name of what is called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def test_only_channels_between_our_processes_unpickle(repository: Path) -> None:
    """Journals, results, caches and databases hold plain data: no module but the channels' can run what it reads."""
    loaders = {name: tree for name, tree in trees(repository) if imported(tree) & RUNS_CODE}
    assert loaders.keys() == {f"{PACKAGE}.{name}" for name in (*BETWEEN_OUR_PROCESSES, WRITES_ALONE)}
    pickles = {called for called, _ in calls(loaders[f"{PACKAGE}.{WRITES_ALONE}"]) if called.startswith("pickle.")}
    assert pickles == {"pickle.dumps"}


def test_nothing_is_evaluated(repository: Path) -> None:
    """No module runs text as code, and arrays are read without pickles."""
    found = [f"{name}: {called}" for name, tree in trees(repository) for called, _ in calls(tree) if called in LOADS]
    loaded = [
        f"{name}: {ast.unparse(call)}"
        for name, tree in trees(repository)
        for called, call in calls(tree)
        if called in ("np.load", "numpy.load", "npy.read_array")
        and not any(each.arg == "allow_pickle" and ast.unparse(each.value) == "False" for each in call.keywords)
    ]
    assert (found, loaded) == ([], [])


def test_one_module_opens_films(repository: Path) -> None:
    """Whatever reads a film opens it by ``open_source``, which lets it name nothing else."""
    readers = {
        name
        for name, tree in trees(repository)
        for called, call in calls(tree)
        if called in ("av.open", "av.container.open") and "'w'" not in map(ast.unparse, call.args)
    }
    assert readers == {OPENS_FILMS} | READS_MEMORY

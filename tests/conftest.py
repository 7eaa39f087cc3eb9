"""What every test starts from: a clean environment, the footage where it lies; and one line on what was skipped."""

import asyncio
import compileall
import contextlib
import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from _pytest.assertion import rewrite
from hypothesis import settings

from codecfleet.cluster.ray.embedded import Connection, connect

REPOSITORY = Path(__file__).resolve().parents[1]

# Before any test module is imported: a setting or a cluster of the caller's must not reach a test.
for _name in [name for name in os.environ if name == "RAY_ADDRESS" or name.startswith("CODECFLEET_")]:
    del os.environ[_name]
os.environ["CODECFLEET_WARM"] = "never"  # nor a fleet that the caller keeps up
os.environ["XDG_CONFIG_HOME"] = os.devnull
os.environ["XDG_STATE_HOME"] = os.devnull  # no job of a test gets into the caller's queue

# A busy machine is not a failure. `make test-all` tries more examples, and CI finds the same ones every time.
_CI = os.environ.get("CI") == "true"
settings.register_profile("fast", deadline=None, max_examples=15, derandomize=_CI)
settings.register_profile("full", deadline=None, derandomize=_CI)
settings.load_profile("fast")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile everything once, before the processes of xdist start, which would each do all of it in a new clone."""
    config = session.config
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        for name in ("actors", "cluster", "codecfleet", "jobs"):
            compileall.compile_dir(REPOSITORY / name, quiet=2)
        for path in (REPOSITORY / "tests").rglob("test_*.py"):
            _rewrite_assertions(path, config)


def _rewrite_assertions(path: Path, config: pytest.Config) -> None:
    """Write what pytest would write when it imports a test module."""
    cached = rewrite.get_cache_dir(path) / (path.stem + rewrite.PYC_TAIL)
    if not sys.dont_write_bytecode and rewrite._read_pyc(path, cached) is None:
        stamp, code = rewrite._rewrite_test(path, config)
        if rewrite.try_makedirs(cached.parent):
            rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, stamp, cached)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude modules and tests from garbage collection, which would scan them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that read the shared footage, so that ``-m "not media"`` leaves them out."""
    for item in items:
        if "shared_media" in getattr(item, "fixturenames", ()):
            item.add_marker("media")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Stop the time limit's clock while a report is made: the limit would otherwise end the whole run there."""
    left_s, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, left_s)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Fail a test that leaves this thread in real time: later processes would inherit it and starve a small machine."""
    if sys.platform == "linux" and os.sched_getscheduler(0) in {os.SCHED_FIFO, os.SCHED_RR}:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        pytest.fail("this test left its thread under real-time scheduling")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line what was skipped, and why."""
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped:
        terminalreporter.write_line(skipped_line(str(report.longrepr[2]) for report in skipped))


def skipped_line(reasons: Iterable[str]) -> str:
    """Return one line for all skipped tests, the most frequent reason first."""
    counts = Counter(" ".join(reason.removeprefix("Skipped: ").split()) for reason in reasons)
    told = "; ".join(f"{reason} ({count})" for reason, count in counts.most_common())
    return f"{counts.total()} skipped: {told}"


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout's root."""
    return REPOSITORY


@pytest.fixture(scope="session")
def working_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the private Ray is started: its workers read relative paths from there."""
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="session")
def private_ray(working_folder: Path) -> Iterator[Connection]:
    """One private Ray for all tests of this process, which every fleet shares."""
    with contextlib.chdir(working_folder), ThreadPoolExecutor(1) as thread:
        opened = thread.submit(asyncio.run, connect("local")).result()
    try:
        yield opened
    finally:
        asyncio.run(opened.close())


@pytest.fixture(scope="session")
def film() -> Path:
    """The bundled film excerpt: 240 frames of 1080p24, H.264 with B-frames, AAC."""
    return REPOSITORY / "examples" / "media" / "bunny.mp4"


@pytest.fixture(scope="session")
def shared_media() -> Path:
    """The folder of test footage beside the checkout; where it is absent, tests skip at home and fail in CI."""
    folder = REPOSITORY.parent / "shared" / "media"
    if not (folder / "MANIFEST.json").is_file():
        reason = f"there is no test footage in {folder}"
        if _CI:
            pytest.fail(reason)
        pytest.skip(reason)
    return folder

"""Controls what Ray sees of this process: environment variables, the working directory, and names.

Ray reads hundreds of variables without checking them. A wrong value may end the process, or make a start fail without a
message.
"""

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from ..fleet_variables import is_ray_first
from .token import sign_in

DEATH_KNOBS = {
    "RAY_timeout_ms_task_wait_for_death_info": "50",
    "RAY_core_worker_internal_heartbeat_ms": "100",
}
"""Settings with which a driver's calls to a process on a crashed node fail after 0.1 s rather than 2 s."""

_SET_BY_RAY = ("PYTHONBREAKPOINT", "RAY_CLIENT_MODE")
"""Variables that Ray sets in this process, for a debugger and a client that codecfleet does not use."""
_BREAKS_AGENTS = ("PYTHONINSPECT", "PYTHONOPTIMIZE", "PYTHONWARNINGS")
"""Python's variables that make Ray's agents end at once: the agents need docstrings, and fail if warnings are
errors."""
_JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""The variable in which Ray's job server passes the runtime environment and metadata, as JSON, to a job's driver."""
_PLAIN_SETTING = re.compile(r"-?[0-9]+(\.[0-9]+)?|true|false")


def private_variables(around: Mapping[str, str], chosen: Mapping[str, str]) -> dict[str, str | None]:
    """Return the variables to change for a private Ray; None means that a variable is removed.

    Ray gets the ``chosen`` variables. The user's own settings of Ray, except ``DEATH_KNOBS``, are meant for clusters,
    and are removed; so are Python's variables that end Ray's agents.
    """
    strange = (name for name in around if name.startswith("RAY_") or name in _BREAKS_AGENTS)
    return {**dict.fromkeys(strange), **_death_knobs(around), **chosen}


def _death_knobs(around: Mapping[str, str]) -> dict[str, str]:
    """Return ``DEATH_KNOBS``, but with the user's values where these are numbers; other text would end the process."""
    return {name: around[name] if around.get(name, "").isdecimal() else value for name, value in DEATH_KNOBS.items()}


def cluster_variables(around: Mapping[str, str]) -> dict[str, str | None]:
    """Return the variables to change for a cluster's driver; None means that a variable is removed."""
    return {**unreadable_settings(around), **_death_knobs(around), **sign_in(around)}


def unreadable_settings(around: Mapping[str, str]) -> dict[str, str | None]:
    """Return, for removal, the settings of Ray whose value is neither a number nor a boolean.

    A setting's name has a small letter after RAY_. A malformed number would make Ray end the process. No driver needs a
    setting whose value is other text.
    """
    settings = {name: value for name, value in around.items() if name.startswith("RAY_") and name[4:5].islower()}
    return {name: None for name, value in settings.items() if not _PLAIN_SETTING.fullmatch(value)}


@contextmanager
def environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set or remove environment variables, which Ray's processes inherit; restore them at the end of the block."""
    former = {name: os.environ.get(name) for name in (*variables, *_SET_BY_RAY)}
    _set(variables)
    try:
        yield
    finally:
        _set(former)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def plain_names(refuge: Path) -> Iterator[None]:
    """Hide names that Ray cannot handle: it needs UTF-8, and a working directory that exists.

    If the working directory was deleted, or its name is not UTF-8, ``refuge`` replaces it during the block.
    """
    main = sys.modules["__main__"]
    program, file = sys.argv[:1], getattr(main, "__file__", None)
    if not is_utf8(*program):
        sys.argv[0] = "codecfleet"
    if file is not None and not is_utf8(file):
        main.__file__ = "codecfleet"
    here = None if _has_plain_directory() else os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    if here is not None:
        os.chdir(refuge)
    try:
        yield
    finally:
        sys.argv[:1] = program
        if file is not None:
            main.__file__ = file
        if here is not None:
            with suppress(OSError):  # this process may not enter the directory again
                os.fchdir(here)
            os.close(here)


def is_utf8(*names: str) -> bool:
    """Return whether all of these names, in the form that Python reads from the kernel, are UTF-8."""
    try:
        "".join(names).encode()
    except UnicodeEncodeError:
        return False
    return True


def _has_plain_directory() -> bool:
    try:
        return is_utf8(str(Path.cwd()))
    except OSError:  # the directory was deleted
        return False


def named_cluster(address: str | None) -> str | None:
    """Return the cluster that ``address`` names or, without an address, RAY_ADDRESS; None means this machine."""
    named = address or os.environ.get("RAY_ADDRESS") or "local"
    return None if named == "local" else named


def submission_id(around: Mapping[str, str]) -> str:
    """Return the submission id of the Ray job whose driver this process is; "" if this process is no such driver."""
    try:
        return str(json.loads(around[_JOB_CONFIG])["metadata"]["job_submission_id"])
    except (KeyError, TypeError, ValueError):
        return ""


def may_begin_without_ray(address: str | None) -> bool:
    """Return whether work may begin before Ray starts.

    It may if no cluster is named, and no setting asks for Ray to start first (``is_ray_first``).
    """
    return named_cluster(address) is None and not is_ray_first(os.environ)

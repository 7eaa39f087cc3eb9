"""The versions that have to match: codecfleet's on all of a cluster, and PyAV's on all of a job's workers."""

from importlib.metadata import PackageNotFoundError, version
from typing import Final

from ..errors import VersionRefused


def installed(package: str) -> str:
    """Return the version of a package, "" if none is installed: a checkout on the path has none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


VERSION: Final = installed("codecfleet")
PYAV: Final = installed("av")
"""Its wheel brings FFmpeg and the encoders, so workers with another one make other bytes."""


def makes_alike(wanted: str, has: str) -> bool:
    """Return whether a version of PyAV makes the bytes that another does, as far as both are known."""
    return wanted == has or not (wanted and has)


def named(codecfleet: str) -> str:
    """Return a version of codecfleet for people."""
    return f"codecfleet {codecfleet}" if codecfleet else "a codecfleet of unknown version"


def refuse_client(client: str, supervisor: str) -> None:
    """Return if a client has the version of its cluster's supervisor; ``VersionRefused`` if it has another."""
    if client != supervisor:
        message = f"this client is {named(client)}, and the cluster's supervisor is {named(supervisor)}"
        raise VersionRefused(message, "Install the cluster's version here, or replace the cluster: docs/nodes.md.")


def refuse_worker(worker: str, supervisor: str) -> None:
    """Return if a worker has the version of its supervisor; ``VersionRefused`` if it has another."""
    if worker != supervisor:
        message = f"its node has {named(worker)}, and the supervisor is {named(supervisor)}"
        raise VersionRefused(message, "Install the supervisor's version on that node: docs/nodes.md.")

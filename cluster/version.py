"""Compares versions: codecfleet must be the same on a whole cluster, and PyAV on all workers of a job."""

from importlib.metadata import PackageNotFoundError, version
from typing import Final

from ..errors import VersionRefused


def installed(package: str) -> str:
    """Return the version of a package; "" if the package is not installed, for example in a checkout."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


VERSION: Final = installed("codecfleet")
PYAV: Final = installed("av")
"""PyAV's wheel contains FFmpeg and the encoders, so workers with another version produce different bytes."""


def makes_alike(wanted: str, has: str) -> bool:
    """Return whether two versions of PyAV make the same bytes. An unknown version counts as equal."""
    return wanted == has or not (wanted and has)


def named(codecfleet: str) -> str:
    """Return a version of codecfleet as text for messages."""
    return f"codecfleet {codecfleet}" if codecfleet else "a codecfleet of unknown version"


def refuse_client(client: str, supervisor: str) -> None:
    """Raise VersionRefused if a client and its cluster's supervisor have different versions."""
    if client != supervisor:
        message = f"this client is {named(client)}, and the cluster's supervisor is {named(supervisor)}"
        raise VersionRefused(message, "Install the cluster's version here, or replace the cluster: docs/nodes.md.")


def refuse_worker(worker: str, supervisor: str) -> None:
    """Raise VersionRefused if a worker and its supervisor have different versions."""
    if worker != supervisor:
        message = f"its node has {named(worker)}, and the supervisor is {named(supervisor)}"
        raise VersionRefused(message, "Install the supervisor's version on that node: docs/nodes.md.")

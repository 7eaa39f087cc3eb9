"""Which releases work together on a cluster: the protocol that each speaks, and the oldest that it understands.

A change of what passes between client, supervisor and worker that an earlier release would not understand, or that
gives other bytes for the same piece of work, counts ``PROTOCOL`` up; docs/upgrades.md says which changes do.
"""

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Final, NamedTuple

PROTOCOL: Final = 1
OLDEST: Final = 1
"""The protocol before ``PROTOCOL``, unless a piece of work gives other bytes since."""


def installed(package: str) -> str:
    """Return the version of a package, "" where none is installed: a checkout on the path has none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


@dataclass(frozen=True, slots=True)
class Release:
    """What one side is: the protocol that it speaks, the oldest that it understands, and its version for people.

    One that says nothing is of a time before there were protocols.
    """

    protocol: int = 0
    oldest: int = 0
    version: str = ""

    def understands(self, other: "Release") -> bool:
        """Return whether each of the two understands the other."""
        return other.protocol >= self.oldest and self.protocol >= other.oldest

    def __str__(self) -> str:
        name = f"codecfleet {self.version}" if self.version else "a codecfleet of unknown version"
        return f"{name} (protocol {self.protocol})"


UNNUMBERED: Final = Release()
OURS: Final = Release(PROTOCOL, OLDEST, installed("codecfleet"))
PYAV: Final = installed("av")
"""Its wheel brings FFmpeg and the encoders, so workers with another one make other bytes."""


def makes_alike(wanted: str, has: str) -> bool:
    """Return whether a version of PyAV makes the bytes that another does, as far as both are known."""
    return wanted == has or not (wanted and has)


class Apart(NamedTuple):
    """Why two sides do not work together, and what to do about it."""

    reason: str
    next_step: str


def apart(client: Release, cluster: Release, *, where: str = "the cluster's supervisor") -> Apart | None:
    """Return why a client does not work with what runs ``where`` on the cluster; None where it does."""
    if client.understands(cluster):
        return None
    reason = f"this client is {client}, and {where} is {cluster}: they do not understand each other"
    if client.protocol < cluster.protocol:
        to = f" to {cluster.version}" if cluster.version else ""
        return Apart(reason, f"Upgrade codecfleet{to} where the command runs.")
    to = f" to {client.version}" if client.version else ""
    return Apart(reason, f"Upgrade the cluster{to}, one release at a time: docs/upgrades.md.")

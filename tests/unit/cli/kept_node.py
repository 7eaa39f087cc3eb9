"""A node for ``node start --block``."""

from collections.abc import Callable
from dataclasses import dataclass

from codecfleet.errors import FleetUnavailable


@dataclass
class KeptNode:
    """A node that starts and ends at once, or does not start."""

    error: FleetUnavailable | None = None
    notes: tuple[str, ...] = ("this node joins head:6379",)
    driver: tuple[str, ...] = ()  # lines of its driver

    def run(self, on_start: Callable[[], object], tell: Callable[[str], object] = str) -> None:
        """Start and end."""
        if self.error is not None:
            raise self.error
        on_start()
        for line in self.driver:
            tell(line)

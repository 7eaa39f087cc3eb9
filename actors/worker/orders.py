"""What a supervisor orders of a worker, which obeys the newest supervisor it knows of, and no older one."""

from dataclasses import dataclass


class OldTerm(Exception):
    """The order of a supervisor whose successor the worker knows."""


class NewestTerm:
    """The newest supervisor's term that a worker knows of."""

    def __init__(self, term: int) -> None:
        self._term = term

    def admit(self, term: int) -> None:
        """Take note of a supervisor that gives an order. Raises OldTerm: it is not the newest."""
        if term < self._term:
            raise OldTerm(f"the supervisor of term {term} was replaced by that of term {self._term}")
        self._term = term


@dataclass(frozen=True, slots=True)
class GoneClients:
    """Clients that are gone: those named, or all but those named. Runs' names begin with their client's."""

    names: frozenset[str]
    are_left: bool = False  #: the names are of the clients that are not gone
    term: int = 0  #: of the supervisor that says so

    def had(self, run: str) -> bool:
        """Return whether a run is of a client that is gone."""
        return (run.partition(":")[0] in self.names) is not self.are_left

"""A supervisor's orders to a worker, which obeys only the newest supervisor that it knows."""

from dataclasses import dataclass


class OldTerm(Exception):
    """The supervisor was replaced: the worker knows a newer supervisor."""


class NewestTerm:
    """The term of the newest supervisor that a worker knows."""

    def __init__(self, term: int) -> None:
        self._term = term

    def admit(self, term: int) -> None:
        """Admit an order from the supervisor of this term. Raises OldTerm: there is a newer supervisor."""
        if term < self._term:
            raise OldTerm(f"the supervisor of term {term} was replaced by that of term {self._term}")
        self._term = term


@dataclass(frozen=True, slots=True)
class GoneClients:
    """Clients that are gone: those in ``names``, or all except those in ``names``."""

    names: frozenset[str]
    are_left: bool = False  #: whether ``names`` are those of the clients that remain
    term: int = 0  #: the term of the supervisor that gave the order

    def had(self, run: str) -> bool:
        """Return whether a run belongs to a client that is gone; a run's name begins with the client's name."""
        return (run.partition(":")[0] in self.names) is not self.are_left

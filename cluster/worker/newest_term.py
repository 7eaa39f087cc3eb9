"""A worker's side of terms: it takes orders from the newest supervisor it has heard of, and from no older one."""


class OldTerm(Exception):
    """The order of a supervisor whose successor has been heard of."""


class NewestTerm:
    """The newest term that a worker has heard of."""

    def __init__(self, term: int) -> None:
        self._term = term

    def admit(self, term: int) -> None:
        """Take notice of a supervisor that gives an order.

        Raises:
            OldTerm: it is not the newest.
        """
        if term < self._term:
            raise OldTerm(f"the supervisor of term {term} was replaced by that of term {self._term}")
        self._term = term

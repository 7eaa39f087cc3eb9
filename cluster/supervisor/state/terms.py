"""Terms: each supervisor of a cluster has a number that is larger than any earlier one's.

On a node that is cut off or frozen, a supervisor may live that Ray has replaced, and it goes on once it is let. It
finds out that a newer term was claimed before it gives an order, and ends; workers refuse the orders of an older one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

TERMS_KEY: Final = "codecfleet/term/"
"""The prefix of the keys under which supervisors claim their terms: each belongs to the first that stores it."""
EPOCHS_PER_TERM: Final = 10**9
"""More processes than one supervisor ever starts: their epochs tell the term, and grow with it."""


class Standing(Enum):
    """Whether a supervisor may give orders."""

    LEADS = "leads"
    UNSURE = "unsure"  #: it could not read which terms were claimed
    SUPERSEDED = "superseded"
    CUT_OFF = "cut off"


EDGES: Final[Mapping[Standing, frozenset[Standing]]] = {
    # A look that fails, one that finds a newer term, and too long a time without any.
    Standing.LEADS: frozenset({Standing.UNSURE, Standing.SUPERSEDED, Standing.CUT_OFF}),
    Standing.UNSURE: frozenset({Standing.LEADS, Standing.SUPERSEDED, Standing.CUT_OFF}),
    # Both are final: its process ends.
    Standing.SUPERSEDED: frozenset(),
    Standing.CUT_OFF: frozenset(),
}


@dataclass(frozen=True, slots=True)
class Tenure:
    """What a supervisor knows of its own standing; ``seen_s`` is when it last could read the terms."""

    term: int
    seen_s: float
    standing: Standing = Standing.LEADS

    @property
    def is_over(self) -> bool:
        """Whether it may never give an order again."""
        return not EDGES[self.standing]


def after_look(tenure: Tenure, newest: int | None, now_s: float, limit_s: float) -> Tenure:
    """Return what follows from a look at the newest term, None where it could not be read.

    After ``limit_s`` without a look that succeeded the supervisor is cut off, and renews no worker any more.
    """
    if tenure.is_over:
        return tenure
    if newest is None:
        is_long = now_s - tenure.seen_s >= limit_s
        return replace(tenure, standing=Standing.CUT_OFF if is_long else Standing.UNSURE)
    leads = newest <= tenure.term
    return Tenure(tenure.term, now_s, Standing.LEADS if leads else Standing.SUPERSEDED)


def next_term(claimed: Iterable[int], epochs: Iterable[int]) -> int:
    """Return the first term that is free, given those claimed and the epochs of all workers that are alive."""
    return max((*claimed, *map(term_of, epochs)), default=0) + 1


def first_epoch(term: int) -> int:
    """Return the epoch of the first process that the supervisor of a term starts."""
    return term * EPOCHS_PER_TERM


def term_of(epoch: int) -> int:
    """Return the term of the supervisor that started a process."""
    return epoch // EPOCHS_PER_TERM

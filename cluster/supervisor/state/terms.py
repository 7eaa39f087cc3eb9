"""Terms: numbers that grow with each supervisor of a cluster.

A supervisor that was frozen or cut off looks for newer terms before its next order. If there is one, it ends. Workers
also refuse orders of an older term.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

TERMS_KEY: Final = "codecfleet/term/"
"""The prefix of the keys under which supervisors claim their terms: a key belongs to the first supervisor that stores
it."""
EPOCHS_PER_TERM: Final = 10**9
"""More processes than one supervisor ever starts, so that an epoch contains its supervisor's term."""


class Standing(Enum):
    """Whether a supervisor may give orders."""

    LEADS = "leads"
    UNSURE = "unsure"  #: the supervisor could not read which terms were claimed
    SUPERSEDED = "superseded"  #: a newer term was claimed, so the process ends
    CUT_OFF = "cut off"  #: the supervisor could not read the terms for too long, so the process ends


@dataclass(frozen=True, slots=True)
class Tenure:
    """A supervisor's own standing."""

    term: int
    seen_s: float  # when the supervisor last read the terms
    standing: Standing = Standing.LEADS

    @property
    def is_over(self) -> bool:
        """Whether the supervisor has lost the right to give orders for good."""
        return self.standing in (Standing.SUPERSEDED, Standing.CUT_OFF)


def after_look(tenure: Tenure, newest: int | None, now_s: float, limit_s: float) -> Tenure:
    """Return the tenure after a look at the claimed terms; ``newest`` is the newest term, or None if the look failed.

    If every look fails for ``limit_s``, the supervisor is cut off.
    """
    if tenure.is_over:
        return tenure
    if newest is None:
        is_long = now_s - tenure.seen_s >= limit_s
        return replace(tenure, standing=Standing.CUT_OFF if is_long else Standing.UNSURE)
    return Tenure(tenure.term, now_s, Standing.LEADS if newest <= tenure.term else Standing.SUPERSEDED)


def next_term(claimed: Iterable[int], epochs: Iterable[int]) -> int:
    """Return the first free term, given the claimed terms and the epochs of all live workers."""
    return max((*claimed, *map(term_of, epochs)), default=0) + 1


def first_epoch(term: int) -> int:
    """Return the epoch of the first process that the supervisor of a term starts."""
    return term * EPOCHS_PER_TERM


def term_of(epoch: int) -> int:
    """Return the term of the supervisor that started a process."""
    return epoch // EPOCHS_PER_TERM

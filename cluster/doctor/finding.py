"""One thing that is to be known about a machine: how grave it is, why, and what to do."""

from dataclasses import dataclass
from enum import Enum


class Weight(Enum):
    """How grave a finding is."""

    BROKEN = "broken"  #: something does not work that should, until a user fixes it
    LIMITED = "limited"  #: works, but not everything, or not as fast
    NOTE = "note"  #: nothing to fix; it is good to know what will happen


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know. ``about`` names the device or part; ``title``, ``cause`` and ``fix`` are a sentence each.

    ``fix`` is "" where there is nothing to do.
    """

    weight: Weight
    title: str
    cause: str
    fix: str = ""
    about: str = ""

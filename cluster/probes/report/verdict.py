"""A judgement about a machine: what it is about, how it stands, which rule decided, and how to fix it."""

from dataclasses import dataclass
from enum import Enum


class Grade(Enum):
    """How a subject stands."""

    OK = "ok"  #: works, without limits worth a mention
    LIMITED = "limited"  #: works, but not everything: see the verdict's limits
    BROKEN = "broken"  #: does not work until a user fixes it
    UNKNOWN = "unknown"  #: nothing here says


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One subject judged.

    ``rule`` names what decided, with document and section ("CUDA Compatibility 2.1"). ``because`` and ``fix`` are
    one sentence each; ``fix`` is "" where there is nothing to do. ``limits`` are what does not work, one phrase each.
    """

    subject: str
    state: Grade
    rule: str
    because: str
    fix: str = ""
    limits: tuple[str, ...] = ()

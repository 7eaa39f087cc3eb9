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
    """One subject judged by a ``rule`` of a document ("CUDA Compatibility 2.1"); ``fix`` is "" where none is needed."""

    subject: str
    state: Grade
    rule: str
    because: str
    fix: str = ""
    limits: tuple[str, ...] = ()

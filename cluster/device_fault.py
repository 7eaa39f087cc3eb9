"""A fault of a device, as a job finds it, a pool reports it, and the supervisor counts it."""

from dataclasses import dataclass
from enum import Enum

from .worker_names import WorkerId


class FaultVerdict(Enum):
    """What happened to the work that found a fault."""

    FAILED = "failed"  #: a session failed
    WRONG = "wrong"  #: a result failed a check
    DOUBTFUL = "doubtful"  #: the cause may also be the file, or other work on the device


@dataclass(frozen=True, slots=True)
class DeviceFault:
    """The device of a worker failed, or gave a wrong or doubtful result, for one file."""

    worker: WorkerId
    file: str  # the name of the input, so that one bad file does not count against several devices
    reason: str
    verdict: FaultVerdict
    number: int = 0  # counts the faults of one client; 0 until the client records the fault
    at_s: float = 0.0  # when the supervisor counted the fault, on its clock

"""A judgement about a machine: what it is about, its grade, which rule decided, and how to fix it."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Grade(Enum):
    """Whether a subject works."""

    OK = "ok"  #: works, without limits worth mentioning
    LIMITED = "limited"  #: works with limits, which the verdict lists
    BROKEN = "broken"  #: does not work until a user fixes it
    UNKNOWN = "unknown"  #: nothing here says


class Stops(Enum):
    """Which work a verdict rules out on a GPU, for placement."""

    NOTHING = "nothing"  #: the GPU takes everything that its trials allow
    KERNELS = "kernels"  #: no kernel runs: no scaling and converting, while NVDEC and NVENC work
    CUDA = "CUDA"  #: CUDA does not start, and every session of a GPU needs a CUDA context


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One subject, judged by one rule."""

    subject: str
    state: Grade
    rule: str  # the document's rule, with its section: "... (CUDA Compatibility 2.1)"
    because: str  # a sentence without a full stop
    fix: str = ""  # what to do, "" if nothing
    limits: tuple[str, ...] = ()  # what does not work although the subject does
    stops: Stops = Stops.NOTHING
    device: str = ""  # the UUID of the GPU concerned, as CUDA gives it; "" for all of the machine's


def why_stopped(judged: Iterable[Diagnosis], work: Stops, uuid: str) -> str:
    """Return why verdicts rule out ``work`` on a device, as a sentence without a full stop; "" if they do not.

    ``uuid`` is the device's, or its slice's, as NVML gives it ("GPU-..."), "" if it has none.
    """
    plain = uuid.removeprefix("GPU-").removeprefix("MIG-")
    mine = (each for each in judged if each.stops is work and each.device in ("", plain))
    return next((each.because for each in mine), "")


def why_no_cuda(judged: Iterable[Diagnosis], uuid: str) -> str:
    """Return why CUDA's verdicts rule out all work on a device; "" if they do not."""
    reason = why_stopped(judged, Stops.CUDA, uuid)
    return f"CUDA does not start on it: {reason}" if reason else ""

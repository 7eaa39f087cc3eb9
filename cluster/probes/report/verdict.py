"""Verdicts about a machine, each with a subject, a grade, a rule and a fix."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Grade(Enum):
    """Whether a subject works."""

    OK = "ok"  #: the subject works
    LIMITED = "limited"  #: the subject works, with the limits that the verdict lists
    BROKEN = "broken"  #: the subject does not work until a user fixes it
    UNKNOWN = "unknown"  #: the probes could not find out whether the subject works


class Stops(Enum):
    """The work on a GPU that a verdict rules out."""

    NOTHING = "nothing"  #: the verdict rules out no work
    KERNELS = "kernels"  #: only kernels: the GPU cannot scale or convert pictures, but NVDEC and NVENC work
    CUDA = "CUDA"  #: all work, because every session needs a CUDA context


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A verdict about one subject by one rule."""

    subject: str
    state: Grade
    # the rule, with the section of NVIDIA's document if there is one: "... (CUDA Compatibility, section 2.1)"
    rule: str
    because: str  # the reason as a sentence without a full stop
    fix: str = ""  # the fix; "" if there is nothing to do
    limits: tuple[str, ...] = ()  # features that do not work although the subject does
    stops: Stops = Stops.NOTHING
    device: str = ""  # the UUID, without prefix, of the GPU concerned; "" for all GPUs


def grade_of(judged: Iterable[Diagnosis], uuid: str) -> Grade:
    """Return the worst grade of the verdicts about a device and its machine; UNKNOWN if there are none.

    ``uuid`` is the UUID of the GPU or slice in NVML; "" if there is none.
    """
    found = {each.state for each in judged if each.device in ("", _plain(uuid))}
    return next((grade for grade in (Grade.BROKEN, Grade.LIMITED, Grade.OK) if grade in found), Grade.UNKNOWN)


def why_stopped(judged: Iterable[Diagnosis], work: Stops, uuid: str) -> str:
    """Return why verdicts rule out ``work`` on a device, as a sentence without a full stop; "" if no verdict does.

    ``uuid`` is the UUID of the GPU or slice in NVML ("GPU-..."); "" if there is none.
    """
    mine = (each for each in judged if each.stops is work and each.device in ("", _plain(uuid)))
    return next((each.because for each in mine), "")


def _plain(uuid: str) -> str:
    return uuid.removeprefix("GPU-").removeprefix("MIG-")


def why_no_cuda(judged: Iterable[Diagnosis], uuid: str) -> str:
    """Return why CUDA's verdicts rule out all work on a device; "" if no verdict does."""
    reason = why_stopped(judged, Stops.CUDA, uuid)
    return f"CUDA does not start on it: {reason}" if reason else ""

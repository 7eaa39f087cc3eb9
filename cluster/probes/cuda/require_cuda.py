"""The language of NVIDIA_REQUIRE_CUDA, in which an image says what it needs of the host's driver.

``cuda>=12.4 brand=tesla,driver>=470,driver<471`` reads: CUDA 12.4 or later, or else a Tesla with a driver of R470. A
space is *or*, a comma is *and*; conditions are about ``cuda``, ``driver``, ``brand`` and ``arch`` (compute capability).
"""

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from ..report.absence import Unavailable
from .report import CudaReport
from .tables import newest_cuda_of, version_numbers

_CONDITION = re.compile(r"^([a-z]+)(<=|>=|!=|<|>|=)(.+)$")
_COMPARE: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
}


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What conditions are about; "" is not known.

    ``driver`` is the kernel driver's version, ``cuda`` what it was made for (a compat package does not change it),
    ``brand`` NVML's brand of the GPU and ``arch`` its compute capability.
    """

    driver: str = ""
    cuda: str = ""
    brand: str = ""
    arch: str = ""


def host_facts(report: CudaReport, brand: str = "") -> HostFacts:
    """Return the facts of this host; its first device stands for all, as it does for the container runtime."""
    module = report.kernel_module
    driver = "" if isinstance(module, Unavailable) else module.version
    capabilities = (device.compute_capability for device in report.devices)
    known = (capability for capability in capabilities if not isinstance(capability, Unavailable))
    return HostFacts(driver, newest_cuda_of(driver) if driver else "", brand.lower(), next(known, ""))


def evaluate(requirement: str, host: HostFacts) -> bool | None:
    """Return whether a host meets a requirement; None where that depends on what is not known, or cannot be read.

    An empty requirement is met.
    """
    alternatives = [_all(alternative.split(","), host) for alternative in requirement.split()]
    if not alternatives or True in alternatives:
        return True
    return None if None in alternatives else False


def undecided(requirement: str, host: HostFacts) -> tuple[str, ...]:
    """Return the conditions that cannot be decided: about what is not known of the host, or not to be read."""
    conditions = (condition for alternative in requirement.split() for condition in alternative.split(","))
    return tuple(dict.fromkeys(condition for condition in conditions if _holds(condition, host) is None))


def _all(conditions: list[str], host: HostFacts) -> bool | None:
    found = [_holds(condition, host) for condition in conditions]
    if False in found:
        return False
    return None if None in found else True


def _holds(condition: str, host: HostFacts) -> bool | None:
    match = _CONDITION.match(condition)
    if match is None:
        return None
    subject, compared, wanted = match.groups()
    known = {"driver": host.driver, "cuda": host.cuda, "brand": host.brand, "arch": host.arch}.get(subject, "")
    if not known:
        return None
    if subject == "brand":
        return {"=": known == wanted, "!=": known != wanted}.get(compared)
    left, right = version_numbers(known), version_numbers(wanted)
    if not right:
        return None
    # "12.4" and "12.4.0" are the same version.
    width = max(len(left), len(right))
    return _COMPARE[compared](left + (0,) * (width - len(left)), right + (0,) * (width - len(right)))

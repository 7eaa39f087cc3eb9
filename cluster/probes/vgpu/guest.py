"""Reports a GPU as a virtual machine sees it (vGPU Management SDK guide, chapter 3). Documented, not measured."""

from ..report.absence import Absence, Unavailable
from ..report.gpu_identity import GUEST
from ..report.tables import read_tables

GUEST_VIEWS = ("passthrough", GUEST)
"""The virtualization modes of a GPU in a guest (guide 3.3.1)."""

_TABLES = read_tables("nvml.toml")
GUEST_ABSENCES: dict[str, Unavailable] = {
    f"nvmlDeviceGet{name}": Unavailable(Absence.DOES_NOT_APPLY, reason)
    for reason, names in _TABLES["guest"].items()
    for name in names.split()
}
"""Why NVML functions are meaningless on a vGPU; the keys are the functions' names in the guide (3.3.2)."""
LATER_NAMES: dict[str, str] = {
    f"nvmlDeviceGet{later}": f"nvmlDeviceGet{guide}"
    for guide, names in _TABLES["later_names"].items()
    for later in names.split()
}
"""The function in the guide that each newer function replaces; the keys are the names of the newer functions."""


def guest_absence(function_name: str) -> Unavailable | None:
    """Return why an NVML function is meaningless on a vGPU; None if the function has a meaning (guide 3.3.2)."""
    return GUEST_ABSENCES.get(LATER_NAMES.get(function_name, function_name))

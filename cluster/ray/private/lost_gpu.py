"""Lets Ray start on a machine that has lost its first GPU."""

from contextlib import AbstractContextManager, nullcontext
from typing import Final

from .connection import replaced
from .guard import why_unknown

_NAME: Final = "accelerators.NvidiaGPUAcceleratorManager.get_current_node_accelerator_type"
_ERROR: Final = "pynvml.NVMLError"


def lost_gpu_allowed() -> AbstractContextManager[None]:
    """Let Ray start without the name of the first GPU if the driver cannot tell it.

    Ray 2.60 asks NVML for that name, makes a resource and a label of it, and does not start if NVML raises an error.
    codecfleet uses neither. An untested version of Ray starts as it would by itself.
    """
    if why_unknown({_NAME: ()}) or why_unknown({_ERROR: type}, "ray._private.thirdparty"):
        return nullcontext()
    from ray._private.accelerators import NvidiaGPUAcceleratorManager
    from ray._private.thirdparty.pynvml import NVMLError

    name_of_first_gpu = NvidiaGPUAcceleratorManager.get_current_node_accelerator_type

    def name_or_none() -> str | None:
        try:
            return name_of_first_gpu()
        except NVMLError:
            return None

    return replaced({_NAME: staticmethod(name_or_none)})

"""The program of a worker's helpers: child processes to which the worker passes some of its work.

The role ``second`` means the second process on a GPU. The roles for work that runs alone are ``gpu``, ``cpu``, and
``dla#`` with the number of the worker's DLA.
"""

import os
import signal
from functools import partial
from typing import TYPE_CHECKING, Final

from ...actors.device.interface import SessionCounts
from ...actors.device.worker import WorkerCore
from ...actors.process.process import StartedProcess, start_program
from ...actors.process.program import begin, run_to_the_end
from ...actors.process.running import UNLIMITED, Limits
from ...actors.watchdog import process_watch
from ...actors.worker.helper_host import serve_worker
from .. import machine
from ..sandbox.confine import DATA_OF_MEMORY, harden

if TYPE_CHECKING:
    from ...actors.nvidia.gpu import Gpu

SECOND: Final = "second"
GPU: Final = "gpu"
CPU: Final = "cpu"
DLA: Final = "dla#"


def spawn_helper(role: str, slots: int) -> StartedProcess:
    """Start a helper. A helper that uses only the CPU has the memory limit of a confined command."""
    limits = Limits(memory_bytes=DATA_OF_MEMORY * machine.memory_bytes()) if role == CPU else UNLIMITED
    return start_program(__name__, slots, role, limits=limits)


def main() -> None:
    """Serve the worker that started this process.

    If the worker ends, end at once, because unfinished work is then useless.
    """
    end, (slots, role) = begin()
    harden()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker handles it
    gpu = _gpu_of_another() if role in (SECOND, GPU) else None
    if role.startswith(DLA):
        keep_to_dla(int(role.removeprefix(DLA)))
    core = WorkerCore(slots, gpu)
    process_watch().on_overdue(core.give_up)
    use = SessionCounts if gpu is None else gpu.use
    # Work that runs alone opens the GPU itself, so that a failure to open it counts as the work's failure.
    prepare = gpu.opened if gpu is not None and role == SECOND else bool
    run_to_the_end(serve_worker(end, core, use, prepare))


def _gpu_of_another() -> "Gpu":
    from ...actors.nvidia.gpu import Gpu, open_gpu

    return Gpu(partial(open_gpu, is_second=True))


def keep_to_dla(dla: int) -> None:
    """Run networks only on this DLA. The GPU stays visible, because cuDLA needs a CUDA context."""
    from ...actors.dla.inference import warm_networks
    from ..probes.gpus.visible_device import show_the_gpu

    show_the_gpu(os.environ)
    warm_networks().keep_to(dla)

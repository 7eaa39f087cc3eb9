"""Limits a worker process to the GPU, or slice, that Ray assigned to it.

Ray names a GPU by its index in NVML's order, or as CUDA_VISIBLE_DEVICES did when the node started. CUDA's order
differs, so the process gets a UUID. PyNvVideoCodec's capability calls always ask ordinal 0.
"""

from collections.abc import Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ....errors import FleetUnavailable
from ..nvml.calls import ask_named, read_text
from ..nvml.facts import ask_virtualization
from ..nvml.mig import probe_mig
from ..report.absence import Unavailable
from ..report.gpu_identity import DevicePart, NamedGpu, ShownGpus, named_gpu, unit_given
from .devices import questions_for

CUDA_VARIABLE = "CUDA_VISIBLE_DEVICES"
CONTAINER_VARIABLE = "NVIDIA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class TakenDevice:
    """The device that a process sees, by its identity on its machine; ``trouble`` says why it sees none after all."""

    identity: str
    trouble: str = ""


def narrow(
    given: Sequence[str],
    environment: MutableMapping[str, str],
    nvml: Any | None,
    *,
    part: int = 0,
    counts_slices: bool = False,
    avoided: Collection[str] = (),
) -> TakenDevice:
    """Set CUDA_VISIBLE_DEVICES in ``environment`` to one device, and return which.

    ``given`` is the value of Ray's ``get_accelerator_ids()["GPU"]``; ``nvml`` is an initialised pynvml, or None without
    a driver. ``part`` is the slice of Ray's GPU: without such a slice or GPU the identity is "" and the process sees no
    GPU, nor does it if its device is in ``avoided``. Raises FleetUnavailable: Ray gave none or several, or there is no
    driver.
    """
    if len(given) != 1:
        message = f"Ray gave this worker {len(given)} GPUs instead of one"
        raise FleetUnavailable(message, "Start the Ray node with --num-gpus, one for each GPU or slice.")
    parts, trouble = _given_parts(given[0], environment, nvml, counts_slices=counts_slices)
    mine = parts[part] if part < len(parts) else DevicePart("", "")
    trouble = trouble or ("it is in quarantine" if mine.identity in avoided else "")
    environment[CUDA_VARIABLE] = "" if trouble else mine.visible
    environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    return TakenDevice(mine.identity, trouble)


def show_the_gpu(environment: MutableMapping[str, str]) -> None:
    """Let a process without a Ray GPU see the machine's: a DLA is coupled with a GPU's context (CUDA for Tegra 5.1).

    Call it before CUDA starts; a choice in ``environment`` is kept.
    """
    if environment.get(CUDA_VARIABLE) == "":
        del environment[CUDA_VARIABLE]


def _given_parts(
    entry: str, environment: Mapping[str, str], nvml: Any | None, *, counts_slices: bool
) -> tuple[tuple[DevicePart, ...], str]:
    if nvml is None:
        if not entry.isdigit():
            return (DevicePart(entry, entry),), ""
        message = f"Ray gave GPU {entry}, and no NVIDIA driver is there to say which that is"
        raise FleetUnavailable(message, "Install the driver, or start the Ray node without GPUs.")
    gpus = shown_gpus(nvml, environment).given
    parts = unit_given(entry, gpus, counts_slices=counts_slices)
    if parts is None:
        return (), f"Ray gave GPU {entry}, which the NVIDIA driver does not know: start the Ray node again"
    trouble = next((gpu.trouble for gpu in gpus if gpu.trouble and not set(parts).isdisjoint(gpu.parts)), "")
    return parts, f"Ray gave GPU {entry}, and {trouble}" if trouble else ""


def shown_gpus(nvml: Any, environment: Mapping[str, str]) -> ShownGpus:
    """Return this machine's GPUs by name, and which of them the environment shows; never raises."""
    count = ask_named(nvml, "nvmlDeviceGetCount")
    gpus = () if isinstance(count, Unavailable) else tuple(_read_gpu(nvml, index) for index in range(int(count)))
    return ShownGpus(gpus, environment.get(CUDA_VARIABLE), environment.get(CONTAINER_VARIABLE))


def _read_gpu(nvml: Any, index: int) -> NamedGpu:
    questions = questions_for(nvml, ask_named(nvml, "nvmlDeviceGetHandleByIndex", index))
    found = named_gpu(
        index,
        questions.ask("nvmlDeviceGetUUID", read=read_text),
        questions.ask("nvmlDeviceGetPciInfo", read=lambda info: read_text(info.busId)),
        ask_virtualization(questions),
        probe_mig(questions, ()),
    )
    return replace(found, trouble=questions.lost)


def open_nvml() -> Any | None:
    """Return pynvml, initialised; None without a driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml

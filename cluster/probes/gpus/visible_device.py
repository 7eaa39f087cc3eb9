"""Limits a worker process to one GPU or slice, which Ray assigned or the caller names.

Ray names a GPU by its index in NVML's order, or by an entry of the node's CUDA_VISIBLE_DEVICES. CUDA's order differs,
so the process gets a UUID.
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
    """The device that a process may use."""

    identity: str  # the device's name on the machine; "" without a device
    trouble: str = ""  # why the process cannot see the device; "" if it can see the device


def narrow(
    given: Sequence[str],
    environment: MutableMapping[str, str],
    nvml: Any | None,
    *,
    part: int = 0,
    counts_slices: bool = False,
    avoided: Collection[str] = (),
) -> TakenDevice:
    """Set CUDA_VISIBLE_DEVICES in ``environment`` to one device, and return the device.

    ``given`` is Ray's ``get_accelerator_ids()["GPU"]``; ``nvml`` is an initialised pynvml, or None without a driver;
    ``part`` is the index of the slice on its GPU, or 0 if Ray counts slices as GPUs (``counts_slices``). The process
    sees no GPU if the GPU or slice does not exist, or if its name is in ``avoided``.

    Raises FleetUnavailable: Ray assigned no GPU or several, or there is no driver.
    """
    if len(given) != 1:
        message = f"Ray assigned {len(given)} GPUs to this worker instead of one"
        count = "its number of whole GPUs plus slices (a sliced GPU itself does not count)"
        raise FleetUnavailable(message, f"Start the Ray node with --num-gpus set to {count}.")
    parts, trouble = _given_parts(given[0], environment, nvml, counts_slices=counts_slices)
    mine = parts[part] if part < len(parts) else DevicePart("", "")
    return _see_only(mine, environment, trouble, avoided)


def narrow_to(
    device: str, environment: MutableMapping[str, str], nvml: Any | None, *, avoided: Collection[str] = ()
) -> TakenDevice:
    """Set CUDA_VISIBLE_DEVICES in ``environment`` to the device with this name on the machine, and return the device.

    The process may use every GPU, because Ray assigned none. See ``narrow`` for the other arguments.
    """
    gpus = () if nvml is None else shown_gpus(nvml, environment).given
    found = [(part, gpu.trouble) for gpu in gpus for part in gpu.parts if part.identity == device]
    # A lost GPU has no UUID any more.
    unlisted = ": ".join(["the NVIDIA driver does not list it", *(gpu.trouble for gpu in gpus if gpu.trouble)])
    mine, trouble = found[0] if found else (DevicePart(device, ""), unlisted)
    return _see_only(mine, environment, trouble, avoided)


def _see_only(
    mine: DevicePart, environment: MutableMapping[str, str], trouble: str, avoided: Collection[str]
) -> TakenDevice:
    trouble = trouble or ("it is in quarantine" if mine.identity in avoided else "")
    environment[CUDA_VARIABLE] = "" if trouble else mine.visible
    environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    return TakenDevice(mine.identity, trouble)


def show_the_gpu(environment: MutableMapping[str, str]) -> None:
    """Let a process to which Ray assigned no GPU see the GPU, which a DLA needs (CUDA for Tegra, section 5.1).

    Call this before CUDA starts. A CUDA_VISIBLE_DEVICES that is not empty stays as it is.
    """
    if environment.get(CUDA_VARIABLE) == "":
        del environment[CUDA_VARIABLE]


def _given_parts(
    entry: str, environment: Mapping[str, str], nvml: Any | None, *, counts_slices: bool
) -> tuple[tuple[DevicePart, ...], str]:
    if nvml is None:
        if not entry.isdigit():
            return (DevicePart(entry, entry),), ""
        message = f"Ray assigned GPU {entry} to this worker, but its node has no NVIDIA driver"
        raise FleetUnavailable(message, "Install the driver, or start the Ray node without GPUs.")
    gpus = shown_gpus(nvml, environment).given
    parts = unit_given(entry, gpus, counts_slices=counts_slices)
    if parts is None:
        return (), f"Ray assigned GPU {entry}, which the NVIDIA driver does not list: restart the Ray node"
    trouble = next((gpu.trouble for gpu in gpus if gpu.trouble and not set(parts).isdisjoint(gpu.parts)), "")
    return parts, f"Ray assigned GPU {entry}, but {trouble}" if trouble else ""


def shown_gpus(nvml: Any, environment: Mapping[str, str]) -> ShownGpus:
    """Return this machine's GPUs, and which GPUs are visible with ``environment``; never raises."""
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
    """Return the initialised pynvml; None without a driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml

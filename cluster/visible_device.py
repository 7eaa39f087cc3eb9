"""Which GPU a worker process sees: the one that Ray has given it, by UUID, and no other.

Ray names a GPU by its index in NVML's order, or by whatever CUDA_VISIBLE_DEVICES said when the node was started. CUDA
counts in an order of its own, so an index means nothing across the two; a UUID means the same everywhere.
PyNvVideoCodec's capability calls always ask ordinal 0: with one visible device, that is ours.
"""

from collections.abc import MutableMapping, Sequence
from typing import Any

from ..errors import FleetUnavailable

__all__ = ["narrow", "open_nvml", "show_the_gpu", "uuid_of"]


def narrow(given: Sequence[str], environment: MutableMapping[str, str], nvml: Any | None) -> str:  # noqa: ANN401 - pynvml
    """Make the one GPU in ``given`` the only one that this process sees; return its UUID.

    Args:
        given: what Ray's ``get_accelerator_ids()["GPU"]`` says.
        environment: the process's environment; CUDA_VISIBLE_DEVICES is set in it.
        nvml: an initialised pynvml, or a fake; None where there is none.

    Raises:
        FleetUnavailable: Ray gave none or several, or its index cannot be mapped.
    """
    if len(given) != 1:
        message = f"Ray gave this worker {len(given)} GPUs instead of one"
        raise FleetUnavailable(message, "Start the Ray node with --num-gpus, one for each GPU or slice.")
    uuid = uuid_of(given[0], nvml)
    environment["CUDA_VISIBLE_DEVICES"] = uuid
    environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    return uuid


def show_the_gpu(environment: MutableMapping[str, str]) -> None:
    """Let a process that Ray gave no GPU see the machine's: a DLA is coupled with a GPU's context (CUDA for Tegra 5.1).

    Args:
        environment: the process's environment, before CUDA starts. What somebody else chose in it is left.
    """
    if environment.get("CUDA_VISIBLE_DEVICES") == "":
        del environment["CUDA_VISIBLE_DEVICES"]


def uuid_of(identity: str, nvml: Any | None) -> str:  # noqa: ANN401 - pynvml
    """Return the UUID behind what Ray calls a GPU: an index, a UUID, or a UUID's beginning as CUDA accepts it.

    The index is NVML's; the way goes through the PCI bus id, which both NVML and CUDA agree on.

    Raises:
        FleetUnavailable: there is no such GPU, or nobody to ask.
    """
    if not identity.isdigit():
        return identity
    if nvml is None:
        message = f"Ray gave GPU {identity}, and no NVIDIA driver is there to say which that is"
        raise FleetUnavailable(message, "Install the driver, or start the Ray node without GPUs.")
    try:
        by_index = nvml.nvmlDeviceGetHandleByIndex(int(identity))
        bus_id = nvml.nvmlDeviceGetPciInfo(by_index).busId
        return str(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByPciBusId(bus_id)))
    except nvml.NVMLError as error:
        message = f"Ray gave GPU {identity}, which the NVIDIA driver does not know: {error}"
        raise FleetUnavailable(message, "Start the Ray node anew: its GPUs have changed since.") from error


def open_nvml() -> Any | None:  # noqa: ANN401 - pynvml, which carries no types
    """Return pynvml, initialised; None where there is no driver."""
    import pynvml  # noqa: PLC0415 - only workers with GPUs ask

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml

"""Container values (draft)."""

from dataclasses import dataclass

from .absence import Maybe

__all__ = ["ContainerReport"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerReport:
    """What a container's runtime gave and withheld.

    ``runtime`` names it ("docker"); absent outside containers. ``capabilities`` is NVIDIA_DRIVER_CAPABILITIES, None
    where it is not set. ``requirements`` maps each NVIDIA_REQUIRE_* variable to its text. ``compat_folders`` are the
    folders of compat packages that LD_LIBRARY_PATH names. ``device_minors`` are the numbers of /dev/nvidiaN.
    ``shared_memory_bytes`` is the size of /dev/shm.
    """

    runtime: Maybe[str]
    capabilities: tuple[str, ...] | None
    visible_devices: str | None
    requirements: dict[str, str]
    is_requirement_disabled: bool
    compat_folders: tuple[str, ...]
    device_minors: tuple[int, ...]
    shared_memory_bytes: Maybe[int]

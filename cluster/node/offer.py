"""Computes the offer of a machine to a Ray cluster: CPUs, GPUs or slices, and labels that state its abilities.

The offer depends only on the probe report. NVENC and NVDEC sessions are not Ray resources, because the supervisor
counts them itself; Ray would always report them as free.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..placement.build import node_of_report
from ..placement.labels import labels_of
from ..probes.report.gpu_identity import on_node

if TYPE_CHECKING:
    from ..probes.node.report import NodeReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The resources and labels that a node offers to Ray."""

    cpus: int
    gpus: int = 0
    # the CUDA_VISIBLE_DEVICES with which Ray offers exactly ``gpus`` GPUs; None if Ray does so anyway
    cuda_visible: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    zone: str = ""  # the value of Ray's zone label; "" for no label
    driver_choice: str = ""  # which CUDA driver the workers load, and why; "" if there is no choice


def offer_of(
    report: "NodeReport",
    *,
    cpus: int | None = None,
    labels: Mapping[str, str] | None = None,
    zone: str = "",
    cuda_visible: str | None = None,
) -> Offer:
    """Return a probed machine's offer.

    ``cpus`` defaults to all usable cores; ``labels`` override codecfleet's; ``cuda_visible`` is CUDA_VISIBLE_DEVICES.
    """
    node = node_of_report(report, cuda_visible=cuda_visible)
    if node.shown is None:  # every report says which devices Ray would see
        raise AssertionError(node.node)
    # A GPU that hosts vGPUs belongs to the guests, so the node does not offer it.
    hosts = {device.device for device in node.devices if device.hosts_vgpus}
    parts = [part for part in node.shown.parts if on_node(node.node, part.identity) not in hosts]
    shown = node.shown
    # Whether Ray by itself counts exactly the container's devices; Ray asks NVML or reads CUDA_VISIBLE_DEVICES.
    counts_right = shown.for_ray is None and (shown.cuda is not None or shown.given == shown.gpus)
    is_counted_right = counts_right and len(parts) == shown.count
    offered = {on_node(node.node, part.identity) for part in parts}
    return Offer(
        cpus=report.host.cores if cpus is None else cpus,
        gpus=len(parts),
        cuda_visible=None if is_counted_right else ",".join(part.visible for part in parts),
        labels={**dict(labels_of(node, offered)), **(labels or {})},
        zone=zone,
        driver_choice=node.driver_choice,
    )

"""What the core knows of placement: where demands go, and what workers' measurements teach."""

from collections.abc import Sequence

from ...placement.assign.assignment import place
from ...placement.assign.networks import place_networks
from ...placement.measurements import engine_parts, measurement_of
from ...placement.model.demand import Demand, EncoderKind
from ...placement.model.inventory import Device, Inventory, Node
from ...placement.model.placement import Placement
from ...placement.model.policy import Policy, with_policy
from ...placement.rates import record_measurement, start_rates
from ...probes.report.engines import Engine


class Planner:
    """Places demands by documented rates that follow workers' measurements.

    ``gpu_share`` is the part of a GPU that a reservation books.
    """

    def __init__(self, policy: Policy) -> None:
        self.gpu_share = policy.gpu_share
        self._policy = policy
        self._rates = start_rates()

    @property
    def sets_vgpu_share(self) -> bool:
        """Whether the policy says which part of its GPU a vGPU has."""
        return self._policy.vgpu_share != 0

    def seen(self, node: Node) -> Node:
        """Return a node whose vGPUs have the share of their GPU that the policy sets."""
        return with_policy(node, self._policy)

    def place(self, demands: Sequence[Demand], inventory: Inventory, *, in_full: bool = True) -> Placement:
        """Return where demands go; networks have the DLAs to themselves and do not affect transcodes.

        ``in_full`` names for each job also the devices that could do it and are not used.
        """
        medias = [demand for demand in demands if demand.dlas is None]
        media = place(medias, inventory, self._rates, self._policy, in_full=in_full)
        networks = place_networks([each for each in demands if each.dlas is not None], inventory, self._policy)
        return Placement((*media.lanes, *networks.lanes), (*media.refusals, *networks.refusals))

    def engine_parts(
        self, demand: Demand, device: Device, fps: float, kinds: tuple[EncoderKind, ...]
    ) -> dict[Engine, float]:
        """Return which fraction of each kind of engine ``fps`` source frames a second of ``demand`` take."""
        return engine_parts(self._rates, demand, device, fps, kinds)

    def record_measurement(
        self,
        demand: Demand,
        device: Device,
        sessions: int,
        fps: float,
        *,
        processor: Device,
        kinds: tuple[EncoderKind, ...],
    ) -> None:
        """Record that ``sessions`` sessions for ``demand`` on ``device`` ran at ``fps`` together.

        ``device`` decoded, a GPU beside ``processor`` or that itself; ``kinds`` are the encoders.
        """
        measurement = measurement_of(self._rates, demand, device, processor, kinds=kinds, sessions=sessions, fps=fps)
        if measurement is not None:
            self._rates = record_measurement(self._rates, measurement)

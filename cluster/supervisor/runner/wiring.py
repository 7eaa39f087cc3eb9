"""Connects the core with placement."""

from collections.abc import Mapping, Sequence

from ...placement.assign.assignment import place
from ...placement.assign.networks import place_networks
from ...placement.measurements import engine_parts, measurement_of
from ...placement.model.demand import Demand, EncoderKind
from ...placement.model.inventory import Device, Inventory, Node
from ...placement.model.placement import Placement
from ...placement.model.policy import Policy, load_policy, with_policy
from ...placement.rates import record_measurement, start_rates
from ...probes.report.engines import Engine
from ..core.core import Core
from ..state.settings import SupervisorSettings
from ..state.state import Planner

POLICY_VARIABLE = "CODECFLEET_POLICY"
"""The environment variable that names the policy file of a supervisor that this process creates."""


class PlacingPlanner(Planner):
    """Plans with ``place``, by documented rates that follow workers' measurements."""

    def __init__(self, policy: Policy) -> None:
        self.gpu_share = policy.gpu_share
        self._policy = policy
        self._rates = start_rates()

    def seen(self, node: Node) -> Node:
        """Return a node whose vGPUs have the share of their GPU that the policy sets."""
        return with_policy(node, self._policy)

    def place(self, demands: Sequence[Demand], inventory: Inventory) -> Placement:
        """Return where demands go; networks have the DLAs to themselves and do not affect transcodes."""
        media = place([each for each in demands if each.dlas is None], inventory, self._rates, self._policy)
        networks = place_networks([each for each in demands if each.dlas is not None], inventory, self._policy)
        return Placement((*media.lanes, *networks.lanes), (*media.refusals, *networks.refusals))

    def engine_parts(
        self, demand: Demand, device: Device, fps: float, kinds: tuple[EncoderKind, ...]
    ) -> dict[Engine, float]:
        """Return which fraction of a device's engines a job takes at its speed."""
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
        """Record what a worker gave while all its sessions served one job and decoded alike."""
        measurement = measurement_of(self._rates, demand, device, processor, kinds=kinds, sessions=sessions, fps=fps)
        if measurement is not None:
            self._rates = record_measurement(self._rates, measurement)


def make_core(settings: SupervisorSettings, policy: Policy, first_epoch: int, now_s: float) -> Core:
    """Return a core that places work by ``policy``."""
    return Core(PlacingPlanner(policy), settings, first_epoch, now_s)


def policy_from(environment: Mapping[str, str]) -> Policy:
    """Return the policy that the environment names, or the default.

    Raises:
        UsageError: the file cannot be read, or is invalid.
    """
    path = environment.get(POLICY_VARIABLE, "")
    return load_policy(path) if path else Policy()

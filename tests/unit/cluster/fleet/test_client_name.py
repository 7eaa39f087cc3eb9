"""Connections of one fleet, by their names."""

import time

from codecfleet.cluster.fleet.client_name import ClientName
from codecfleet.cluster.fleet.leases.ground import Ground
from codecfleet.cluster.fleet.leases.leased_pool import LeasedPool
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.supervisor.core.core import Core
from codecfleet.cluster.supervisor.runner.client import LocalClient
from codecfleet.cluster.supervisor.runner.runner import SupervisorRunner
from codecfleet.cluster.supervisor.state.messages import RayNode
from codecfleet.cluster.supervisor.state.settings import SupervisorSettings
from codecfleet.testing import FakeClusterBackend


class Told(LocalClient):
    """A supervisor that notes who leaves."""

    def __init__(self, runner: SupervisorRunner) -> None:
        super().__init__(runner)
        self.departed: list[str] = []

    async def depart(self, client: str) -> None:
        """Note it."""
        self.departed.append(client)
        await super().depart(client)


async def test_connections_that_are_gone_give_their_slots_back() -> None:
    """The third connection of a fleet first tells the supervisor that the two before it have left."""
    settings = SupervisorSettings(idle_release_s=None)
    backend = FakeClusterBackend((RayNode(node="here", name="here", cores=1, free_cores=1),))
    supervisor = Told(SupervisorRunner(backend, Core(settings, Policy(), 1, time.monotonic()), settings))
    name = ClientName("fleet").next.next
    async with LeasedPool(Ground(supervisor=supervisor).reach, name=name):
        assert supervisor.departed == ["fleet.0", "fleet.1"]
    assert supervisor.departed[2:] == ["fleet.2"]


def test_names_differ() -> None:
    """Two fleets have two names, and so have two connections of one."""
    one, other = ClientName(), ClientName()
    assert len({str(one), str(one.next), str(other)}) == 3
    assert one.earlier == ()

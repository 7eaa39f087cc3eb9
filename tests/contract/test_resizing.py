"""The promises of requests for nodes: of the cluster in memory, and of Ray's autoscaler v2."""

import pytest

from codecfleet.testing import FakeClusterBackend
from tests.integration.autoscaled_cluster import autoscaled_cluster

from . import resizing


async def test_the_cluster_in_memory_keeps_the_promises() -> None:
    """Nodes join on request, end when named, and stay while in use; a request for too many is refused as a whole."""
    backend = FakeClusterBackend(())
    backend.offers = {resizing.GROUP: resizing.MOST}
    await resizing.check(backend)
    assert await backend.look() == ()


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_rays_autoscaler_keeps_the_promises() -> None:
    """Ray's autoscaler keeps the same promises, with nodes that its fake provider starts on this machine."""
    with autoscaled_cluster({resizing.GROUP: resizing.MOST}) as cluster:
        assert cluster.program(resizing.__file__) == resizing.KEPT

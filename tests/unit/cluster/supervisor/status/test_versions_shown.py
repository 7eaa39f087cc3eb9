"""What ``codecfleet status`` shows of versions, so that a node with another one is found."""

from dataclasses import replace

from codecfleet.cluster.supervisor.state.events import Probed
from codecfleet.cluster.supervisor.status.lines import status_lines
from codecfleet.cluster.supervisor.status.status import status_of
from codecfleet.cluster.version import VERSION

from ..core_worlds import World, node


def test_supervisor_and_nodes_have_their_version() -> None:
    """A node's is known from its probe on."""
    world = World(node("a"), node("b"))
    book = world.core.state.nodes.get("b")
    assert book is not None
    world.feed(Probed(replace(book.node, release="9.9.9")))
    status = status_of(world.core.state, {}, (), world.now_s)
    assert {each.name: each.release for each in status.nodes} == {"host-a": "", "host-b": "9.9.9"}
    lines = list(status_lines(status))
    assert lines[0].endswith(f", codecfleet {VERSION}")
    assert [line.split()[0] for line in lines if line.endswith(", codecfleet 9.9.9")] == ["host-b"]

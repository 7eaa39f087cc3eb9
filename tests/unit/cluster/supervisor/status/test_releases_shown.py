"""What ``codecfleet status`` shows of releases, so that an upgrade can be watched."""

from dataclasses import replace

from codecfleet.cluster.releases import OURS, Release
from codecfleet.cluster.supervisor.state.events import Effect, Probed, Start, Started
from codecfleet.cluster.supervisor.status.lines import status_lines
from codecfleet.cluster.supervisor.status.status import Status, status_of
from codecfleet.cluster.worker.heartbeat import WorkerFacts

from ..core_worlds import World, node, wants

NEXT = Release(OURS.protocol + 1, OURS.protocol, "9.9.9")


class Upgraded(World):
    """Nodes a and b, of which b has the next release."""

    def carry_out(self, effect: Effect) -> None:
        """Have a worker tell the release of its node."""
        if isinstance(effect, Start):
            release = NEXT if effect.station.node == "b" else OURS
            self._decide(Started(effect.worker, WorkerFacts(7, effect.slots, release=release)))
        else:
            super().carry_out(effect)

    def status(self) -> Status:
        """Return the status."""
        return status_of(self.core.state, {}, (), self.now_s)


def test_each_node_and_worker_has_its_release() -> None:
    """A node's is known from its probe on, a worker's from its start; the supervisor's is there too."""
    world = Upgraded(node("a"), node("b"))
    assert {each.name: each.release for each in world.status().nodes} == {"host-a": "", "host-b": ""}
    book = world.core.state.nodes.get("b")
    assert book is not None
    world.feed(Probed(replace(book.node, release=NEXT.version)))
    world.say("one", wants("j", 4))
    status = world.status()
    assert {each.name: each.release for each in status.nodes} == {"host-a": "", "host-b": NEXT.version}
    assert {(each.node, each.release, each.protocol) for each in status.workers} == {
        ("host-a", OURS.version, OURS.protocol),
        ("host-b", NEXT.version, NEXT.protocol),
    }
    assert (status.release, status.protocol) == (OURS.version, OURS.protocol)


def test_only_another_release_is_in_a_worker_s_line() -> None:
    """On a cluster of one release no worker's line names it."""
    world = Upgraded(node("a"), node("b"))
    world.say("one", wants("j", 4))
    lines = list(status_lines(world.status()))
    assert lines[0].endswith(f", {OURS}")
    assert [line.split()[0] for line in lines if str(NEXT) in line] == ["host-b/cpu#0"]

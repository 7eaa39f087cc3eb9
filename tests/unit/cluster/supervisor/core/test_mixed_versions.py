"""A cluster with two versions of PyAV: no job gets workers of both, because their bytes differ."""

from dataclasses import replace

from codecfleet.actors.worker.heartbeat import WorkerFacts
from codecfleet.cluster.placement.model.inventory import processor_of
from codecfleet.cluster.supervisor.state.events import Effect, Probed, Start, Started
from codecfleet.cluster.supervisor.state.messages import JobReport

from ..core_worlds import World, node, total, wants

OLD, NEW = "18.1.0", "18.2.0"


class Mixed(World):
    """Nodes a and b with two cores each; ``has`` is the PyAV version of each node."""

    def __init__(self, **has: str) -> None:
        self.has = has
        super().__init__(*(node(name) for name in has))

    def carry_out(self, effect: Effect) -> None:
        """Let a worker report the version of its node."""
        if isinstance(effect, Start):
            facts = WorkerFacts(7, effect.slots, pyav=self.has[effect.station.node])
            self._decide(Started(effect.worker, facts))
        else:
            super().carry_out(effect)

    def probe(self) -> None:
        """Let the probes of both nodes report."""
        self.feed(*(Probed(replace(processor_of(name, name, 2), pyav=pyav)) for name, pyav in self.has.items()))

    def slots(self, pieces: int, pyav: str) -> dict[str, int]:
        """Return how many slots a job with this version gets on each node, once workers have started."""
        demand = wants("j", pieces).demand
        report = JobReport(replace(demand, pyav=pyav))
        self.report("me", report)
        found: dict[str, int] = {}
        for worker, slots in self.say("me", report).slots["j"].items():
            found[worker.station.node] = found.get(worker.station.node, 0) + slots
        return found


def test_a_job_gets_workers_of_its_version() -> None:
    """A job gets all nodes with its own version."""
    world = Mixed(a=OLD, b=NEW)
    world.probe()
    assert world.slots(4, OLD) == {"a": 2}
    assert Mixed(a=OLD, b=OLD).slots(4, OLD) == {"a": 2, "b": 2}


def test_a_worker_reports_its_version_before_a_probe() -> None:
    """An unprobed node may be planned with, but its slots are not granted."""
    world = Mixed(a=OLD, b=NEW)
    assert world.slots(4, OLD) == {"a": 2}


def test_a_job_without_a_node_of_its_version_is_told() -> None:
    """A job without a node of its version waits, as it would for any other worker."""
    world = Mixed(a=NEW, b=NEW)
    world.probe()
    world.report("me", JobReport(replace(wants("j", 4).demand, pyav=OLD)))
    grants = world.say("me", JobReport(replace(wants("j", 4).demand, pyav=OLD)))
    assert total(grants, "j") == 0
    assert f"its node has PyAV {NEW}, but the job needs {OLD}" in grants.waiting["j"]

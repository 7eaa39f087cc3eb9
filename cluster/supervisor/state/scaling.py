"""What the supervisor knows of its cluster's growing and shrinking, and what it last decided."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...autoscale.values import Decision
from .events import Resize


@dataclass(slots=True)
class Scaling:
    """The last decision, and what the next one follows from.

    ``since_s`` is when each job was first heard of, by its key; ``idle_since_s`` since when a node has had no lease.
    ``able`` are the jobs that some group could do. ``sent`` is the last order, given at ``sent_s``. ``trouble`` says
    why Ray takes no orders, "" where it does.
    """

    decision: Decision = field(default_factory=Decision)
    since_s: dict[str, float] = field(default_factory=dict)
    idle_since_s: Mapping[str, float] = field(default_factory=dict)
    able: frozenset[str] = frozenset()
    sent: Resize | None = None
    sent_s: float = 0.0
    trouble: str = ""

    def may_serve(self, job: str) -> bool:
        """Return whether nodes may come that could do a job."""
        return not self.trouble and job in self.able

    def expected(self) -> str:
        """Say which nodes are to come, "" for none."""
        coming = [(size.wanted - size.there, size.group) for size in self.decision.sizes if size.wanted > size.there]
        return ", ".join(f"{count} of {group}" for count, group in coming)

    @property
    def holds_nodes(self) -> bool:
        """Whether nodes are wanted or are to end, so that their supervisor has to stay."""
        return bool(self.sent and (self.sent.ended or any(each.count for each in self.sent.wanted)))

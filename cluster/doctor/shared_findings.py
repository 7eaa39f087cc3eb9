"""Merges equal findings of many devices and machines, worst first."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from ..grouping import equal_groups, named_nodes, number_ranges
from ..probes.node.report import NodeReport, SilentNode
from ..text_lines import wrapped
from .findings import WEIGHT_RANK, Finding, Weight, findings

_GPU: Final = re.compile(r"^GPU (\d+) \((.+)\)$")
_SILENT_FIX: Final = "run codecfleet doctor on that node; ray status shows whether it is still in the cluster"


@dataclass(frozen=True, slots=True)
class SharedFinding:
    """A finding, with the nodes and parts that have it."""

    finding: Finding
    nodes: tuple[str, ...]
    abouts: tuple[str, ...]  #: the devices or parts that the finding is about
    has_own_fixes: bool  #: whether the fix differs between devices

    @property
    def devices(self) -> str:
        """The devices or parts with the finding, such as ``GPU 0-7 (NVIDIA H200)``; "" for the machine itself."""
        numbers: dict[str, list[int]] = {}
        others: list[str] = []
        for about in self.abouts:
            found = _GPU.match(about)
            if found is None:
                others.append(about)
            else:
                numbers.setdefault(found[2], []).append(int(found[1]))
        gpus = (f"GPU {number_ranges(found)} ({name})" for name, found in numbers.items())
        return ", ".join([*gpus, *filter(None, others)])


def findings_of(report: NodeReport | SilentNode) -> tuple[Finding, ...]:
    """Return a machine's findings; a missing report counts as a finding."""
    if isinstance(report, SilentNode):
        return (Finding(Weight.BROKEN, "sent no report", report.reason, _SILENT_FIX),)
    return findings(report)


def shared_findings(found: Iterable[tuple[str, Finding]]) -> list[SharedFinding]:
    """Return nodes' findings, worst and most frequent first, merged if weight, title and cause are equal."""
    groups = equal_groups(found, lambda pair: (pair[1].weight, pair[1].title, pair[1].cause))
    shared = (
        SharedFinding(
            group[0][1],
            tuple(dict.fromkeys(node for node, _ in group)),
            tuple(dict.fromkeys(finding.about for _, finding in group)),
            len({finding.fix for _, finding in group}) > 1,
        )
        for group in groups
    )
    return sorted(shared, key=lambda each: (WEIGHT_RANK[each.finding.weight], -len(each.nodes)))


def finding_lines(shared: Iterable[SharedFinding], *, names_nodes: bool) -> Iterator[str]:
    """Yield numbered findings below a heading; with ``names_nodes``, also the machines that have each finding."""
    shared = list(shared)
    yield "findings" if shared else "findings: none"
    for number, each in enumerate(shared, start=1):
        finding, devices = each.finding, each.devices
        first = f"  {number}. {finding.weight.value}: "
        is_named = not devices or finding.title.startswith(devices) or names_nodes
        yield from wrapped(finding.title if is_named else f"{devices}: {finding.title}", first, indent=5)
        if names_nodes:
            nodes = named_nodes(each.nodes)
            yield from wrapped(f"{nodes}: {devices}" if devices else nodes, "     ")
        yield from wrapped(f"cause: {finding.cause}", "     ")
        if finding.fix:
            own = " (each GPU by its own number)" if each.has_own_fixes else ""
            yield from wrapped(f"fix: {finding.fix}{own}", "     ")

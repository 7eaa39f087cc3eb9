"""Prints many machines as text, equal machines together and problems first."""

from collections.abc import Iterator, Sequence
from typing import Final

from ..grouping import counted, equal_groups, named_nodes, short_names, tallied
from ..node.listed import ListedNode
from ..probes.node.report import NodeReport, SilentNode
from ..probes.node.verdicts import verdicts
from ..probes.report.absence import known
from ..probes.report.verdict import why_no_cuda
from ..text_lines import gigabytes, wrapped
from .capability_matrix import all_trials, capability_matrix, matrix_lines
from .findings import Weight
from .inventory_lines import device_units
from .report_lines import Reports, machine_page, marks, present, silent_lines
from .shared_findings import finding_lines, findings_of, shared_findings

_COLUMNS: Final = (24, 6, 10, 12)


def doctor_lines(reports: Reports, *, every: bool = False) -> Iterator[str]:
    """Yield the output of ``codecfleet doctor``: a page for one machine, a summary for several.

    With ``every``, each machine gets a page.
    """
    yield from (_pages if every or len(reports) <= 1 else _summary)(reports)
    yield ""
    yield _verdict(reports)


def _pages(reports: Reports) -> Iterator[str]:
    for number, report in enumerate(reports):
        page = silent_lines([report]) if isinstance(report, SilentNode) else machine_page(report)
        yield from ("", *page) if number else page


def _summary(reports: Reports) -> Iterator[str]:
    yield from marks(reports)
    shared = shared_findings((_name(report), finding) for report in reports for finding in findings_of(report))
    yield from finding_lines(shared, names_nodes=True)
    yield from ("", *_table(reports, every=False))
    trials = (trial for report in present(reports) for trial in all_trials(report))
    yield from ("", "all machines together", *matrix_lines(capability_matrix(trials)))
    yield from ("", "a page for each machine: codecfleet doctor --all")


def _verdict(reports: Reports) -> str:
    broken = [[f for f in findings_of(report) if f.weight is Weight.BROKEN] for report in reports]
    things, nodes = sum(map(len, broken)), sum(map(bool, broken))
    if not things:
        return "healthy: nothing to fix"
    where = f" on {nodes} of {len(reports)} nodes" if len(reports) > 1 else ""
    return f"{counted(things, 'thing')} to fix{where}"


def node_lines(reports: Reports, listed: Sequence[ListedNode] = (), *, every: bool = False) -> Iterator[str]:
    """Yield a row for each group of equal machines, and the totals; with ``every``, a row for each machine.

    ``listed`` has a cluster's nodes in the order of ``reports``; lines about these nodes follow the table.
    """
    yield from marks(reports)
    yield from _table(reports, every=every)
    choosing = [report for report in present(reports) if report.driver_choice.words]
    for alike in equal_groups(choosing, lambda report: report.driver_choice.words):
        names = named_nodes([report.host.name for report in alike])
        yield from wrapped(f"{names}: {alike[0].driver_choice.words}", "", indent=2)
    for report in present(reports):
        yield from _closed(report)
    if listed:
        yield ""
        yield "in the cluster"
    for group in equal_groups(zip(reports, listed, strict=False), lambda pair: (_name(pair[0]), pair[1].words)):
        yield from wrapped(f"{_name(group[0][0])}: {group[0][1].words}", "  ")


def _closed(report: NodeReport) -> Iterator[str]:
    judged = verdicts(report)
    closed = [(gpu.label, reason) for gpu in report.gpus if (reason := why_no_cuda(judged, known(gpu.uuid, "")))]
    for alike in equal_groups(closed, lambda pair: pair[1]):
        labels = ", ".join(label for label, _ in alike)
        yield from wrapped(f"{report.host.name}: {labels}: no work: {alike[0][1]}", "", indent=2)


def _name(report: NodeReport | SilentNode) -> str:
    return report.name if isinstance(report, SilentNode) else report.host.name


def _table(reports: Reports, *, every: bool) -> Iterator[str]:
    yield from _row(("node" if every else "nodes", "cores", "memory", "driver"), ["devices"])
    shown = present(reports)
    for group in [(report,) for report in shown] if every else equal_groups(shown, _node_cells):
        names = short_names(report.host.name for report in group)
        cells, kinds = _node_cells(group[0])
        count = f" ({len(group)})" if len(group) > 1 else ""
        yield from _row((f"{names}{count}", *cells), list(kinds))
    yield from silent_lines(reports)
    cores = sum(report.host.cores for report in shown)
    devices = sum(len(device_units(report)) for report in shown)
    yield ", ".join(counted(*pair) for pair in ((len(shown), "node"), (cores, "core"), (devices, "device")))


def _node_cells(report: NodeReport) -> tuple[tuple[str, str, str], tuple[str, ...]]:
    """Return a machine's row without the name; equal machines have equal rows."""
    kinds = [kind for _, kind, _ in device_units(report)]
    kinds += [f"{gpu.name} (hosts vGPUs)" for gpu in report.gpus if gpu.hosts_vgpus]
    host = report.host
    return (str(host.cores), gigabytes(host.memory_bytes), report.driver or "none"), (*tallied(kinds),) or ("CPU only",)


def _row(cells: tuple[str, ...], kinds: list[str]) -> Iterator[str]:
    """Yield a row; a name that is too long for the column gets a separate line."""
    name, *rest = cells
    if len(name) >= _COLUMNS[0]:
        yield name
        name = ""
    fixed = zip((name, *rest), _COLUMNS, strict=True)
    head = "".join(f"{cell:{width}}" + ("" if len(cell) < width else " ") for cell, width in fixed)
    for kind in kinds:
        yield from wrapped(kind, head, indent=len(head) + 2)
        head = " " * len(head)

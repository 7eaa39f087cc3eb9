"""A node report as a person reads it: narrow, without colour, machine first, findings last."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from ..grouping import counted, equal_groups, named_nodes
from ..placement.build import guest_share, shown_by
from ..probes.gpus.hardware import load_hardware
from ..probes.node.report import DeviceTrials, NodeReport, SilentNode
from ..probes.node.verdicts import verdicts
from ..probes.report.absence import Unavailable, known
from ..probes.report.device_report import DeviceReport, MigReport, MigSlice
from ..probes.report.engines import Engine, EngineCount, How, MediaCodec, Trial
from ..text_lines import gigabytes, wrapped
from .capability_matrix import Cell, CodecSupport, MatrixRow, all_trials, capability_matrix
from .findings import findings
from .shared_findings import finding_lines, shared_findings
from .tegra_lines import tegra_lines

_STATE_WIDTH: Final = 8
_CELL_WIDTH: Final = 10
_DEPTHS: Final = (8, 10, 12)
_WORDS: Final = {
    CodecSupport.HARDWARE: "hardware",
    CodecSupport.SOFTWARE: "software",
    CodecSupport.NONE: "no",
    CodecSupport.UNTRIED: "?",
}
_ENGINES: Final = (Engine.NVDEC, Engine.NVENC, Engine.NVJPG, Engine.OFA, Engine.DLA)


def machine_page(report: NodeReport) -> Iterator[str]:
    """Yield all that doctor says of one machine."""
    yield from marks([report])
    yield from heading([report])
    yield from _host(report)
    yield ""
    yield "devices"
    yield from _devices(report)
    yield ""
    yield from matrix_lines(capability_matrix(all_trials(report)))
    if judged := verdicts(report):
        yield ""
        yield "compatibility"
        for verdict in judged:
            first = f"  {verdict.state.value:{_STATE_WIDTH}} "
            yield from wrapped(f"{verdict.subject}: {verdict.because}", first, indent=len(first))
    yield ""
    found = shared_findings((report.host.name, finding) for finding in findings(report))
    yield "findings" if found else "findings: none"
    yield from finding_lines(found, names_nodes=False)


def marks(reports: Iterable[NodeReport | SilentNode]) -> Iterator[str]:
    """Yield the mark of simulated machines, which stands on every page that shows one."""
    simulated = [report.simulated for report in reports if isinstance(report, NodeReport) and report.simulated]
    for fleet in dict.fromkeys(simulated):
        these = "this machine does not exist" if len(simulated) == 1 else "these machines do not exist"
        yield f"SIMULATED ({fleet}): {these}"


def heading(group: Sequence[NodeReport]) -> Iterator[str]:
    """Yield the line that names machines with the same cores and memory."""
    host = group[0].host
    each = " each" if len(group) > 1 else ""
    size = f"{counted(host.cores, 'core')}, {gigabytes(host.memory_bytes)} memory{each}"
    yield from wrapped(f"{named_nodes([report.host.name for report in group])}: {size}", "", indent=2)


def paged(reports: Sequence[NodeReport | SilentNode], body: Callable[[NodeReport], Iterable[str]]) -> Iterator[str]:
    """Yield each machine's heading and body; machines whose sizes and bodies are equal share one."""
    yield from marks(reports)
    present = [report for report in reports if isinstance(report, NodeReport)]
    for group in equal_groups(present, lambda report: (report.host.cores, report.host.memory_bytes, *body(report))):
        yield from heading(group)
        yield from body(group[0])
    yield from silent_lines(reports)


def silent_lines(reports: Iterable[NodeReport | SilentNode]) -> Iterator[str]:
    """Yield the machines that gave no report, those with the same reason together."""
    silent = [report for report in reports if isinstance(report, SilentNode)]
    for group in equal_groups(silent, lambda report: report.reason):
        names = named_nodes([report.name for report in group])
        yield from wrapped(f"{names}: gave no report: {group[0].reason}", "", indent=2)


def _host(report: NodeReport) -> Iterator[str]:
    host = report.host
    if host.kernel:
        yield from wrapped(f"system: Linux {host.kernel} {host.machine}, {host.python}", "  ")
    if host.packages:
        named = ", ".join(f"{name} {version or '(missing)'}" for name, version in host.packages.items())
        yield from wrapped(f"packages: {named}", "  ")
    if not isinstance(report.container, Unavailable) and not isinstance(report.container.runtime, Unavailable):
        yield from wrapped(f"container: {report.container.runtime}", "  ")
    yield from wrapped(f"driver: {_driver(report)}", "  ")
    if words := report.driver_choice.words:
        yield from wrapped(words, "    ")


def _driver(report: NodeReport) -> str:
    if isinstance(report.nvml, Unavailable):
        return f"not known: {report.nvml.reason}"
    if isinstance(report.nvml.driver_version, Unavailable):
        return f"none: {report.nvml.driver_version.reason}"
    cuda = report.nvml.cuda_driver_version
    return f"NVIDIA {report.driver}, for CUDA {f'unknown ({cuda.reason})' if isinstance(cuda, Unavailable) else cuda}"


def _devices(report: NodeReport) -> Iterator[str]:
    trials = report.trials_by_device
    for gpu in report.gpus:
        yield from wrapped(device_head(gpu), "  ")
        yield f"    {gpu.key} at {known(gpu.pci_bus_id, 'an unknown bus id')}"
        if isinstance(gpu.mig, Unavailable) or not gpu.mig.enabled:
            yield from _engines_of(gpu.engines, trials.get(gpu.key))
            continue
        for part in gpu.mig.slices:
            yield from wrapped(slice_head(gpu.mig, part), "    ")
            yield from _engines_of(part.engines, trials.get(part.uuid), "      ")
    yield from _ray_lines(report)
    for device in report.devices if not report.gpus else ():
        yield f"  device {device.device}: {device.kind}"
        yield from _engines_of((), device)
    if not isinstance(report.tegra, Unavailable):
        yield from tegra_lines(report.tegra)
    encoders = report.software_encoders or "none"
    yield from wrapped(f"CPU: {report.host.cores} software engines; encoders: {encoders}", "  ")


def device_head(gpu: DeviceReport) -> str:
    """Return a device in a line: what it is, how much memory it has, and how this machine came by it."""
    parts = [f"GPU {gpu.index}: {gpu.name}"]
    parts += [known(gpu.architecture, "")]
    parts += [f"compute {gpu.compute_capability}" if isinstance(gpu.compute_capability, str) else ""]
    if not isinstance(gpu.memory, Unavailable):
        parts.append(f"{gigabytes(gpu.memory.total_bytes)} ({gigabytes(gpu.memory.free_bytes)} free)")
    mode = known(gpu.virtualization, "none")
    parts.append("" if mode == "none" else mode)
    share = guest_share(gpu.name, load_hardware()) if mode == "vgpu" else None
    parts.append("" if share is None else f"{share:.0%} of its GPU")
    if gpu.is_cut:
        parts.append(f"MIG: {len(gpu.slices)} instances")
    return ", ".join(part for part in parts if part)


def slice_head(mig: MigReport, part: MigSlice) -> str:
    """Return a MIG instance in a line."""
    memory = "" if isinstance(part.memory, Unavailable) else f", {gigabytes(part.memory.total_bytes)}"
    return f"MIG {part.profile} {part.gpu_instance}: {part.uuid}{memory}{sharing(mig, part)}"


def sharing(mig: MigReport, part: MigSlice) -> str:
    """Say who shares a slice's engines and memory, "" where they are its own."""
    count = mig.sharers_of(part)
    return "" if count == 1 else f", shared by {count} compute instances"


def _ray_lines(report: NodeReport) -> Iterator[str]:
    """Say how to start Ray where it would count slices as one GPU; the line to type is not wrapped."""
    shown = shown_by(report)
    for_ray = shown.for_ray
    if for_ray is not None and any(len(unit) != 1 for unit in shown.units(len(shown.given)).units):
        yield from wrapped("Ray counts a GPU that is cut as one; to have it count each slice, start it with:", "  ")
        yield f"    CUDA_VISIBLE_DEVICES={for_ray} ray start --num-gpus={for_ray.count(',') + 1}"


def engine_counts(counted: Iterable[EngineCount], trials: DeviceTrials | None) -> dict[Engine, tuple[int, How]]:
    """Return how many engines there are: what was asked of the codec interface goes before what NVML counts."""
    counts = {count.engine: (count.count, count.how) for count in counted}
    for trial in () if trials is None else trials.trials:
        if trial.engines is not None and (trial.engines or trial.engine not in counts):
            count, how = counts.get(trial.engine, (0, How.ASKED))
            counts[trial.engine] = (max(trial.engines, count if how is How.ASKED else 0), How.ASKED)
    tried = () if trials is None else trials.trials
    for engine in (Engine.NVDEC, Engine.NVENC):
        mine = [trial for trial in tried if trial.engine is engine]
        if mine and not any(trial.works or trial.fix for trial in mine):
            counts[engine] = (0, How.TRIED)  # an engine that does nothing, and cannot be fixed, does not count
    return counts


def engine_text(counted: Iterable[EngineCount], trials: DeviceTrials | None) -> str:
    """Return engine counts as ``7 NVDEC, no NVENC``."""
    counts = engine_counts(counted, trials)
    shown = [(engine, counts[engine][0]) for engine in _ENGINES if engine in counts]
    return ", ".join(f"{count or 'no'} {engine.name}" for engine, count in shown) or "not counted"


def _engines_of(counted: tuple[EngineCount, ...], trials: DeviceTrials | None, indent: str = "    ") -> Iterator[str]:
    yield from wrapped(f"engines: {engine_text(counted, trials)}", indent)
    if trials is None or not trials.trials:
        return
    kept = "; from an earlier run" if trials.from_cache else ""
    for engine, verb in ((Engine.NVDEC, "decodes"), (Engine.NVENC, "encodes")):
        works = [trial for trial in trials.trials if trial.engine is engine and trial.works]
        if works:
            yield from wrapped(f"{verb}: {_cases(works)}{kept}", indent)
    for smoke, verb in ((trials.smoke, "decode"), (trials.smoke_encode, "encode")):
        if smoke is not None and not smoke.works:
            yield from wrapped(f"smoke {verb} failed: {smoke.reason}", indent)


def _cases(works: Sequence[Trial]) -> str:
    """Return what works, a codec at a time: ``hevc 8 10 (8192x8192)``."""
    texts = []
    for codec in MediaCodec:
        mine = [trial for trial in works if trial.case.codec is codec]
        if not mine:
            continue
        cases = (trial.case for trial in mine)
        named = (f"{case.bit_depth}{'' if case.chroma == '4:2:0' else f'/{case.chroma}'}" for case in cases)
        formats = " ".join(dict.fromkeys(named))
        widest = max((trial.max_width or 0, trial.max_height or 0) for trial in mine)
        size = f" ({widest[0]}x{widest[1]})" if widest[0] else ""
        texts.append(f"{codec.value} {formats}{size}")
    return ", ".join(texts)


def matrix_lines(rows: Sequence[MatrixRow]) -> Iterator[str]:
    """Yield the matrix: a row per codec and chroma, a column per direction and bit depth."""
    head = "".join(f"{f'{depth} bit':{_CELL_WIDTH}}" for depth in _DEPTHS)
    pad = _CELL_WIDTH * len(_DEPTHS)
    yield f"{'codecs':16}{'decode':{pad}}  encode"
    yield f"{'':16}{head}  {head}".rstrip()
    cells = {(row.codec, row.chroma, row.bit_depth): (row.decode, row.encode) for row in rows}
    for codec, chroma in dict.fromkeys((row.codec, row.chroma) for row in rows):
        mine = [cells.get((codec, chroma, depth), (None, None)) for depth in _DEPTHS]
        decode = "".join(f"{_cell(cell):{_CELL_WIDTH}}" for cell, _ in mine)
        encode = "".join(f"{_cell(cell):{_CELL_WIDTH}}" for _, cell in mine)
        yield f"  {codec.value:6}{chroma:8}{decode}  {encode}".rstrip()
    yield "  hardware: an engine of a device; software: the processor"
    yield "  ?: not tried; -: no such format"
    if any(_is_promised(cell) for row in rows for cell in (row.decode, row.encode)):
        yield "  *: not tried; the driver, a document or a simulated fleet says so"


def _is_promised(cell: Cell) -> bool:
    """Whether it works by the word of a driver, a document or a fleet alone."""
    return cell.way in (CodecSupport.HARDWARE, CodecSupport.SOFTWARE) and cell.how is not How.TRIED


def _cell(cell: Cell | None) -> str:
    return "-" if cell is None else f"{_WORDS[cell.way]}{'*' if _is_promised(cell) else ''}"

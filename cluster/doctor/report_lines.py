"""Prints a node report as narrow text without colour; the machine comes first, the findings last."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from ..grouping import counted, equal_groups, named_nodes
from ..placement.build import guest_share, shown_by
from ..probes.node.report import DeviceTrials, NodeReport, SilentNode
from ..probes.node.verdicts import verdicts
from ..probes.report.absence import Unavailable, known
from ..probes.report.device_report import DeviceReport, MigSlice
from ..probes.report.engines import Engine, EngineCount, How, MediaCodec, Trial
from ..text_lines import gigabytes, wrapped
from .capability_matrix import all_trials, capability_matrix, matrix_lines
from .findings import findings
from .shared_findings import finding_lines, shared_findings
from .tegra_lines import tegra_lines

Reports = Sequence[NodeReport | SilentNode]

_STATE_WIDTH: Final = 8
_ENGINES: Final = (Engine.NVDEC, Engine.NVENC, Engine.NVJPG, Engine.OFA, Engine.DLA)


def machine_page(report: NodeReport) -> Iterator[str]:
    """Yield the page of ``codecfleet doctor`` about one machine."""
    yield from marks([report])
    yield from heading([report])
    yield from _host(report)
    yield from ("", "devices", *_devices(report))
    yield from ("", *matrix_lines(capability_matrix(all_trials(report))))
    if judged := verdicts(report):
        yield from ("", "compatibility")
        for verdict in judged:
            first = f"  {verdict.state.value:{_STATE_WIDTH}} "
            yield from wrapped(f"{verdict.subject}: {verdict.because}", first, indent=len(first))
    found = shared_findings((report.host.name, finding) for finding in findings(report))
    yield from ("", *finding_lines(found, names_nodes=False))


def marks(reports: Reports) -> Iterator[str]:
    """Yield a line for each simulated fleet, saying that its machines do not exist."""
    simulated = [report.simulated for report in present(reports) if report.simulated]
    for fleet in dict.fromkeys(simulated):
        these = "this machine does not exist" if len(simulated) == 1 else "these machines do not exist"
        yield f"SIMULATED ({fleet}): {these}"


def present(reports: Reports) -> list[NodeReport]:
    """Return the machines that gave a report."""
    return [report for report in reports if isinstance(report, NodeReport)]


def heading(group: Sequence[NodeReport]) -> Iterator[str]:
    """Yield the heading of machines with equal cores and memory."""
    host = group[0].host
    each = " each" if len(group) > 1 else ""
    size = f"{counted(host.cores, 'core')}, {gigabytes(host.memory_bytes)} memory{each}"
    yield from wrapped(f"{named_nodes([report.host.name for report in group])}: {size}", "", indent=2)


def paged(reports: Reports, body: Callable[[NodeReport], Iterable[str]]) -> Iterator[str]:
    """Yield each machine's heading and body; equal machines are printed once."""
    yield from marks(reports)
    for group in equal_groups(
        present(reports), lambda report: (report.host.cores, report.host.memory_bytes, *body(report))
    ):
        yield from heading(group)
        yield from body(group[0])
    yield from silent_lines(reports)


def silent_lines(reports: Reports) -> Iterator[str]:
    """Yield the machines that gave no report, grouped by the reason."""
    silent = [report for report in reports if isinstance(report, SilentNode)]
    for group in equal_groups(silent, lambda report: report.reason):
        names = named_nodes([report.name for report in group])
        yield from wrapped(f"{names}: sent no report: {group[0].reason}", "", indent=2)


def _host(report: NodeReport) -> Iterator[str]:
    host = report.host
    if host.kernel:
        yield from wrapped(f"system: Linux {host.kernel} {host.machine}, {host.python}", "  ")
    if host.packages:
        named = ", ".join(f"{name} {version or '(missing)'}" for name, version in host.packages.items())
        yield from wrapped(f"packages: {named}", "  ")
    if not isinstance(report.container, Unavailable) and (runtime := known(report.container.runtime, "")):
        yield from wrapped(f"container: {runtime}", "  ")
    yield from wrapped(f"driver: {_driver(report)}", "  ")
    yield from wrapped(report.driver_choice.words, "    ")


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
        yield from device_head(gpu)
        if not gpu.is_cut:
            yield from _engines_of(gpu.engines, trials.get(gpu.key))
        for part in gpu.slices if gpu.is_cut else ():
            yield from wrapped(slice_head(gpu, part), "    ")
            yield from _engines_of(part.engines, trials.get(part.uuid), "      ")
    yield from _ray_lines(report)
    for device in report.devices if not report.gpus else ():
        yield f"  device {device.device}: {device.kind}"
        yield from _engines_of((), device)
    if not isinstance(report.tegra, Unavailable):
        yield from tegra_lines(report.tegra)
    encoders = report.software_encoders or "none"
    yield from wrapped(f"CPU: {report.host.cores} software engines; encoders: {encoders}", "  ")


def device_head(gpu: DeviceReport) -> Iterator[str]:
    """Yield a device's model, memory and virtualization; then its identity."""
    mode = "" if (found := known(gpu.virtualization, "none")) == "none" else found
    share = guest_share(gpu.name) if mode == "vgpu" else None
    parts = (
        f"GPU {gpu.index}: {gpu.name}",
        known(gpu.architecture, ""),
        f"compute {gpu.compute_capability}" if isinstance(gpu.compute_capability, str) else "",
        ""
        if isinstance(gpu.memory, Unavailable)
        else f"{gigabytes(gpu.memory.total_bytes)} ({gigabytes(gpu.memory.free_bytes)} free)",
        mode,
        "" if share is None else f"{share:.0%} of its GPU",
        f"MIG: {len(gpu.slices)} instances" if gpu.is_cut else "",
    )
    yield from wrapped(", ".join(filter(None, parts)), "  ")
    yield f"    {gpu.key} at {known(gpu.pci_bus_id, 'an unknown bus id')}"


def slice_head(gpu: DeviceReport, part: MigSlice) -> str:
    """Return one line about a MIG instance."""
    memory = "" if isinstance(part.memory, Unavailable) else f", {gigabytes(part.memory.total_bytes)}"
    return f"MIG {part.profile} {part.gpu_instance}: {part.uuid}{memory}{sharing(gpu, part)}"


def sharing(gpu: DeviceReport, part: MigSlice) -> str:
    """Return how many compute instances share a slice's engines and memory; "" if they are not shared."""
    count = gpu.sharers_of(part)
    return "" if count == 1 else f", shared by {count} compute instances"


def _ray_lines(report: NodeReport) -> Iterator[str]:
    """Yield the command that makes Ray count each slice of a GPU, if the command is needed."""
    shown = shown_by(report)
    for_ray = shown.for_ray
    if for_ray is not None and any(len(unit) != 1 for unit in shown.units(len(shown.given)).units):
        yield from wrapped("Ray counts a GPU in MIG mode as one GPU; to make it count each slice, start it with:", "  ")
        yield f"    CUDA_VISIBLE_DEVICES={for_ray} ray start --num-gpus={for_ray.count(',') + 1}"


def engine_counts(counted: Iterable[EngineCount], trials: DeviceTrials | None) -> dict[Engine, int]:
    """Return how many engines of each kind there are; trials may correct the counts from NVML."""
    counts = {count.engine: (count.count, count.how) for count in counted}
    for trial in () if trials is None else trials.trials:
        if trial.engines is not None and (trial.engines or trial.engine not in counts):
            count, how = counts.get(trial.engine, (0, How.ASKED))
            counts[trial.engine] = (max(trial.engines, count if how is How.ASKED else 0), How.ASKED)
    for engine in (Engine.NVDEC, Engine.NVENC):
        mine = () if trials is None else trials.of(engine)
        if mine and not any(trial.works or trial.fix for trial in mine):
            counts[engine] = (0, How.TRIED)  # an engine counts as absent if all its trials fail and have no fix
    return {engine: count for engine, (count, _) in counts.items()}


def engine_text(counted: Iterable[EngineCount], trials: DeviceTrials | None) -> str:
    """Return engine counts as text: ``7 NVDEC, no NVENC``."""
    counts = engine_counts(counted, trials)
    shown = (f"{counts[engine] or 'no'} {engine.name}" for engine in _ENGINES if engine in counts)
    return ", ".join(shown) or "not counted"


def _engines_of(counted: Iterable[EngineCount], trials: DeviceTrials | None, indent: str = "    ") -> Iterator[str]:
    yield from wrapped(f"engines: {engine_text(counted, trials)}", indent)
    if trials is None or not trials.trials:
        return
    cached = "; from an earlier run" if trials.from_cache else ""
    for engine, verb in ((Engine.NVDEC, "decodes"), (Engine.NVENC, "encodes")):
        if works := [trial for trial in trials.of(engine) if trial.works]:
            yield from wrapped(f"{verb}: {_cases(works)}{cached}", indent)
    for smoke, verb in ((trials.smoke, "decode"), (trials.smoke_encode, "encode")):
        if smoke is not None and not smoke.works:
            yield from wrapped(f"smoke {verb} failed: {smoke.reason}", indent)


def _cases(works: Sequence[Trial]) -> str:
    """Return the formats that work, grouped by codec: ``hevc 8 10 (8192x8192)``."""
    texts = []
    for codec in MediaCodec:
        mine = [trial for trial in works if trial.case.codec is codec]
        cases = (trial.case for trial in mine)
        named = (f"{case.bit_depth}{'' if case.chroma == '4:2:0' else f'/{case.chroma}'}" for case in cases)
        formats = " ".join(dict.fromkeys(named))
        width, height = max(((trial.max_width or 0, trial.max_height or 0) for trial in mine), default=(0, 0))
        if mine:
            texts.append(f"{codec.value} {formats}{f' ({width}x{height})' if width else ''}")
    return ", ".join(texts)

"""Files transcoded with and without a GPU on one fleet, and the result of each."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Any

from codecfleet import CodecfleetError, Fleet, Report, TranscodeSpec, plan_transcode
from codecfleet.actors.decode.decoding import SOFTWARE
from codecfleet.actors.encode.settings import Codec
from codecfleet.cluster.machine import cores
from codecfleet.cluster.placement.assign.assignment import place
from codecfleet.cluster.placement.build import documented_devices
from codecfleet.cluster.placement.model.demand import Demand
from codecfleet.cluster.placement.model.inventory import Device, Inventory, processor_of
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.placement.rates import start_rates
from codecfleet.cluster.probes.gpus.nvml_child import probe_nvml_in_child
from codecfleet.cluster.probes.report.absence import Unavailable
from codecfleet.cluster.worker_names import NodeId
from codecfleet.jobs.plan.placing import demand_of

from .table import number, table_lines

__all__ = [
    "FileCheck",
    "Verdict",
    "decoding_of",
    "earlier_rows",
    "gpu_unsupported_reason",
    "known_gpus",
    "smallest_first",
    "summary_line",
    "table",
    "verdict_of",
]

CPU = "cpu"
HERE = NodeId("here")
NVML_LIMIT_S = 10.0


class Verdict(StrEnum):
    """The verdict on a file's outputs."""

    SAME = "same bytes"
    DIFFERENT = "DIFFERENT"
    REFUSED = "refused alike"  #: every device refused the file with the same error
    NO_GPU = "GPU refused"  #: only ``--device gpu`` was refused
    OTHER_ENCODER = "another encoder"  #: NVENC wrote one of the outputs, so their bytes differ


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCheck:
    """Transcodes files on one fleet, once for each device and once only on processors."""

    fleet: Fleet
    gpus: tuple[Device, ...]
    folder: Path
    devices: tuple[str, ...]
    codec: Codec
    preset: int
    segment_s: Fraction

    async def row(self, path: Path) -> dict[str, Any]:
        """Return the result for one file, as plain values."""
        began_s = time.perf_counter()
        names = (*self.devices, CPU)
        outcomes = await asyncio.gather(*(self._outcome(path, device) for device in names))
        by_device = dict(zip(names, outcomes, strict=True))
        return {
            "file": path.name,
            "bytes": (await asyncio.to_thread(path.stat)).st_size,
            "verdict": verdict_of(by_device).value,
            "seconds": round(time.perf_counter() - began_s, 3),
            "outcomes": by_device,
        }

    async def _outcome(self, path: Path, device: str) -> dict[str, Any]:
        output = self.folder / f"{path.name}.{device}.mkv"
        spec = TranscodeSpec.model_validate(
            {
                "source": str(path),
                "output": str(output),
                "codec": self.codec,
                "preset": self.preset,
                "segment_s": self.segment_s,
                "device": device,
                "force": True,
            }
        )
        try:
            report = await (await self.fleet.transcode(spec))
        except CodecfleetError as error:
            return {"error": type(error).__name__, "message": error.message}
        finally:
            output.unlink(missing_ok=True)
        told = decoding_of(report) | {
            "encoder_kind": report.encoder_kind,
            "sha256": report.proof.output_sha256,
            "frames": report.frames,
        }
        if device != CPU and set(told["decoded_by"]) == {SOFTWARE.name} and not told["fallbacks"]:
            told["unsupported"] = await asyncio.to_thread(self._unsupported_reason, spec)
        return told

    def _unsupported_reason(self, spec: TranscodeSpec) -> str:
        """Return why no GPU could be used; "" if a GPU could be used but CPUs were faster."""
        demand = demand_of(plan_transcode(spec))
        return demand.software_decode or gpu_unsupported_reason(demand, self.gpus)


def known_gpus() -> tuple[Device, ...]:
    """Return this machine's GPUs, with the capabilities that the tables list."""
    nvml = probe_nvml_in_child(NVML_LIMIT_S).nvml
    return () if isinstance(nvml, Unavailable) else documented_devices(nvml, HERE)


def gpu_unsupported_reason(demand: Demand, gpus: tuple[Device, ...]) -> str:
    """Return why none of these GPUs can serve a demand; "" if one can."""
    if not gpus:
        return "this machine has no GPU"
    processor = processor_of(HERE, HERE, cores())
    inventory = Inventory(nodes=(replace(processor, devices=(*gpus, *processor.devices)),))
    placement = place([replace(demand, needs_gpu=True)], inventory, start_rates(), Policy())
    names = {device.device for device in gpus}
    reasons = dict.fromkeys(refusal.reason for refusal in placement.refusals if names & set(refusal.devices))
    return "" if placement.lanes else "; ".join(reasons)


def decoding_of(report: Report) -> dict[str, Any]:
    """Return how many segments of a job each decoder decoded, why software decoded any, and the source's codec."""
    codecs = [track.codec for track in report.tracks if track.action == "encoded" and track.kind == "video"]
    return {
        "source_codec": codecs[0] if codecs else "",
        "segments": len(report.segments),
        "decoded_by": dict(Counter(segment.decoded_by for segment in report.segments)),
        "fallbacks": dict(Counter(segment.fallback for segment in report.segments if segment.fallback)),
    }


def verdict_of(outcomes: dict[str, dict[str, Any]]) -> Verdict:
    """Compare every device's outcome with that of the processors.

    Only ``--device gpu`` may be refused, since it requires a GPU. Only outputs of one encoder are compared.
    """
    plain = outcomes[CPU]
    others = {device: outcome for device, outcome in outcomes.items() if device != CPU}
    refused_by_gpu = "sha256" in plain and others.get("gpu", {}).get("error") == "Unsupported"
    compared = [one for device, one in others.items() if not (device == "gpu" and refused_by_gpu)]
    if "error" in plain:
        return Verdict.REFUSED if all(_error(one) == _error(plain) for one in compared) else Verdict.DIFFERENT
    comparable = [one for one in compared if one.get("encoder_kind", "") in {"", plain.get("encoder_kind", "")}]
    if any(one.get("sha256") != plain["sha256"] for one in comparable):
        return Verdict.DIFFERENT
    if len(comparable) < len(compared):
        return Verdict.OTHER_ENCODER
    return Verdict.NO_GPU if refused_by_gpu else Verdict.SAME


def _error(outcome: dict[str, Any]) -> str:
    return str(outcome.get("error", ""))


def smallest_first(files: Iterable[Path], *, done: Sequence[dict[str, Any]] = ()) -> list[Path]:
    """Return the files that are not done yet, the smallest first; a file is done under its name and its size."""
    known = {(row["file"], row["bytes"]) for row in done}
    sized = sorted((path.stat().st_size, path.name, path) for path in files)
    return [path for size, name, path in sized if (name, size) not in known]


def earlier_rows(path: Path, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of an earlier run with the same settings; none if there was no such run."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return []
    return list(document["rows"]) if document.get("settings") == settings else []


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the rows as a table, with one row for each file."""
    heads = ("file", "codec", "decoded by", "why not NVDEC", "segments", "bytes", "s")
    return table_lines(heads, [_cells(row) for row in sorted(rows, key=lambda row: str(row["file"]))])


def _cells(row: dict[str, Any]) -> list[str]:
    told = next(iter(row["outcomes"].values()))
    decoded = ", ".join(f"{name} {count}" for name, count in told.get("decoded_by", {}).items())
    reasons = "; ".join(told.get("fallbacks", {}))
    return [
        row["file"],
        told.get("source_codec", "") or "-",
        decoded or told.get("error", "-"),
        reasons or told.get("unsupported", "") or told.get("message", ""),
        str(told.get("segments", "-")),
        row["verdict"],
        number(row["seconds"], 1),
    ]


def summary_line(rows: Sequence[dict[str, Any]], wall_s: float) -> str:
    """Return a summary in one line."""
    counts = Counter(row["verdict"] for row in rows)
    by_nvdec = sum(1 for row in rows if any("nvdec" in one.get("decoded_by", {}) for one in row["outcomes"].values()))
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    return f"{len(rows)} files: {told}; NVDEC took part in {by_nvdec}; {wall_s:.1f} s"

"""Messages of each protocol as a release of it sent them, and what was in them.

``UPDATE_GOLDEN=1 .venv/bin/pytest tests/unit/cluster/test_recorded_messages.py`` records those of the protocol that is
spoken now, and never those of an earlier one.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from codecfleet.actors.by_name import packed
from codecfleet.actors.device.work import Constraints, Work, WorkContext
from codecfleet.cluster.placement.model.demand import Demand, EncoderChoice, EncoderKind, Rendition
from codecfleet.cluster.placement.model.policy import Policy, PreemptibleUse
from codecfleet.cluster.placement.model.preview import PlacementPreview
from codecfleet.cluster.probes.report.engines import CodecCase, Direction, Engine, MediaCodec
from codecfleet.cluster.releases import Release
from codecfleet.cluster.supervisor.state.events import Order
from codecfleet.cluster.supervisor.state.kept import pack_orders, pack_quarantines
from codecfleet.cluster.supervisor.state.messages import ClientReport, DeviceFault, Grants, JobReport, ReportedChanges
from codecfleet.cluster.supervisor.state.quarantine import Cause, DeviceRecord, Quarantine
from codecfleet.cluster.supervisor.state.settings import SupervisorSettings
from codecfleet.cluster.supervisor.status.status import JobStatus, NodeStatus, Status, WorkerStatus
from codecfleet.cluster.worker.blobs import BlobCache
from codecfleet.cluster.worker.heartbeat import Ending, Heartbeat, WorkerFacts
from codecfleet.cluster.worker.outcome import Outcome
from codecfleet.errors import EncoderFailed
from codecfleet.jobs.plan.plan import plan_transcode
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.testing.clips import Clip, constant_times, make_clip

FOLDER = Path(__file__).parents[2] / "golden" / "messages"
RELEASE = Release(1, 1, "0.1.0")


def recordings(protocol: int) -> dict[str, dict[str, Any]]:
    """Return a protocol's messages: the bytes of each, and what they hold."""
    found: dict[str, dict[str, Any]] = json.loads((FOLDER / f"protocol-{protocol}.json").read_text(encoding="utf-8"))
    return {name: {**each, "bytes": base64.b64decode(each["bytes"])} for name, each in found.items()}


def record(protocol: int, folder: Path) -> None:
    """Write a protocol's messages as they are now; ``folder`` is for a film."""
    told = {
        name: {"bytes": base64.b64encode(content).decode(), "holds": plain(value)}
        for name, (content, value) in messages(folder).items()
    }
    text = json.dumps(told, indent=1, sort_keys=True)
    (FOLDER / f"protocol-{protocol}.json").write_text(text + "\n", encoding="utf-8")


def plain(value: object) -> Any:
    """Return a value as JSON: dataclasses and models by their fields, all but containers as it is shown."""
    if is_dataclass(value):
        value = {each.name: getattr(value, each.name) for each in fields(value)}
    elif hasattr(value, "model_fields_set"):
        value = vars(value)
    if isinstance(value, Mapping):
        return {str(plain(name)): plain(each) for name, each in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(map(str, map(plain, value)))
    if isinstance(value, list | tuple):
        return list(map(plain, value))
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)} {value.sum()}"
    return value if value is None or isinstance(value, bool | int | str) else repr(value)


def messages(folder: Path) -> dict[str, tuple[bytes, object]]:
    """Return one message of each kind, with no field at its default that may have another value, and its bytes."""
    work = _work(folder)
    values = {
        "report": _report(),
        "changes": _changes(),
        "grants": _grants(),
        "preview": PlacementPreview(encoder_kind=EncoderKind("nvenc", "ada", "580"), takes_gpu=True, gpu_refusal="no"),
        "status": _status(),
        "facts": WorkerFacts(7, 8, "GPU-1", 8, "it is lost", release=RELEASE, pyav="18.1.0"),
        "heartbeat": Heartbeat(90, (("job", "segment 1"),), 1, "it is old", 2, 3, 4, {Ending.DONE: 5}),
        "constraints": Constraints(
            alone=True, avoid=frozenset({"n/cpu#0"}), same_kind_as="n/gpu#0:1", software="it is damaged"
        ),
        "settings": SupervisorSettings(idle_release_s=5.0, bridges=True),
        "policy": Policy(gpu_share=0.7, engines=frozenset({Engine.CPU}), preemptible=PreemptibleUse.NEVER),
        "outcome": Outcome(work.run(WorkContext())),
        "failure": Outcome(error=EncoderFailed("it refused picture 7", "Try another preset.")),
    }
    named = {name: (packed(value), value) for name, value in values.items()}
    orders, quarantines = {"a": Order.DRAIN, "b": Order.CORDON}, {"GPU-1": _quarantine()}
    return {
        **named,
        "work": (BlobCache(bytes).pack(work)[0], work),
        "orders": (pack_orders(orders), orders),
        "quarantines": (pack_quarantines(quarantines, 1000.0), quarantines),
    }


def _demand() -> Demand:
    encode = CodecCase(MediaCodec.HEVC, Direction.ENCODE, "4:2:0", 10)
    kind = EncoderKind("nvenc", "ada", "580")
    return Demand(
        job="job",
        segments=(250, 100),
        decode=CodecCase(MediaCodec.H264, Direction.DECODE),
        width=1920,
        height=1080,
        renditions=(
            Rendition(case=encode, width=1280, height=720, software="libx265", preset="4", threads=3, kind=kind),
        ),
        encoder=EncoderChoice.NVENC,
        software_decode="it is damaged",
        needs_gpu=True,
        dlas=(0,),
        has_filters=True,
        frames_total=350,
        priority=2,
        weight=Fraction(3, 2),
        workers_max=4,
        pyav="18.1.0",
    )


def _report() -> ClientReport:
    fault = DeviceFault(1, "n/gpu#0:1", "film.mp4", is_wrong=True, reason="its seam differs", is_doubtful=True)
    return ClientReport(
        "client",
        "host process 7",
        3,
        (JobReport(_demand(), {"n/cpu#0:1": 2}),),
        ("n/cpu#0:1",),
        acknowledged=5,
        faults=(fault,),
        written_off={"n/cpu#0:0": "it hung"},
        release=RELEASE,
    )


def _changes() -> ReportedChanges:
    whole = _report()
    told = {each.name: getattr(whole, each.name) for each in fields(whole)} | {"takes_changes": True}
    return ReportedChanges(**told, since=2, over=("another job",))


def _grants() -> Grants:
    return Grants(
        {"job": {"n/cpu#0:1": 2}},
        7,
        frozenset({"n/cpu#0:0"}),
        4,
        {"job": "others"},
        {"job": "no DLA"},
        {"job": "too large"},
        {"job": "lost"},
        {"n/cpu#0:1": 1000.5},
        "the end",
        "Open another.",
    )


def _status() -> Status:
    node = NodeStatus(node="n", name="host", state="open", devices="2 cores", probed=True)
    worker = WorkerStatus(
        worker="n/cpu#0",
        node="host",
        kind="cpu",
        state="ready",
        since_s=1.5,
        reason="adopted",
        pid=7,
        device="",
        slots=2,
        leases={"job": 1},
        fps=2.5,
    )
    job = JobStatus(
        job="job", client="me", priority=1, segments_left=2, granted_slots=1, used_slots=1, waits_for="others"
    )
    return Status(
        pid=7,
        host="host",
        nodes=(node,),
        devices=(),
        workers=(worker,),
        jobs=(job,),
        quarantine=("GPU-1",),
        log=((1.5, "it came"),),
    )


def _quarantine() -> DeviceRecord:
    found = Quarantine(
        cause=Cause.FAULTS,
        reason="3 files failed on it",
        since_s=10.0,
        rest_until_s=40.0,
        until_uncordon=True,
        engines=frozenset({Engine.NVDEC}),
    )
    return DeviceRecord(quarantine=found, times=2)


def _work(folder: Path) -> Work[Any]:
    """Return a segment's work: that of a film of six frames."""
    clip = make_clip(folder / "clip.mkv", Clip(times=constant_times(6), width=64, height=48))
    plan = plan_transcode(TranscodeSpec(source=str(clip), output=str(folder / "out.mp4"), codec="h264", preset=1))
    return plan.work("job", 0, 0, 0)

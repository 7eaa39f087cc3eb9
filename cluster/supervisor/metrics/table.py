"""Every metric, with its labels and their possible values. Ray adds the prefix ``ray_`` to each name.

Labels never name a job or file. Only metrics of single devices name nodes and devices, and only metrics of the queue
name tenants, so there are three series for each device, four for each tenant, and a fixed number for the cluster.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from ....actors.device.pieces import Ending
from ....actors.worker.heartbeat import Decoding
from ...device_fault import FaultVerdict
from ...placement.model.inventory import DeviceState
from ...probes.report.device_kinds import SEATS, DeviceKind
from ...probes.report.engines import MEDIA_ENGINES, MediaCodec
from ...probes.report.verdict import Grade
from ...probes.vgpu.licence import LicenceState
from ...queue.values import QueueState
from ...ray.public.meters import MetricKind
from ..state.quarantine import Cause
from ..state.stations import StationState


class LossCause(Enum):
    """How a worker process was lost."""

    START = "start"  #: the process did not start
    DIED = "died"  #: the process ended, or does not answer
    HUNG = "hung"  #: a client reports that the worker's work makes no progress
    NODE = "node"  #: the node leaves or is gone; workers of a crashed node mostly count as ``DIED``


class DemandPhase(Enum):
    """Whether a job has a slot."""

    WORKING = "working"
    WAITING = "waiting"


class SessionOwner(Enum):
    """Whose encoder sessions are counted: codecfleet's, or those of other programs."""

    OURS = "ours"
    OTHERS = "others"


class TenantUseOf(Enum):
    """A resource whose use by a tenant is measured in seconds."""

    SLOTS = "slots"  #: slots of drivers
    CORES = "cores"
    GPUS = "gpus"


class NodeUse(Enum):
    """Whether work runs on a node that costs money."""

    BUSY = "busy"  #: work runs on the node
    IDLE = "idle"  #: the node runs no work: it starts, waits, or ends


SEVERAL = "several"  # the value of the label ``codec`` if a worker's jobs encode to several codecs
# The value of ``codec`` if the work encodes no video, and of ``licence`` if the device needs or reports no licence.
NONE = "none"
ANY: Final = ()  # the values of a label that may have any value


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. ``labels`` are {label: its values, or ``ANY``}; ``bounds`` are the upper bounds of buckets."""

    name: str
    says: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    bounds: tuple[float, ...] = ()

    @property
    def kind(self) -> MetricKind:
        """The metric's type: only counters end in ``_total``, and only histograms have bounds."""
        if self.bounds:
            return MetricKind.HISTOGRAM
        return MetricKind.COUNTER if self.name.endswith("_total") else MetricKind.GAUGE


@dataclass(frozen=True, slots=True)
class MetricSample:
    """A gauge's value, a counter's increment, or an observation of a histogram; ``labels`` in the metric's order."""

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()

    @property
    def tags(self) -> dict[str, str]:
        """The labels by name. Raises ValueError: a value is not in the table."""
        tags = dict(zip(self.metric.labels, self.labels, strict=True))
        for label, value in tags.items():
            if self.metric.labels[label] != ANY and value not in self.metric.labels[label]:
                message = f"{self.metric.name} has no {label} {value!r}"
                raise ValueError(message)
        return tags


def _values(members: Iterable[Enum]) -> tuple[str, ...]:
    return tuple(str(member.value) for member in members)


_ENGINE: Final = {"engine": tuple(SEATS)}
_LOSS: Final = {**_ENGINE, "cause": _values(LossCause)}
_DEVICE: Final = {"node": ANY, "device": ANY, "kind": _values(kind for kind in DeviceKind if kind.takes_gpu)}

NODES: Final = Metric(
    "codecfleet_nodes",
    "nodes of the cluster",
    {"state": _values(state for state in DeviceState if state is not DeviceState.QUARANTINED)},
)
NODES_WANTED: Final = Metric(
    "codecfleet_nodes_wanted",
    "nodes that [autoscaling](autoscaling.md) wants in all groups, including existing nodes; 0 without autoscaling",
)
GROUPS_CLOSED: Final = Metric(
    "codecfleet_node_groups_closed",
    "groups of [autoscaling](autoscaling.md) whose requested nodes did not come within three times `start_s` plus a "
    "minute",
)
CLOCK_SKEW: Final = Metric(
    "codecfleet_clock_skew_seconds",
    "the largest difference between a node's clock and the supervisor's clock, plus the delay of a heartbeat; 0 "
    "without workers",
)
DEVICES: Final = Metric(
    "codecfleet_devices",
    "GPUs, slices and vGPUs; their node or Ray can make them `draining` or `cordoned`",
    {"kind": _DEVICE["kind"], "state": _values(DeviceState)},
)
DEVICE_OPEN: Final = Metric(
    "codecfleet_device_open",
    "1 if the device and its node take new work, else 0; `device` is the UUID, or the host and PCI address of a vGPU; "
    "`compatibility` is the worst grade that `codecfleet doctor` gives the device; `licence` is `none` if the device "
    "needs or reports no licence",
    {**_DEVICE, "driver": ANY, "compatibility": _values(Grade), "licence": (*_values(LicenceState), NONE)},
)
DEVICE_QUARANTINED: Final = Metric(
    "codecfleet_device_quarantined", "1 if the device is in [quarantine](supervisor.md#quarantine), else 0", _DEVICE
)
LICENCE_ENDS: Final = Metric(
    "codecfleet_device_licence_ends_seconds", "when the device's licence ends, in seconds since 1970", _DEVICE
)
WORKERS: Final = Metric(
    "codecfleet_workers",
    "stations of worker processes, by [state](supervisor.md#states-of-a-station)",
    {**_ENGINE, "state": _values(StationState)},
)
SLOTS: Final = Metric(
    "codecfleet_slots",
    "segments and sound tracks that ready workers can run at a time; a GPU worker has 64, but placement uses fewer",
    _ENGINE,
)
SLOTS_IN_USE: Final = Metric(
    "codecfleet_slots_in_use", "segments and sound tracks running on ready workers, as drivers report", _ENGINE
)
SPEED: Final = Metric(
    "codecfleet_speed_fps", "source frames a second between the last two heartbeats, of all workers together", _ENGINE
)
CLIENTS: Final = Metric("codecfleet_clients", "drivers that use the cluster")
JOBS: Final = Metric(
    "codecfleet_jobs",
    "jobs with a slot, and jobs that wait for their first or next slot",
    {"phase": _values(DemandPhase)},
)
QUEUE_SEGMENTS: Final = Metric(
    "codecfleet_queue_segments", "unfinished segments of all jobs, including running segments"
)
QUEUE_FRAMES: Final = Metric("codecfleet_queue_frames", "source frames of all unfinished segments")
QUEUE_AGE: Final = Metric(
    "codecfleet_queue_age_seconds",
    "the longest time that a job has been without a slot; 0 if no job waits",
)
QUEUE_ANSWERS: Final = Metric(
    "codecfleet_queue_answers",
    "1 if the [queue of submitted jobs](queue.md) answers; 0 if it does not, in which case the next four metrics are "
    "old. All five exist only if the program that started the supervisor has a queue without a password in its "
    "configuration",
)
SUBMITTED_JOBS: Final = Metric(
    "codecfleet_submitted_jobs",
    "jobs in the queue of submitted jobs, by [state](queue.md#order-and-states)",
    {"state": _values(QueueState)},
)
SUBMITTED_AGE: Final = Metric(
    "codecfleet_submitted_age_seconds",
    "the longest time since a queued job was submitted or, if it has run, last began to run; 0 if none is queued",
)
TENANT_COST: Final = Metric(
    "codecfleet_tenant_cost",
    "the cost of a tenant's ended attempts, as in `codecfleet usage`; up to 5 minutes old, and only for the 100 "
    "tenants that used most",
    {"tenant": ANY},
)
TENANT_USE: Final = Metric(
    "codecfleet_tenant_use_seconds",
    "the time of a tenant's ended attempts on drivers (`slots`), and of their segments on cores and GPUs; as old "
    "as `codecfleet_tenant_cost`, and for the same tenants",
    {"tenant": ANY, "use": _values(TenantUseOf)},
)
ENGINE_USE: Final = Metric(
    "codecfleet_engine_use_ratio",
    "how busy GPUs' engines are, 0 to 1: the mean of the GPUs that report it; 0 if no GPU does",
    {"engine": _values(MEDIA_ENGINES)},
)
GPU_MEMORY_USED: Final = Metric("codecfleet_gpu_memory_used_bytes", "memory in use on all polled GPUs, by anyone")
GPU_MEMORY: Final = Metric("codecfleet_gpu_memory_bytes", "memory of all polled GPUs, used or not")
ENCODER_SESSIONS: Final = Metric("codecfleet_encoder_sessions", "open NVENC sessions", {"owner": _values(SessionOwner)})
FRAMES: Final = Metric(
    "codecfleet_frames_total",
    "source frames done; `codec` is the codec of the output: `several` if jobs or tracks differ, `none` if nothing "
    "is encoded; `decoded_by` is the decoder that the worker uses",
    {**_ENGINE, "codec": (*_values(MediaCodec), SEVERAL, NONE), "decoded_by": _values(Decoding)},
)
WORK_ENDED: Final = Metric(
    "codecfleet_work_ended_total",
    "segments and sound tracks that ended; `failed`: they would fail anywhere; `retry`: another attempt may succeed; "
    "`retry_elsewhere`: on another worker, because this one ends",
    {**_ENGINE, "ending": _values(Ending)},
)
WORKER_SECONDS: Final = Metric(
    "codecfleet_worker_seconds_total",
    "time of ready workers; for `gpu` the GPU-seconds that codecfleet holds, where a slice counts as a GPU",
    _ENGINE,
)
SLOT_SECONDS: Final = Metric("codecfleet_slot_seconds_total", "time of slots in use", _ENGINE)
COST: Final = Metric(
    "codecfleet_cost_total",
    "cost, in the prices' currency, of nodes in the cluster whose group has a [price](autoscaling.md); "
    "`busy` while work ran on them",
    {"use": _values(NodeUse)},
)
WORKERS_STARTED: Final = Metric("codecfleet_workers_started_total", "worker processes that started", _ENGINE)
WORKERS_LOST: Final = Metric(
    "codecfleet_workers_lost_total",
    "worker processes lost; `start`: no answer in time at the start; `died`: ended or silent; `hung`: reported by a "
    "driver; `node`: its node leaves or is gone (workers of a crashed node mostly count as `died`)",
    _LOSS,
)
WORK_LOST: Final = Metric(
    "codecfleet_work_lost_total", "segments and sound tracks that ran on lost workers, and must run again", _LOSS
)
NOT_RESERVED: Final = Metric(
    "codecfleet_not_reserved_total", "attempts to start a worker for which Ray reserved nothing", _ENGINE
)
DEVICE_FAULTS: Final = Metric(
    "codecfleet_device_faults_total",
    "faults of devices that clients reported; [few](supervisor.md#quarantine) lead to quarantine",
    {"kind": _values(FaultVerdict)},
)
QUARANTINES: Final = Metric(
    "codecfleet_quarantines_total", "devices put into quarantine, by cause", {"cause": _values(Cause)}
)
JOB_WAIT: Final = Metric(
    "codecfleet_job_wait_seconds",
    "how long a job had no slot, recorded when it gets one, accurate to a quarter of a second",
    bounds=(0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0),
)
WORKER_START: Final = Metric(
    "codecfleet_worker_start_seconds",
    "the time from a worker's reservation to its first answer",
    _ENGINE,
    bounds=(0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0),
)
PLACEMENT: Final = Metric(
    "codecfleet_placement_seconds",
    "how long it takes to place all jobs on all nodes",
    bounds=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0),
)

METRICS: Final = tuple(each for each in list(globals().values()) if isinstance(each, Metric))
"""All metrics, in the order of this module."""

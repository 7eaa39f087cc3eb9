"""Every metric, with its labels and all the values that these may have.

Names have their units, and counters end in ``_total``; Ray puts ``ray_`` before each. Labels never name a job, file,
node or device: so the number of series is bounded, whatever a cluster does.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from ...placement.model.inventory import DeviceState
from ...probes.report.device_report import DeviceKind
from ...probes.report.engines import Engine, MediaCodec
from ...worker.heartbeat import Decoding, Ending
from ..state.quarantine import Cause
from ..state.stations import StationState


class MetricKind(Enum):
    """A type of metric, as Prometheus names it."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class LossCause(Enum):
    """How a worker process was lost."""

    START = "start"  #: it did not start
    DIED = "died"  #: it ended, or does not answer
    HUNG = "hung"  #: a driver reports that its work makes no progress
    NODE = "node"  #: its node leaves, or is gone; where both go without a warning, the process mostly goes first


class FaultVerdict(Enum):
    """What drivers report of a device."""

    FAILED = "failed"  #: a session failed
    WRONG = "wrong"  #: its results contradict themselves
    DOUBTFUL = "doubtful"  #: the file, or work beside it, may as well be the cause


class DemandPhase(Enum):
    """Whether a job has a slot."""

    WORKING = "working"
    WAITING = "waiting"


class SessionOwner(Enum):
    """Whose use of a device it is."""

    OURS = "ours"
    OTHERS = "others"


class NodeUse(Enum):
    """Whether a node does anything for its price."""

    BUSY = "busy"  #: work runs on it
    IDLE = "idle"  #: none does: it starts, waits, or ends


SEVERAL = "several"
"""The codec of work of several codecs in one worker."""
NONE = "none"
"""The codec of work that encodes no video."""
WORKER_ENGINES: Final = ("cpu", "gpu", "dla")
"""Of a station (``Station.engine``)."""
POLLED_ENGINES: Final = (Engine.NVDEC, Engine.NVENC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric. ``labels`` are {label: its values}; ``bounds`` are the upper bounds of a histogram's buckets."""

    name: str
    kind: MetricKind
    says: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    bounds: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class MetricSample:
    """A gauge's value, what a counter grows by, or one observation of a histogram; ``labels`` in the metric's order."""

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()

    @property
    def tags(self) -> dict[str, str]:
        """The labels by name.

        Raises:
            ValueError: a value that the table does not list.
        """
        tags = dict(zip(self.metric.labels, self.labels, strict=True))
        for label, value in tags.items():
            if value not in self.metric.labels[label]:
                message = f"{self.metric.name} has no {label} {value!r}"
                raise ValueError(message)
        return tags


def _values(members: Iterable[Enum]) -> tuple[str, ...]:
    return tuple(str(member.value) for member in members)


_ENGINE: Final = {"engine": WORKER_ENGINES}
_LOSS: Final = {**_ENGINE, "cause": _values(LossCause)}

NODES: Final = Metric(
    name="codecfleet_nodes",
    kind=MetricKind.GAUGE,
    says="nodes of the cluster",
    labels={"state": _values(state for state in DeviceState if state is not DeviceState.QUARANTINED)},
)
NODES_WANTED: Final = Metric(
    name="codecfleet_nodes_wanted",
    kind=MetricKind.GAUGE,
    says="nodes of all groups that [autoscaling](autoscaling.md) wants, also those that are there; 0 without it",
)
DEVICES: Final = Metric(
    name="codecfleet_devices",
    kind=MetricKind.GAUGE,
    says="GPUs, slices and vGPUs; `draining` and `cordoned` are those that a node's state or Ray keeps from work",
    labels={
        "kind": _values(kind for kind in DeviceKind if kind is not DeviceKind.CPU),
        "state": _values(DeviceState),
    },
)
WORKERS: Final = Metric(
    name="codecfleet_workers",
    kind=MetricKind.GAUGE,
    says="places of worker processes, by [state](supervisor.md#states-of-a-station)",
    labels={**_ENGINE, "state": _values(StationState)},
)
SLOTS: Final = Metric(
    name="codecfleet_slots",
    kind=MetricKind.GAUGE,
    says="pieces of work that ready workers could run at a time; 64 for a GPU's, of which placement uses fewer",
    labels=_ENGINE,
)
SLOTS_IN_USE: Final = Metric(
    name="codecfleet_slots_in_use",
    kind=MetricKind.GAUGE,
    says="pieces of work that run on ready workers, as drivers report",
    labels=_ENGINE,
)
SPEED: Final = Metric(
    name="codecfleet_speed_fps",
    kind=MetricKind.GAUGE,
    says="source frames a second between the last two heartbeats, of all workers together",
    labels=_ENGINE,
)
CLIENTS: Final = Metric(name="codecfleet_clients", kind=MetricKind.GAUGE, says="drivers that use the cluster")
JOBS: Final = Metric(
    name="codecfleet_jobs",
    kind=MetricKind.GAUGE,
    says="jobs with a slot, and jobs that wait for their first or next",
    labels={"phase": _values(DemandPhase)},
)
QUEUE_SEGMENTS: Final = Metric(
    name="codecfleet_queue_segments",
    kind=MetricKind.GAUGE,
    says="segments that are not done, of all jobs; those that run are among them",
)
QUEUE_FRAMES: Final = Metric(
    name="codecfleet_queue_frames", kind=MetricKind.GAUGE, says="source frames of these segments"
)
QUEUE_AGE: Final = Metric(
    name="codecfleet_queue_age_seconds",
    kind=MetricKind.GAUGE,
    says="how long the job has waited that has been without a slot for longest; 0 without one",
)
ENGINE_USE: Final = Metric(
    name="codecfleet_engine_use_ratio",
    kind=MetricKind.GAUGE,
    says="how busy GPUs' engines are, 0 to 1: the mean of all that tell; 0 where none does",
    labels={"engine": _values(POLLED_ENGINES)},
)
GPU_MEMORY_USED: Final = Metric(
    name="codecfleet_gpu_memory_used_bytes", kind=MetricKind.GAUGE, says="memory in use on all polled GPUs, by anyone"
)
GPU_MEMORY: Final = Metric(
    name="codecfleet_gpu_memory_bytes", kind=MetricKind.GAUGE, says="memory of all polled GPUs, used or not"
)
ENCODER_SESSIONS: Final = Metric(
    name="codecfleet_encoder_sessions",
    kind=MetricKind.GAUGE,
    says="open NVENC sessions",
    labels={"owner": _values(SessionOwner)},
)
FRAMES: Final = Metric(
    name="codecfleet_frames_total",
    kind=MetricKind.COUNTER,
    says="source frames done; `codec` is what they are encoded to, `several` where jobs or tracks differ, `none` "
    "where nothing is encoded; `decoded_by` is what decodes for the worker",
    labels={**_ENGINE, "codec": (*_values(MediaCodec), SEVERAL, NONE), "decoded_by": _values(Decoding)},
)
WORK_ENDED: Final = Metric(
    name="codecfleet_work_ended_total",
    kind=MetricKind.COUNTER,
    says="pieces of work (segments, sound tracks) that ended: `failed` as they would anywhere; `retry`: another try "
    "may succeed; `retry_elsewhere`: on another worker, since this one ends",
    labels={**_ENGINE, "ending": _values(Ending)},
)
WORKER_SECONDS: Final = Metric(
    name="codecfleet_worker_seconds_total",
    kind=MetricKind.COUNTER,
    says="time of ready workers: of `gpu`, the GPU-seconds that codecfleet holds, a slice like a GPU",
    labels=_ENGINE,
)
SLOT_SECONDS: Final = Metric(
    name="codecfleet_slot_seconds_total",
    kind=MetricKind.COUNTER,
    says="time of slots in use",
    labels=_ENGINE,
)
COST: Final = Metric(
    name="codecfleet_cost_total",
    kind=MetricKind.COUNTER,
    says="what nodes of groups with a [price](autoscaling.md) have cost while they were in the cluster, in the prices' "
    "currency; `busy` while work ran on them",
    labels={"use": _values(NodeUse)},
)
WORKERS_STARTED: Final = Metric(
    name="codecfleet_workers_started_total",
    kind=MetricKind.COUNTER,
    says="worker processes that came up",
    labels=_ENGINE,
)
WORKERS_LOST: Final = Metric(
    name="codecfleet_workers_lost_total",
    kind=MetricKind.COUNTER,
    says="worker processes lost: `start`: it did not answer in time; `died`, or silent; `hung`: its driver says so; "
    "`node`: its node leaves or is gone, though with a node that crashes they mostly count as `died`",
    labels=_LOSS,
)
WORK_LOST: Final = Metric(
    name="codecfleet_work_lost_total",
    kind=MetricKind.COUNTER,
    says="pieces of work that ran on lost workers, and run again",
    labels=_LOSS,
)
NOT_RESERVED: Final = Metric(
    name="codecfleet_not_reserved_total",
    kind=MetricKind.COUNTER,
    says="attempts to start a worker for which Ray reserved nothing",
    labels=_ENGINE,
)
DEVICE_FAULTS: Final = Metric(
    name="codecfleet_device_faults_total",
    kind=MetricKind.COUNTER,
    says="faults of devices that drivers reported; [few](supervisor.md#quarantine) lead to quarantine",
    labels={"kind": _values(FaultVerdict)},
)
QUARANTINES: Final = Metric(
    name="codecfleet_quarantines_total",
    kind=MetricKind.COUNTER,
    says="devices put into quarantine, by what led to it",
    labels={"cause": _values(Cause)},
)
JOB_WAIT: Final = Metric(
    name="codecfleet_job_wait_seconds",
    kind=MetricKind.HISTOGRAM,
    says="how long a job had no slot, seen when it gets one; to a quarter of a second",
    bounds=(0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0),
)
WORKER_START: Final = Metric(
    name="codecfleet_worker_start_seconds",
    kind=MetricKind.HISTOGRAM,
    says="from a worker's reservation to its first answer",
    labels=_ENGINE,
    bounds=(0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0),
)
PLACEMENT: Final = Metric(
    name="codecfleet_placement_seconds",
    kind=MetricKind.HISTOGRAM,
    says="how long it takes to place all jobs on all nodes",
    bounds=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0),
)

METRICS: Final = (
    *(NODES, NODES_WANTED, DEVICES, WORKERS, SLOTS, SLOTS_IN_USE, SPEED),
    *(CLIENTS, JOBS, QUEUE_SEGMENTS, QUEUE_FRAMES, QUEUE_AGE),
    *(ENGINE_USE, GPU_MEMORY_USED, GPU_MEMORY, ENCODER_SESSIONS),
    *(FRAMES, WORK_ENDED, WORKER_SECONDS, SLOT_SECONDS, COST),
    *(WORKERS_STARTED, WORKERS_LOST, WORK_LOST, NOT_RESERVED, DEVICE_FAULTS, QUARANTINES),
    *(JOB_WAIT, WORKER_START, PLACEMENT),
)

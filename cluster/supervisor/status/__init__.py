"""The supervisor's status report."""

from .device_status import DeviceStatus
from .history import History, PieceSeen
from .lines import NO_SUPERVISOR, STATUS_SCHEMA, status_lines
from .status import ENGINE_NAMES, JobStatus, NodeStatus, Status, WorkerStatus

__all__ = [
    "ENGINE_NAMES",
    "NO_SUPERVISOR",
    "STATUS_SCHEMA",
    "DeviceStatus",
    "History",
    "JobStatus",
    "NodeStatus",
    "PieceSeen",
    "Status",
    "WorkerStatus",
    "status_lines",
]

"""The supervisor's status report."""

from .device_status import DeviceStatus
from .history import History, PieceSeen
from .lines import NO_SUPERVISOR, STATUS_SCHEMA, status_lines
from .status import JobStatus, NodeStatus, Status, WorkerStatus

__all__ = [
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

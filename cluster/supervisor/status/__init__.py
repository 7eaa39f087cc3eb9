"""The supervisor's status report."""

from .device_status import DeviceStatus
from .lines import NO_SUPERVISOR, STATUS_SCHEMA, status_lines
from .status import JobStatus, NodeStatus, Status, WorkerStatus

__all__ = [
    "NO_SUPERVISOR",
    "STATUS_SCHEMA",
    "DeviceStatus",
    "JobStatus",
    "NodeStatus",
    "Status",
    "WorkerStatus",
    "status_lines",
]

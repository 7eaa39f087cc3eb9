"""The supervisor's status report."""

from .lines import NO_SUPERVISOR, STATUS_SCHEMA, status_lines
from .status import Status

__all__ = ["NO_SUPERVISOR", "STATUS_SCHEMA", "Status", "status_lines"]

"""What a supervisor tells about its cluster."""

from .lines import NOBODY, STATUS_SCHEMA, status_lines
from .status import Status

__all__ = ["NOBODY", "STATUS_SCHEMA", "Status", "status_lines"]

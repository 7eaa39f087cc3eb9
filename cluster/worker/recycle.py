"""When a worker process that uses a GPU should be replaced by a fresh one."""

from typing import Final

RECYCLE_S: Final = 6 * 3600.0
"""Longer than any of our tests ran."""
SESSIONS_MAX: Final = 20_000
"""PyNvVideoCodec loses about 1.5 KB of host memory with each decoder that it makes: 30 MB."""


def recycle(age_s: float, sessions_made: int) -> str:
    """Say why a process that uses a GPU should be replaced once idle; "" while it should not."""
    if age_s >= RECYCLE_S:
        return f"it has used its GPU for {age_s / 3600:.1f} hours"
    if sessions_made >= SESSIONS_MAX:
        return f"it has opened {sessions_made} sessions on its GPU"
    return ""

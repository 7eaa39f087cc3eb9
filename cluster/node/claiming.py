"""Decides whether a driver on this machine may claim a job.

Enough memory and disk must be free, and the head of the driver's cluster must answer.
"""

import shutil
from pathlib import Path
from typing import NamedTuple

from ...errors import CodecfleetError
from ..machine import available_memory_bytes
from ..queue.driver import Obstacle
from ..ray.embedded import check_accepts
from ..text_lines import gigabytes


class Room(NamedTuple):
    """Free memory and free disk space, in bytes."""

    memory: int = 0
    disk: int = 0


def shortage(free: Room, least: Room) -> str:
    """Return the free amounts that are less than a driver needs to claim a job, as text; "" if enough is free."""
    short = [
        f"{gigabytes(has)} of {name} is free, less than {gigabytes(needed)}"
        for name, has, needed in zip(Room._fields, free, least, strict=True)
        if has < needed
    ]
    return " and ".join(short)


def obstacle(least: Room, folder: Path, head: str | None) -> Obstacle:
    """Return the reason why a driver should claim no job now; without a reason, an empty ``Obstacle``.

    Args:
        least: the memory, and the space in ``folder``, that must be free.
        folder: the folder for temporary files, where a job keeps its work if its output is at a URL.
        head: the address of the cluster's head, without which jobs fail. None, "", "auto" and "local" are not checked.
    """
    try:
        if head not in (None, "", "auto", "local"):
            check_accepts(head)
    except CodecfleetError as error:
        return Obstacle(error.message, fails_jobs=True)
    except (OSError, ValueError) as error:
        return Obstacle(f"the head {head} cannot be asked: {error}", fails_jobs=True)
    try:
        return Obstacle(shortage(Room(available_memory_bytes(), shutil.disk_usage(folder).free), least))
    except OSError as error:
        return Obstacle(f"the free space of {folder} is unknown: {error.strerror}")

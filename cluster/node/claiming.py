"""Whether a driver on this machine may claim a job: its free memory and disk, and the head of its cluster."""

import shutil
from pathlib import Path
from typing import NamedTuple

from ...errors import CodecfleetError
from ..machine import available_memory_bytes
from ..queue.driver import Obstacle
from ..ray.embedded import check_accepts
from ..text_lines import gigabytes


class Room(NamedTuple):
    """Free memory and free space for files, in bytes."""

    memory: int = 0
    disk: int = 0


def shortage(free: Room, least: Room) -> str:
    """Return what is free, but less than a driver needs to claim a job; "" if enough is free."""
    short = [
        f"{gigabytes(has)} of {name} is free, less than {gigabytes(needed)}"
        for name, has, needed in zip(Room._fields, free, least, strict=True)
        if has < needed
    ]
    return " and ".join(short)


def obstacle(least: Room, folder: Path, head: str | None) -> Obstacle:
    """Return why a driver claims no job now, if there is a reason.

    Args:
        least: the memory, and the space in ``folder``, that must be free.
        folder: the folder for temporary files, where a job keeps its work if its output is at a URL.
        head: the address of the head of the cluster, without which the jobs fail. None, "auto" and "local" are not
            asked.
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

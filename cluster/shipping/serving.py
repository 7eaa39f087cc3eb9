"""Reads a machine's files for workers on other machines, in an actor on the node of a job's driver."""

import os
from typing import Any, Final

from ...actors.media.stores import shipped_version
from ...errors import FleetUnavailable
from ..ray.private_ray import NAMESPACE
from ..ray.public.actors import answer_of, make_actor
from ..ray.public.nodes import cluster_address, on_node, this_node
from ..ray.ray_words import first_line

_READS_AT_ONCE: Final = 8
_PREFIX: Final = "codecfleet-files-"
_START_S: Final = 60


class FileReader:
    """Reads files of this machine. The reader keeps no state between calls, so Ray may restart it at any time.

    Any path is allowed, because callers can run any program on the node anyway. Raises OSError.
    """

    def info(self, path: str) -> tuple[int, str]:
        """Return the size of a file in bytes, and its version, which changes when the file is replaced or written."""
        found = shipped_version(path)
        if found is None:
            raise FileNotFoundError(path)
        return found

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset``, or fewer at the end of the file."""
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - the bytes of the path may not be valid text
            return os.pread(file.fileno(), size, offset)


def files_address(client: str) -> str:
    """Return the address of the reader for the connection ``client``: HOST:PORT/NAME."""
    return f"{cluster_address()}/{_PREFIX}{client}"


def serve_files(client: str) -> Any:
    """Start the reader on this driver's node, and return its handle.

    The reader ends when the handle is dropped. The call blocks.

    Raises FleetUnavailable if Ray does not start the reader.
    """
    try:
        options: dict[str, Any] = {
            "num_cpus": 0,
            "name": f"{_PREFIX}{client}",
            "namespace": NAMESPACE,
            "get_if_exists": True,
            "max_restarts": -1,
            "max_task_retries": -1,  # so that a restart fails neither running nor new calls
            "max_concurrency": _READS_AT_ONCE,
            "scheduling_strategy": on_node(this_node()),
        }
        reader = make_actor(FileReader, options)
        answer_of(reader.__ray_ready__.remote(), _START_S)
    except Exception as error:  # Ray raises errors of many kinds
        message = f"the process that reads this machine's files for other machines did not start: {first_line(error)}"
        raise FleetUnavailable(message, "Check `ray status`, or put the input where every node can read it.") from error
    return reader

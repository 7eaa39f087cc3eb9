"""Starting the reader of this machine's files."""

from typing import Any, Final

from ...errors import FleetUnavailable
from ..ray.private_ray import NAMESPACE
from ..ray.public.actors import answer_of, make_actor
from ..ray.public.nodes import cluster_address, on_node, this_node
from ..ray.ray_words import first_line
from .reader import READER_PREFIX, READS_AT_ONCE, FileReader

START_S: Final = 60


def files_address(client: str) -> str:
    """Return the address, HOST:PORT/NAME, of the reader for the connection called ``client``."""
    return f"{cluster_address()}/{READER_PREFIX}{client}"


def serve_files(client: str) -> Any:
    """Start the reader on the node of this driver; return its handle, with which it ends. Blocks.

    Raises:
        FleetUnavailable: Ray does not start it.
    """
    try:
        options: dict[str, Any] = {
            "num_cpus": 0,
            "name": f"{READER_PREFIX}{client}",
            "namespace": NAMESPACE,
            "get_if_exists": True,
            "max_restarts": -1,
            "max_concurrency": READS_AT_ONCE,
            "scheduling_strategy": on_node(this_node()),
        }
        reader = make_actor(FileReader, options)
        answer_of(reader.__ray_ready__.remote(), START_S)
    except Exception as error:  # Ray raises errors of many kinds
        message = f"the process that reads this machine's files for others did not start: {first_line(error)}"
        raise FleetUnavailable(message, "Look at `ray status`, or put the input where every node sees it.") from error
    return reader

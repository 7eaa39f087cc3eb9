"""The program that keeps a node in the background."""

import json
import os
import sys
from contextlib import suppress

from ...actors.process.program import begin
from ...errors import CodecfleetError
from .orders import PreparedNode
from .spot import Spot


def main() -> None:
    """Run Ray with the settings ``[arguments, variables, notice, spot, has GPUs, driver, cluster]``."""
    starter, (arguments, variables, notice_s, spot, has_gpus, driver, cluster) = begin()

    def joined() -> None:
        with suppress(OSError):  # the starter may have been interrupted
            starter.sendall(json.dumps({"process": os.getpid()}).encode())
        starter.close()

    try:
        node = PreparedNode(tuple(arguments), variables, notice_s, (), Spot(spot), has_gpus, tuple(driver), cluster)
        node.run(joined)
    except CodecfleetError as error:
        sys.exit(str(error))

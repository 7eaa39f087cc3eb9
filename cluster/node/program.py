"""The program that keeps a node in the background."""

import json
import os
import socket
import sys
from contextlib import suppress

from ...errors import CodecfleetError
from .orders import PreparedNode


def main() -> None:
    """Run ``[descriptor, its starter, the starter's program, arguments, variables, notice]``: JSON, one argument."""
    descriptor, _, _, arguments, variables, notice_s = json.loads(sys.argv[1])
    starter = socket.socket(fileno=descriptor)

    def joined() -> None:
        with suppress(OSError):  # it was interrupted meanwhile
            starter.sendall(json.dumps({"process": os.getpid()}).encode())
        starter.close()

    try:
        PreparedNode(tuple(arguments), variables, notice_s, ()).run(joined)
    except CodecfleetError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()

"""How a fleet's host is started."""

from dataclasses import astuple
from typing import Final

from ..process.process import StartedProcess, start_program
from .client_name import ClientName

HOST: Final = "codecfleet.cluster.fleet.host.program"


def start_host(
    address: str | None, slots: int | None, dlas: int, name: ClientName, *, program: str = HOST
) -> StartedProcess:
    """Start a host, which runs the module ``program``; the other arguments are ``ConnectedPool``'s.

    Raises:
        OSError: it cannot be started.
    """
    return start_program(program, address, slots, dlas, astuple(name))

"""How a host is started."""

from dataclasses import astuple
from typing import Final

from ..process.process import StartedProcess, start_program
from .client_name import ClientName

HOST: Final = "codecfleet.cluster.fleet.host.program"


def start_host(address: str | None, slots: int | None, dlas: int, name: ClientName) -> StartedProcess:
    """Start a host for one fleet; the arguments are ``connecting_pool``'s.

    Raises:
        OSError: it cannot be started.
    """
    return start_program(HOST, address, slots, dlas, astuple(name), None)

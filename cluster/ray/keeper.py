"""Sends orders to a node's keeper: the program that runs Ray on the node and, if asked to, a driver of a queue.

An order says what this driver may do. The keeper does not connect to Ray, because Ray might then end it; a task of Ray
on the node passes on the orders. Ray starts no task on a node that it drains, so the driver's jobs pass on orders too.
The orders are datagrams to the keeper's socket, whose abstract name (unix(7)) leaves no file if the keeper is killed.
"""

import os
import secrets
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Final, NamedTuple

from ..fleet_variables import KEEPER

SEND_LIMIT_S: Final = 10.0
_WORD: Final = struct.Struct("!QQB")
_SENDER: Final = struct.Struct("iII")  #: struct ucred of Linux: process, user, group


class Driving(Enum):
    """What a node's driver of a queue may do."""

    CLAIMS = 0  #: it claims jobs and runs them
    HOLDS = 1  #: it claims no job; its running jobs continue
    RESTS = 2  #: it hands back its jobs, and does not run


class Word(NamedTuple):
    """An order for a driver. The supervisor's term and the event's number tell which order is newer."""

    term: int
    event: int
    driving: Driving


def keeper_name() -> str:
    """Return the name of the socket of this node's keeper; "" if the node has no driver."""
    return os.environ.get(KEEPER, "")


def tell_keeper(word: Word, within_s: float = SEND_LIMIT_S) -> None:
    """Send an order to this node's keeper. Without a driver on the node, do nothing.

    Raises OSError: the order could not be sent within ``within_s`` seconds.
    """
    if name := keeper_name():
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.settimeout(within_s)
            with suppress(ConnectionRefusedError):  # the keeper has ended
                end.sendto(_WORD.pack(word.term, word.event, word.driving.value), f"\0{name}")


@contextmanager
def words_heard() -> Iterator[tuple[socket.socket, str]]:
    """Yield a socket for orders, and its name."""
    name = f"codecfleet-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        end.bind(f"\0{name}")
        yield end, name


def next_word(end: socket.socket) -> Word | None:
    """Return the next order that has arrived at a socket; None if another user sent it."""
    content, ancillary, _, _ = end.recvmsg(_WORD.size, socket.CMSG_SPACE(_SENDER.size))
    senders = [_SENDER.unpack(data) for _, kind, data in ancillary if kind == socket.SCM_CREDENTIALS]
    if [user for _, user, _ in senders] != [os.geteuid()]:
        return None
    term, event, driving = _WORD.unpack(content)
    return Word(term, event, Driving(driving))

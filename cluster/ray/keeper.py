"""Words to the program that keeps a node: whether the node's driver of a queue may run.

The program has no connection to Ray, which might end it. The words are datagrams to a socket of the program,
whose abstract name (unix(7)) leaves no file when the program is killed.
"""

import os
import secrets
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from ..fleet_variables import KEEPER

SEND_LIMIT_S: Final = 10.0
_WORD: Final = struct.Struct("!QQ?")
_SENDER: Final = struct.Struct("iII")  #: struct ucred of Linux: process, user, group


class Word(NamedTuple):
    """Whether a driver must rest, and which supervisor says so; a word with smaller numbers is older."""

    term: int
    event: int
    drains: bool


def tell_keeper(word: Word) -> None:
    """Tell the program that keeps this process's node a word; nodes of other programs have nobody to tell.

    Raises OSError: the word could not be sent.
    """
    if name := os.environ.get(KEEPER):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.settimeout(SEND_LIMIT_S)
            with suppress(ConnectionRefusedError):  # the program has ended
                end.sendto(_WORD.pack(*word), f"\0{name}")


@contextmanager
def words_heard() -> Iterator[tuple[socket.socket, str]]:
    """Yield a socket for words, and its name."""
    name = f"codecfleet-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        end.bind(f"\0{name}")
        yield end, name


def next_word(end: socket.socket) -> Word | None:
    """Return the next word of a socket, which must be readable; None if another user has sent it."""
    content, ancillary, _, _ = end.recvmsg(_WORD.size, socket.CMSG_SPACE(_SENDER.size))
    senders = [_SENDER.unpack(data) for _, kind, data in ancillary if kind == socket.SCM_CREDENTIALS]
    if [user for _, user, _ in senders] != [os.geteuid()]:
        return None
    return Word(*_WORD.unpack(content))

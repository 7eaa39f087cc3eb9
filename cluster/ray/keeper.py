"""Words from a process of Ray to the program that keeps its node: whether the node's driver of a queue may run.

The program has no connection to Ray, which might end it. The words are datagrams to a socket of the program.
"""

import os
import socket
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from ...errors import FleetUnavailable

KEEPER: Final = "CODECFLEET_KEEPER"
"""The variable with the path of the program's socket, which Ray's processes inherit."""
SEND_LIMIT_S: Final = 10.0
_WORD: Final = struct.Struct("!QQ?")
_BASE_LENGTH_MAX: Final = 80  #: The path of a Unix socket has at most 107 bytes, and this module adds up to 25


class Word(NamedTuple):
    """Whether a driver must rest, and which supervisor says so; a word with smaller numbers is older."""

    term: int
    event: int
    drains: bool


def tell_keeper(word: Word) -> None:
    """Tell the program that keeps this process's node a word; nodes of other programs have nobody to tell."""
    if path := os.environ.get(KEEPER):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.settimeout(SEND_LIMIT_S)
            with suppress(FileNotFoundError, ConnectionRefusedError):  # the program has ended
                end.sendto(_WORD.pack(*word), path)


@contextmanager
def words_heard() -> Iterator[tuple[socket.socket, str]]:
    """Yield a socket for words, and its path, which only this user can reach. Raises FleetUnavailable: no place."""
    try:
        is_short = len(os.fsencode(tempfile.gettempdir())) < _BASE_LENGTH_MAX
        base = None if is_short else "/tmp"  # noqa: S108 - a fallback, in which the folder is private
        folder = tempfile.TemporaryDirectory(prefix="cf-keeper-", dir=base)
    except OSError as error:
        message = f"the node has no folder for its socket: {error}"
        raise FleetUnavailable(message, "Set TMPDIR to a folder that is writable and has free space.") from None
    with folder as name, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        path = f"{name}/words"
        end.bind(path)
        yield end, path


def next_word(end: socket.socket) -> Word:
    """Return the next word of a socket, which must be readable."""
    return Word(*_WORD.unpack(end.recv(_WORD.size)))

"""The store's errors after which a call is tried again, and the number of tries."""

import errno
import socket

import pytest

from codecfleet.actors.media.storage_retry import ATTEMPTS, is_away, is_transient, try_again


class StoreError(Exception):
    """An error of a store, with an HTTP status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        (ConnectionResetError(), True),
        (TimeoutError(), True),
        (OSError(errno.EIO, "input/output error"), True),
        (StoreError(503), True),
        (StoreError(429), True),
        (RuntimeError("a store's own"), True),
        (StoreError(403), False),
        (StoreError(404), False),
        (FileNotFoundError(), False),
        (PermissionError(), False),
        (OSError(errno.ENOSPC, "no space left"), False),
        (NotImplementedError(), False),
    ],
    ids=repr,
)
def test_what_another_try_can_help(error: Exception, *, transient: bool) -> None:
    """A dropped connection or a busy server is tried again; a missing file, a forbidden file or a full store is not."""
    assert is_transient(error) is transient


@pytest.mark.parametrize("failures", range(ATTEMPTS))
def test_pauses_grow(failures: int) -> None:
    """After each failure there is a pause, twice as long as the previous one."""
    left, pauses = failures, list[float]()

    def call() -> str:
        nonlocal left
        left -= 1
        if left >= 0:
            raise TimeoutError
        return "done"

    assert try_again(call, pauses.append) == "done"
    assert pauses == [0.2 * 2**number for number in range(failures)]


@pytest.mark.parametrize(("error", "calls"), [(TimeoutError(), ATTEMPTS), (PermissionError(), 1)], ids=repr)
def test_tries_are_bounded(error: Exception, calls: int) -> None:
    """A transient error is raised after all tries, a permanent error at once."""
    made = 0

    def call() -> None:
        nonlocal made
        made += 1
        raise error

    with pytest.raises(type(error)):
        try_again(call, lambda _: None)
    assert made == calls


class ClientConnectionError(Exception):
    """As aiohttp's is called."""


class SSLError(ConnectionError):
    """Has the name and the base class of botocore's error."""


@pytest.mark.parametrize(
    ("error", "is_expected"),
    [
        *((each, True) for each in (ConnectionRefusedError(), TimeoutError(), OSError(errno.EHOSTUNREACH, "no route"))),
        *((each, True) for each in (ClientConnectionError(), socket.gaierror(socket.EAI_AGAIN, "try again"))),
        *((each, False) for each in (None, SSLError(), socket.gaierror(socket.EAI_NONAME, "unknown"))),
        *((each, False) for each in (PermissionError(errno.EACCES, "denied"), ValueError("Protocol not known"))),
    ],
)
def test_a_server_that_is_away_is_no_fault_of_the_address(error: Exception | None, *, is_expected: bool) -> None:
    """An unreachable server may answer later; a host without an address or with a wrong certificate will not."""
    assert is_away(error) is is_expected

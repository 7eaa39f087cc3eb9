"""Retries calls of a store if a retry can help: after a dropped connection, a busy server or a truncated answer."""

import errno
import socket
import time
from collections.abc import Callable
from typing import Final, TypeVar

from ...errors import CodecfleetError
from ..backoff import Backoff

ATTEMPTS: Final = 5
PAUSES: Final = Backoff(first_s=0.2, most_s=1.6)
"""The pauses between attempts: 3 s in total."""
_PERMANENT: Final = (
    *(FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError),
    *(NotImplementedError, ImportError, TypeError, ValueError, AttributeError, CodecfleetError),
)
_PERMANENT_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.ENAMETOOLONG})
_CUT_OFF_ERRNOS: Final = frozenset(
    {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, socket.EAI_AGAIN}
)
_UNREACHED: Final = frozenset({"ConnectionError", "TimeoutError", "ClientConnectionError", "HTTPClientError"})
"""The names of error classes that mean an unreachable server, of Python, aiohttp and botocore. The two packages may not
be installed.
"""
_NOT_ASKED_FOR: Final = frozenset({"ClientSSLError", "SSLError"})
_CLIENT_ERRORS: Final = range(400, 500)
_SERVER_ERRORS: Final = range(500, 600)
_WORTH_ANOTHER_TRY: Final = frozenset({408, 425, 429})
"""HTTP's status codes for a request that was too slow or too early, and for too many requests (RFC 9110, 8470 and
6585).
"""

ResultT = TypeVar("ResultT")


def is_transient(error: BaseException) -> bool:
    """Return whether a repeated call may succeed: yes, unless the error is known to be permanent."""
    if isinstance(error, _PERMANENT):
        return False
    if isinstance(error, OSError) and error.errno in _PERMANENT_ERRNOS:
        return False
    return status_of(error) not in _CLIENT_ERRORS or is_busy(error)


def is_busy(error: BaseException) -> bool:
    """Return whether a web server reports that it cannot answer now."""
    return status_of(error) in _WORTH_ANOTHER_TRY or status_of(error) in _SERVER_ERRORS


def is_away(error: BaseException | None) -> bool:
    """Return whether a server is busy, does not answer or breaks off: it may then answer later.

    The result is False for a host whose name does not exist, or that cannot prove its identity.
    """
    return error is not None and (is_busy(error) or _is_unreached(error))


def _is_unreached(error: BaseException) -> bool:
    named = {each.__name__ for each in type(error).__mro__}
    if named & _NOT_ASKED_FOR or getattr(error, "errno", None) == socket.EAI_NONAME:
        return False
    is_cut_off = isinstance(error, OSError) and error.errno in _CUT_OFF_ERRNOS
    return is_cut_off or bool(named & _UNREACHED)


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status code that an error reports, or None."""
    for name in ("status", "code", "status_code"):
        if isinstance(stated := getattr(error, name, None), int):
            return stated
    # s3fs raises its errors from errors of botocore, which hold the server's answer.
    response = getattr(error, "response", None) or getattr(error.__cause__, "response", None)
    stated = response.get("ResponseMetadata", {}).get("HTTPStatusCode") if isinstance(response, dict) else None
    return stated if isinstance(stated, int) else None


def reason(error: BaseException) -> str:
    """Return an error's text on one line, or the name of its class if it has no text."""
    if type(error).__name__ == "TooManyRedirects":  # an error of aiohttp has no message; aiohttp may not be installed
        return "the server redirects without end"
    return getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__


def try_again(call: Callable[[], ResultT], sleep: Callable[[float], object] = time.sleep) -> ResultT:
    """Return the result of ``call``, tried up to ``ATTEMPTS`` times; a permanent error is raised at once."""
    for failures in range(1, ATTEMPTS):
        try:
            return call()
        except Exception as error:  # a store may raise any error
            if not is_transient(error):
                raise
        sleep(PAUSES.wait_s(failures))
    return call()

"""Ray's client of a job server; it takes half a second to import."""

import logging
import os
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from ..ray_environment import environment
from ..token import sign_in

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

AnswerT = TypeVar("AnswerT")
Details: TypeAlias = Any  #: A job as Ray's client describes it

_CHATTY: Final = ("ray", "ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk")
"""Loggers that report each request; each has a level of its own."""


def open_job_client(address: str) -> "JobSubmissionClient":
    """Return a client that presents this user's token, once the server has answered; its errors are of many kinds."""
    with environment(sign_in(os.environ)):  # read as Ray is imported
        from ray.job_submission import JobSubmissionClient

        for logger in _CHATTY:
            logging.getLogger(logger).setLevel(logging.WARNING)
        return JobSubmissionClient(address)


class TokenRefused(Exception):
    """A server refused our token."""


def answer_of_server(ask: Callable[[], AnswerT]) -> AnswerT:
    """Ask a client; its other errors are raised as they are. Raises TokenRefused: the server refused our token."""
    try:
        return ask()
    except Exception as error:  # Ray must not be imported to name its error; all others are raised again
        from ray.exceptions import AuthenticationError

        if isinstance(error, AuthenticationError):
            raise TokenRefused from None
        raise


async def tail_log(client: "JobSubmissionClient", job_id: str) -> AsyncIterator[str]:
    """Yield what a job prints, until it ends. Raises ConnectionError: the connection ended before."""
    import aiohttp  # a part of Ray's client

    try:
        async for text in client.tail_job_logs(job_id):
            yield text
    except (aiohttp.ClientError, RuntimeError, OSError) as error:
        raise ConnectionError(str(error)) from None

"""Ray's client of a job server. Its import takes half a second."""

import logging
import os
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from ..ray_environment import environment
from ..token import sign_in

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

AnswerT = TypeVar("AnswerT")
Details: TypeAlias = Any  #: A job, as Ray's client describes it

_CHATTY: Final = ("ray", "ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk")
"""The loggers that report each request; each logger has a separate level."""


def open_job_client(address: str) -> "JobSubmissionClient":
    """Return a client that has reached the server with this user's token; raises errors of many kinds."""
    with environment(sign_in(os.environ)):  # Ray reads its environment when it is imported
        from ray.job_submission import JobSubmissionClient

        for logger in _CHATTY:
            logging.getLogger(logger).setLevel(logging.WARNING)
        return JobSubmissionClient(address)


class TokenRefused(Exception):
    """A server refused our token."""


def answer_of_server(ask: Callable[[], AnswerT]) -> AnswerT:
    """Return the result of ``ask``. Raises TokenRefused if the server refuses our token; other errors are unchanged."""
    try:
        return ask()
    except Exception as error:  # naming Ray's error here would import Ray; all other errors are raised again
        from ray.exceptions import AuthenticationError

        if isinstance(error, AuthenticationError):
            raise TokenRefused from None
        raise


async def tail_log(client: "JobSubmissionClient", job_id: str) -> AsyncIterator[str]:
    """Yield the output of a job until the job ends. Raises ConnectionError if the connection breaks."""
    import aiohttp  # always installed, because Ray's client depends on aiohttp

    try:
        async for text in client.tail_job_logs(job_id):
            yield text
    except (aiohttp.ClientError, RuntimeError, OSError) as error:
        raise ConnectionError(str(error)) from None

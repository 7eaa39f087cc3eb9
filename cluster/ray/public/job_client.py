"""Ray's client of a job server. Its import takes half a second."""

import logging
import os
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from ....errors import FleetUnavailable
from ..ray_environment import environment
from ..token import sign_in

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

AnswerT = TypeVar("AnswerT")
Details: TypeAlias = Any  #: A job, as Ray's client describes it

REACH: Final = "Give the address of the cluster's dashboard, http://HEAD:8265, and check that it can be reached."
_SIGN_IN: Final = "Copy the head's ~/.ray/auth_token here, or set RAY_AUTH_TOKEN to its content."
_CHATTY: Final = ("ray", "ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk")
"""The loggers that report each request; each logger has a separate level."""


def open_job_client(address: str) -> "JobSubmissionClient":
    """Return a client that has reached the server with this user's token; raises errors of many kinds."""
    with environment(sign_in(os.environ)):  # Ray reads its environment when it is imported
        from ray.job_submission import JobSubmissionClient

        for logger in _CHATTY:
            logging.getLogger(logger).setLevel(logging.WARNING)
        return JobSubmissionClient(address)


def answer_of_server(address: str, ask: Callable[[], AnswerT]) -> AnswerT:
    """Return the result of ``ask``. Raises FleetUnavailable: the server does not answer, or refuses our token."""
    try:
        return ask()
    except Exception as error:  # naming Ray's error here would import Ray; unexpected errors are raised again
        from ray.exceptions import AuthenticationError

        if isinstance(error, AuthenticationError):
            message = f"the job server at {address} did not let us in: the token is missing or wrong"
            raise FleetUnavailable(message, _SIGN_IN) from None
        if isinstance(error, (RuntimeError, OSError, ValueError)):  # the errors of ``requests`` are OSErrors
            text = " ".join(str(error).split())
            raise FleetUnavailable(f"the job server at {address} failed: {text}", REACH) from None
        raise


async def tail_log(client: "JobSubmissionClient", job_id: str) -> AsyncIterator[str]:
    """Yield the whole output of a job until the job ends. Raises FleetUnavailable if the connection breaks."""
    import aiohttp  # always installed, because Ray's client depends on aiohttp

    try:
        async for text in client.tail_job_logs(job_id):
            yield text
    except (aiohttp.ClientError, RuntimeError, OSError) as error:
        raise FleetUnavailable(f"the connection to the log of job {job_id} broke: {error}", REACH) from None

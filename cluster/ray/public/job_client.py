"""Ray's client of a job server; it takes half a second to import."""

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from ..ray_environment import environment
from ..token import sign_in

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

AnswerT = TypeVar("AnswerT")

_CHATTY: Final = ("ray", "ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk")
"""What of Ray's client tells of each request; the modules have levels of their own."""


def open_job_client(address: str) -> "JobSubmissionClient":
    """Return a client that shows this user's token, once the server has answered; its errors are of many kinds."""
    with environment(sign_in(os.environ)):  # read as Ray is imported
        from ray.job_submission import JobSubmissionClient

        for logger in _CHATTY:
            logging.getLogger(logger).setLevel(logging.WARNING)
        return JobSubmissionClient(address)


class TokenRefused(Exception):
    """A server did not let us in."""


def answer_of_server(ask: Callable[[], AnswerT]) -> AnswerT:
    """Ask a client; its other errors are raised as they are.

    Raises:
        TokenRefused: the server did not let us in.
    """
    try:
        return ask()
    except Exception as error:
        from ray.exceptions import AuthenticationError

        if isinstance(error, AuthenticationError):
            raise TokenRefused from None
        raise
